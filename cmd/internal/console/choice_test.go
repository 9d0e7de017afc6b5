package console

import (
	"net/url"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

func TestRead(t *testing.T) {
	for after, want := range map[string]string{
		"1": "1", " 90s ": "90", "2h": "7200", "7d": "604800", "1h30m": "5400", "2147483647": "2147483647", "24855d": "2147472000",
		"": "", "0": "", "-1": "", "0s": "", "1.5": "", "1500ms": "", "2147483648": "", "24856d": "", "1e3": "", "forever": "", "99999999999999999999": "",
	} {
		c := readChoice(url.Values{"mode": {after}, "after": {after}}, wire.Config{IndexingMode: wire.Lazy})
		if (c.Error == "") != (want != "") || want != "" && c.Default() != want || c.Indexing != wire.Lazy {
			t.Errorf("%q: %+v, %s", after, c, c.Default())
		}
	}
	hour := int32(3600)
	now := wire.Config{DefaultTTL: &hour, IndexingMode: wire.Consistent, Etag: 5}
	same := readChoice(url.Values{}, now)
	if !same.Same(now) || same.Mode != after || same.After != "3600" {
		t.Errorf("%+v", same)
	}
	for _, c := range []struct {
		form      url.Values
		ttl       string
		same      bool
		ofDefault bool
	}{
		{url.Values{"mode": {after}, "after": {"1h"}, "indexing": {"consistent"}}, "3600", true, true},
		{url.Values{"mode": {after}, "after": {"1h"}, "indexing": {"lazy"}}, "3600", false, true},
		{url.Values{"mode": {off}, "after": {"x"}}, "null", false, false},
		{url.Values{"mode": {none}}, "-1", false, false},
	} {
		got := readChoice(c.form, now)
		if got.Default() != c.ttl || got.Same(now) != c.same || got.SameDefault(now) != c.ofDefault || got.Error != "" {
			t.Errorf("%v: %+v", c.form, got)
		}
	}
	limited := wire.Config{DefaultTTL: &hour, IndexingMode: wire.Consistent, Etag: 5, MinTTL: 60, MaxTTL: 7200, WarnBefore: []int32{300, 60}, MaxLife: 86400, SlideOnRead: 0.01, EventBody: new(bool)}
	if kept := readChoice(url.Values{"mode": {after}, "after": {"1h"}}, limited); !kept.Same(limited) {
		t.Errorf("a form without the limits: %+v", kept)
	}
	more := url.Values{"mode": {after}, "after": {"1h"}, "min": {"1m"}, "max": {""}, "life": {"12h"}, "warn": {"5m, 60"}, "slide": {yes}, "part": {"0.5"}}
	if got := readChoice(more, limited).Config(); got.MinTTL != 60 || got.MaxTTL != 0 || len(got.WarnBefore) != 2 || got.WarnBefore[1] != 60 || got.MaxLife != 43200 || got.SlideOnRead != 0.5 || got.EventBody == nil {
		t.Errorf("%+v", got)
	}
	more.Set("warn", "soon")
	if got := readChoice(more, limited); got.MoreError == "" || !got.wrong() {
		t.Errorf("%+v", got)
	}
	more.Set("warn", "")
	for part, want := range map[string]bool{"1": true, "0": true, "soon": true, "": false} {
		more.Set("part", part)
		if got := readChoice(more, limited); got.wrong() != want {
			t.Errorf("part %q: %+v", part, got)
		}
	}
	never := wire.Config{IndexingMode: wire.Consistent} // it was never configured: to turn TTL off is a change
	if readChoice(url.Values{"mode": {off}}, never).Same(never) {
		t.Error("there would be nothing to save")
	}
}
