package console

import (
	"net/url"
	"reflect"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

func TestRead(t *testing.T) {
	for after, want := range map[string]string{
		"1": "1", " 90s ": "90", "2h": "7200", "7d": "604800", "1h30m": "5400", "2147483647": "2147483647",
		"24855d": "2147472000",
		"":       "", "0": "", "-1": "", "0s": "", "1.5": "", "1500ms": "", "2147483648": "", "24856d": "", "1e3": "",
		"forever": "", "99999999999999999999": "",
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
	limited := wire.Config{DefaultTTL: &hour, IndexingMode: wire.Consistent, Etag: 5, MinTTL: 60, MaxTTL: 7200,
		WarnBefore: []int32{300, 60}, MaxLife: 86400, SlideOnRead: 0.01, EventBody: new(bool)}
	if kept := readChoice(url.Values{"mode": {after}, "after": {"1h"}}, limited); !kept.Same(limited) {
		t.Errorf("a form without the limits: %+v", kept)
	}
	more := url.Values{moreField: {yes}, "mode": {after}, "after": {"1h"}, "min": {"1m"}, "max": {""}, "life": {"12h"},
		"warn": {"5m, 60"}, "slide": {yes}, "part": {"0.5"}}
	if got := readChoice(more, limited).Config(); got.MinTTL != 60 || got.MaxTTL != 0 || len(got.WarnBefore) != 2 ||
		got.WarnBefore[1] != 60 || got.MaxLife != 43200 || got.SlideOnRead != 0.5 || got.EventBody == nil {
		t.Errorf("%+v", got)
	}
	more.Set("warn", "soon")
	if got := readChoice(more, limited); !got.wrong() {
		t.Errorf("%+v", got)
	}
	for name, values := range map[string]map[string]bool{
		"min": {"": true, "90s": true, "0": false, "-1": false}, "warn": {"": true, "1h, 5m": true, "1h,,5m": false,
			",": false},
		"part": {"": true, "0.5": true, "1": false, "0": false, "soon": false},
		"body": {yes: true, no: true}, "changes": {yes: true, no: true}, "slide": {yes: true, no: true},
	} {
		for value, valid := range values {
			form := url.Values{moreField: {yes}, "mode": {off}, name: {value}}
			got := readChoice(form, now)
			if got.wrong() == valid {
				t.Errorf("%s %q: %+v", name, value, got)
			}
			if again := readChoice(formOf(got), now); valid && !reflect.DeepEqual(again.Config(), got.Config()) {
				t.Errorf("%s %q: %+v leads to %+v", name, value, got, again)
			}
		}
	}
	without, with := false, true
	for _, c := range []struct {
		now  *bool
		form string
		want *bool
	}{{nil, yes, nil}, {nil, no, &without}, {&with, yes, &with}, {&with, no, &without}, {&without, yes, nil},
		{&without, no, &without}, {&without, "", &without}} {
		form := url.Values{moreField: {yes}, "mode": {none}}
		if c.form != "" {
			form.Set("body", c.form)
		}
		if got := readChoice(form, wire.Config{EventBody: c.now}).Config().EventBody; !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
	never := wire.Config{IndexingMode: wire.Consistent} // it was never configured: to turn TTL off is a change
	if readChoice(url.Values{"mode": {off}}, never).Same(never) {
		t.Error("there would be nothing to save")
	}
}

// formOf is the form that the parameters of a choice make.
func formOf(c Choice) url.Values {
	form := url.Values{}
	pairs := c.Parameters()
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			form.Set(pairs[i], pairs[i+1])
		}
	}
	return form
}
