package fold

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG2_ClocksThatBeginEarlier: a write at 50 s says where its clock begins.
//
// It fails if the clock may begin after the stamp, if a version that is over by then is refused or lives, or if
// the clock of the live version counts.
func TestG2_ClocksThatBeginEarlier(t *testing.T) {
	history := func(d ttlrules.Default) ttlrules.History { return ttlrules.History{}.With(1000, 1, d).Settled() }
	on, none, off := store.Config{History: history(60)}, store.Config{History: history(ttlrules.NoDefault)},
		store.Config{}
	limited := store.Config{History: history(20), MinTTL: 10, MaxTTL: 20}
	live := &Version{Header: store.Header{Ts: 45_000, Etag: 5, TTL: 20}, Body: []byte(`{"ttl":20}`)}
	far := func(from int64) string { return instant(from + ttlrules.MaxSeconds*1000) }
	for _, c := range []struct {
		name     string
		config   store.Config
		live     *Version
		op       wire.Op
		body     string
		begin    string
		deadline string // a header's name before a colon, and its value
		// status and expiresAt of the outcome; then ttl, kept, absolute and notAfter of the stored document
		want string
	}{
		{"a create inherits", on, nil, wire.Create, `{}`, instant(40_000), "", "201 100000: 0 40000 0 0"},
		{"with a ttl", on, nil, wire.Create, `{"ttl":20}`, instant(40_000), "", "201 60000: 20 40000 0 0"},
		{"never", none, nil, wire.Create, `{}`, instant(40_000), "", "201 never: 0 40000 0 0"},
		{"an upsert", on, live, wire.Upsert, `{}`, instant(40_000), "", "200 100000: 0 40000 0 0"},
		{"a replace", on, live, wire.Replace, `{}`, instant(40_000), "", "200 100000: 0 40000 0 0"},
		{"a patch", on, live, wire.Patch, `{"a":1}`, instant(40_000), "", "200 60000: 20 40000 0 0"},
		{"a touch", on, live, wire.Touch, ``, instant(46_000), "", "200 66000: 20 46000 0 0"},
		{"the stamp itself", on, nil, wire.Create, `{}`, instant(50_000), "", "201 110000: 0 0 0 0"},
		{"after the stamp", on, nil, wire.Create, `{}`, instant(50_001), "", "400"},
		{"after the stamp, before 404", on, nil, wire.Touch, ``, instant(50_001), "", "400"},
		{"after the stamp, and off", off, nil, wire.Create, `{}`, instant(50_001), "", "400"},
		{"the first instant", on, nil, wire.Create, `{}`, instant(1), "", "201 60001: 0 1 0 0"},
		{"none", on, nil, wire.Create, `{}`, instant(0), "", "400"},
		{"over", on, nil, wire.Create, `{"ttl":5}`, instant(40_000), "", "201 50000: 5 40000 0 0"},
		{"over by a touch", on, live, wire.Touch, ``, instant(30_000), "", "200 50000: 20 30000 0 0"},
		{"off", off, nil, wire.Create, `{}`, instant(40_000), "", "201 never: 0 40000 0 0"},
		{"a deadline", on, nil, wire.Create, `{}`, instant(40_000), "Lapse-Expires-At:" + instant(70_000),
			"201 70000: 0 40000 70000 0"},
		{"a deadline that is over", on, nil, wire.Create, `{}`, instant(40_000), "Lapse-Expires-At:" + instant(45_000),
			"201 50000: 0 40000 45000 0"},
		{"a deadline before the clock", on, nil, wire.Create, `{}`, instant(40_000), "Lapse-Expires-At:" + instant(1),
			"201 50000: 0 40000 1 0"},
		{"no deadline", on, nil, wire.Create, `{}`, instant(40_000), "Lapse-Expires-At:" + instant(0), "400"},
		{"as far as possible", on, nil, wire.Create, `{}`, instant(40_000), "Lapse-Expires-At:" + far(40_000),
			fmt.Sprint("201 ", 40_000+int64(ttlrules.MaxSeconds)*1000, ": 0 40000 ", 40_000+
				int64(ttlrules.MaxSeconds)*1000, " 0")},
		{"too far", on, nil, wire.Create, `{}`, instant(40_000), "Lapse-Expires-At:" + far(40_001), "400"},
		{"a deadline in place of a ttl", on, nil, wire.Create, `{"ttl":9}`, instant(40_000), "Lapse-Expires-At:" +
			instant(70_000), "201 70000: 9 40000 70000 0"},
		{"off: over is kept", off, nil, wire.Create, `{}`, instant(40_000), "Lapse-Expires-At:" + instant(45_000),
			"201 never: 0 40000 45000 0"},
		{"a limit", on, nil, wire.Create, `{"ttl":20}`, instant(40_000), "Lapse-Not-After:" + instant(55_000),
			"201 55000: 20 40000 0 55000"},
		{"a limit that is over", on, nil, wire.Create, `{"ttl":20}`, instant(40_000), "Lapse-Not-After:" +
			instant(45_000), "201 50000: 20 40000 0 45000"},
		{"a limit without a ttl", on, nil, wire.Create, `{}`, instant(40_000), "Lapse-Not-After:" + instant(55_000),
			"201 55000: 0 40000 0 55000"},
		{"minTtl", limited, nil, wire.Create, `{}`, instant(42_000), "Lapse-Expires-At:" + instant(52_000),
			"201 52000: 0 42000 52000 0"},
		{"below minTtl", limited, nil, wire.Create, `{}`, instant(42_000), "Lapse-Expires-At:" + instant(51_999),
			"400"},
		{"maxTtl", limited, nil, wire.Create, `{}`, instant(42_000), "Lapse-Expires-At:" + instant(62_000),
			"201 62000: 0 42000 62000 0"},
		{"above maxTtl", limited, nil, wire.Create, `{}`, instant(42_000), "Lapse-Expires-At:" + instant(62_001),
			"400"},
		{"a limit within maxTtl", limited, nil, wire.Create, `{}`, instant(42_000), "Lapse-Not-After:" +
			instant(62_000), "201 62000: 0 42000 0 62000"},
		{"a limit above maxTtl", limited, nil, wire.Create, `{}`, instant(42_000), "Lapse-Not-After:" + instant(62_001),
			"400"},
	} {
		header := nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}, wire.HeaderClock: {c.begin}}
		if name, at, ok := strings.Cut(c.deadline, ":"); ok {
			header[name] = []string{at}
		}
		m := decoder.Decode(wire.DefaultPrefix.Write(c.op, "c", "x"), header, []byte(c.body), Position{Seq: 9,
			Time: 50_000})
		o, d := decideOne(t, c.config, c.live, m)
		got := fmt.Sprint(o.Status)
		if o.Status < 400 {
			at, h := "never", d.docs[Key{Collection: "c", ID: "x"}].Now.Header
			if o.ExpiresAt != nil {
				at = fmt.Sprint(int64(*o.ExpiresAt))
			}
			got = fmt.Sprintf("%d %s: %d %d %d %d", o.Status, at, h.TTL, h.Kept, h.Absolute, h.NotAfter)
		}
		if got != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got, o.Error, c.want)
		}
	}
}

// TestG3_AVersionThatIsOverHasOneEvent: a create whose clock has run out makes one event, at its own stamp, and what
// comes after it finds no document.
func TestG3_AVersionThatIsOverHasOneEvent(t *testing.T) {
	config := store.Config{History: ttlrules.History{}.With(1000, 1, 60).Settled()}
	header := nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}, wire.HeaderClock: {instant(30_000)}}
	_, d := decideOne(t, config, nil, decoder.Decode("lapse.write.create.c.x", header, []byte(`{"ttl":5}`),
		Position{Seq: 9, Time: 50_000}))
	d.Apply(decoder.Decode("lapse.write.touch.c.x", nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}}, nil,
		Position{Seq: 10, Time: 50_000}))
	if o := d.Outcomes[1].Body; o.Status != 404 {
		t.Errorf("a touch of it: %+v", o)
	}
	if e := d.Outputs[0]; d.Expired != 1 || e.Seq != 9 || e.At != 50_000 {
		t.Errorf("%d events, the first with cause %d at %d", d.Expired, e.Seq, e.At)
	}
}
