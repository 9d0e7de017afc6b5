package fold

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// configured is the configuration of a collection after messages, the n-th of which came at an instant.
func configured(t *testing.T, c store.Config, at int64, bodies ...string) store.Config {
	t.Helper()
	for i, body := range bodies {
		m := decoder.Decode("lapse.config.c", nil, []byte(body), Position{Seq: uint64(at) + uint64(i), Time: at,
			Stamp: at * 1e6})
		next, r := Configured(c, m, at, oneConfig(c))
		if m.Rejected != nil || r != nil {
			t.Fatalf("%s: %v %v", body, m.Rejected, r)
		}
		again, err := store.DecodeConfig(next.Encode())
		if err != nil || fmt.Sprint(again) != fmt.Sprint(next) {
			t.Fatalf("%s is read again as %+v, %v, and is %+v", body, again, err, next)
		}
		c = again
	}
	return c
}

// applied is the version after messages to one document, each op@instant, with headers and a body.
func applied(t *testing.T, config store.Config, live *Version, op wire.Op, at int64, header nats.Header,
	body string) (*Version, *Decision) {
	t.Helper()
	m := decoder.Decode("lapse.write."+string(op)+".c.x", header, []byte(body), Position{Seq: uint64(at), Time: at,
		Stamp: at * 1e6})
	d := New(testLimits, oneConfig(config), 0)
	s := d.Slot(Key{Collection: "c", ID: "x"})
	if live != nil {
		s.SetStored(&live.Header, live.body())
	}
	if !d.Apply(m) {
		t.Fatal("the write has to wait")
	}
	if s.Now != nil {
		stored, _, err := store.ParseDocument(string(s.Now.Header.Append(nil)) + `{}`)
		if err != nil || stored != s.Now.Header {
			t.Fatalf("%+v is read again as %+v, %v", s.Now.Header, stored, err)
		}
	}
	return s.Now, d
}

// TestG5_MaxLife: whatever renews a document, it expires at the latest maxLife after it was created. A document that
// was written once expires by the cut, so a changed maxLife counts for it at once.
//
// It fails if any kind of write, or a read, lets a version live longer, or if a put over a live document creates it
// anew.
func TestG5_MaxLife(t *testing.T) {
	until := func(at int64) nats.Header { return nats.Header{wire.HeaderExpiresAt: {wire.Time(at).String()}} }
	slide := func(etag int64) nats.Header {
		return nats.Header{wire.HeaderSlide: {"true"}, wire.HeaderIfMatch: {fmt.Sprint(etag)}}
	}
	keep := nats.Header{wire.HeaderClock: {"keep"}}
	from := func(begin, created wire.Time) nats.Header {
		if created == 0 {
			return nats.Header{wire.HeaderClock: {begin.String()}}
		}
		return nats.Header{wire.HeaderClock: {wire.FormatClock(begin.String(), created.String())}}
	}
	type write struct {
		op     wire.Op
		at     int64
		header nats.Header
		body   string
		want   int64 // deadline; 0: never
	}
	const created, end = 10_000, 110_000
	for name, c := range map[string]struct {
		config string
		writes []write
	}{
		"inherits": {`{"defaultTtl":60,"maxLife":100}`, []write{
			{wire.Upsert, created, nil, `{}`, 70_000}, {wire.Upsert, 40_000, nil, `{}`, 100_000}, {wire.Upsert, 80_000,
				nil, `{}`, end},
			{wire.Touch, 90_000, nil, ``, end}, {wire.Patch, 95_000, nil, `{"a":1}`, end}, {wire.Replace, 96_000, keep,
				`{}`, end}}},
		"a default that is longer": {`{"defaultTtl":1000,"maxLife":100}`, []write{{wire.Upsert, created, nil, `{}`,
			end}, {wire.Touch, 20_000, nil, ``, end}}},
		"without a default": {`{"defaultTtl":-1,"maxLife":100}`, []write{{wire.Upsert, created, nil, `{}`, end},
			{wire.Upsert, 50_000, nil, `{}`, end}}},
		"never": {`{"defaultTtl":60,"maxLife":100}`, []write{{wire.Upsert, created, nil,
			`{"ttl":-1}`, end}, {wire.Touch, 50_000, nil, ``, end}}},
		"its own": {`{"defaultTtl":-1,"maxLife":100}`, []write{
			{wire.Create, created, nil, `{"ttl":60}`, 70_000}, {wire.Touch, 60_000, nil, ``, end}, {wire.Patch, 70_000,
				nil, `{"ttl":10}`, 80_000},
			{wire.Patch, 75_000, nil, `{"ttl":null}`, end}, {wire.Upsert, 80_000, nil, `{"ttl":2000}`, end}}},
		"too long": {`{"defaultTtl":-1,"maxLife":100}`, []write{{wire.Upsert, created, nil, `{"ttl":2000}`,
			end}}},
		"an instant": {`{"defaultTtl":-1,"maxLife":100}`, []write{{wire.Upsert, created, until(500_000), `{}`, end},
			{wire.Touch, 20_000, until(50_000), ``, 50_000}, {wire.Touch, 30_000, until(500_000), ``, end}}},
		"a new life": {`{"defaultTtl":60,"maxLife":100}`, []write{{wire.Upsert, created, nil, `{}`, 70_000},
			{wire.Upsert, 70_000, nil, `{}`, 130_000}, {wire.Upsert, 120_000, nil, `{}`, 170_000}}},
		"after a delete": {`{"defaultTtl":60,"maxLife":100}`, []write{{wire.Upsert, created, nil, `{}`, 70_000},
			{wire.Delete, 60_000, nil, ``, 0}, {wire.Upsert, 65_000, nil, `{}`, 125_000}}},
		"slides": {`{"defaultTtl":60,"maxLife":100,"slideOnRead":0.01}`, []write{
			{wire.Upsert, created, nil, `{}`, 70_000}, {wire.Touch, 40_000, slide(created), ``, 100_000},
			{wire.Touch, 80_000, slide(created), ``, end}, {wire.Touch, 90_000, slide(created), ``, end}}},
		"created elsewhere": {`{"defaultTtl":60,"maxLife":100}`, []write{
			{wire.Create, 80_000, from(70_000, created), `{}`, end}, {wire.Touch, 90_000, nil, ``, end}}},
		"created elsewhere, written once": {`{"defaultTtl":60,"maxLife":100}`, []write{
			{wire.Create, 60_000, from(created, 0), `{}`, 70_000}, {wire.Upsert, 61_000, from(created, 0), `{}`,
				70_000}, {wire.Touch, 65_000, nil, ``, end}}},
		"created elsewhere, never": {`{"defaultTtl":60,"maxLife":100}`, []write{{wire.Create, 60_000, from(created, 0),
			`{"ttl":-1}`, end}}},
		"not created later": {`{"defaultTtl":60,"maxLife":100}`, []write{
			{wire.Create, created, nil, `{}`, 70_000}, {wire.Upsert, 60_000, from(55_000, 55_000), `{}`, end}}},
		"not created later, renewed": {`{"defaultTtl":60,"maxLife":100}`, []write{
			{wire.Create, 50_000, from(40_000, created), `{}`, 100_000}, {wire.Upsert, 60_000, from(55_000, 40_000),
				`{}`, end}}},
		"a limit of its own": {`{"defaultTtl":60,"maxLife":100}`, []write{
			{wire.Upsert, created, nats.Header{wire.HeaderNotAfter: {wire.Time(90_000).String()}}, `{"ttl":60}`,
				70_000}, {wire.Touch, 60_000, nil, ``, 90_000}, {wire.Upsert, 80_000, nil, `{"ttl":60}`, end}}},
	} {
		t.Run(name, func(t *testing.T) {
			config := configured(t, store.Config{}, 1, c.config)
			var live *Version
			for _, w := range c.writes {
				next, d := applied(t, config, live, w.op, w.at, w.header, w.body)
				var at int64
				if live = next; live != nil {
					at, _ = live.Header.Clock().Deadline(config.History.Current())
				}
				if rejected := len(d.Rejections) > 0; rejected || at != w.want {
					t.Errorf("%s at %d: the deadline is %d, want %d; rejected %t", w.op, w.at, at, w.want, rejected)
				}
			}
		})
	}
}

// TestG6_AChangedMaxLife counts at once for a document that was written once, and for another one at its next write or
// renewal. What is over its limit by then expires at that instant.
func TestG6_AChangedMaxLife(t *testing.T) {
	config := configured(t, store.Config{}, 1, `{"defaultTtl":1000,"maxLife":500}`)
	once, _ := applied(t, config, nil, wire.Upsert, 10_000, nil, `{}`)
	twice, _ := applied(t, config, once, wire.Touch, 20_000, nil, ``)
	shorter := configured(t, config, 30_000, `{"defaultTtl":1000,"maxLife":100}`)
	if x, ok := shorter.History.ExpiredAt(once.Header.Clock()); !ok || x.At != 110_000 {
		t.Errorf("a document that was written once expires at %+v", x)
	}
	if shorter.Wire().DefaultTTL == nil || *shorter.Wire().DefaultTTL != 1000 || shorter.Wire().MaxLife != 100 {
		t.Errorf("the configuration is shown as %+v", shorter.Wire())
	}
	if x, ok := shorter.History.ExpiredAt(twice.Header.Clock()); !ok || x.At != 510_000 {
		t.Errorf("a document that was renewed before expires at %+v", x)
	}
	again, _ := applied(t, shorter, twice, wire.Touch, 40_000, nil, ``)
	if x, ok := shorter.History.ExpiredAt(again.Header.Clock()); !ok || x.At != 110_000 {
		t.Errorf("a document that is renewed expires at %+v", x)
	}
	late, _ := applied(t, shorter, twice, wire.Touch, 300_000, nil, ``)
	if x, ok := shorter.History.ExpiredAt(late.Header.Clock()); !ok || x.At != 300_000 {
		t.Errorf("a document that is over its limit expires at %+v", x)
	}
	if off := configured(t, shorter, 50_000, `{"defaultTtl":null}`); off.History.Current() != ttlrules.Off ||
		off.MaxLife != 0 {
		t.Errorf("off is %+v", off)
	}
}

// TestSlideKeepsTheVersion: a touch for a read moves the beginning of the clock alone. So a client that has read a
// document may write with the etag that it read, however many reads came between.
//
// It fails if a slide changes the etag, _ts or the traceparent, or if it writes what moves nothing.
func TestSlideKeepsTheVersion(t *testing.T) {
	config := configured(t, store.Config{}, 1, `{"defaultTtl":60,"slideOnRead":true,"changes":true}`)
	first, _ := applied(t, config, nil, wire.Upsert, 10_000,
		nats.Header{wire.HeaderTrace: {"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}}, `{}`)
	live := first
	for _, at := range []int64{10_000, 30_000, 60_000, 61_000} {
		next, d := applied(t, config, live, wire.Touch, at, nats.Header{wire.HeaderSlide: {"true"},
			wire.HeaderIfMatch: {"10000"}}, ``)
		want := first.Header
		if want.Kept = at; at == want.Ts {
			want.Kept = 0
		}
		if next.Header != want || len(d.Rejections) > 0 {
			t.Errorf("at %d the header is %+v, want %+v", at, next.Header, want)
		}
		if changed := len(d.Changes(nil)); changed != min(1, int(at-10_000)) {
			t.Errorf("at %d the step commits %d collections", at, changed)
		}
		live = next
	}
	if next, d := applied(t, config, live, wire.Replace, 62_000, nats.Header{wire.HeaderIfMatch: {"10000"}},
		`{"b":1}`); len(d.Rejections) > 0 || next.Header.Etag != 62_000 {
		t.Errorf("a write with the etag that was read: %v", d.Rejections)
	}
}
