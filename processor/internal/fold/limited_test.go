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

// TestG2_LimitsOfATTL: what each operation, at 50 s, makes of the limit of a live version, which was written
// at 40 s with a ttl of 20 s and lives until 70 s at the latest.
//
// It fails if anything but an upsert or a replace moves the limit, if the limit is
// interpreted while TTL is off, or if it lets a document live longer than maxTtl.
func TestG2_LimitsOfATTL(t *testing.T) {
	history := func(d ttlrules.Default) ttlrules.History { return ttlrules.History{}.With(1000, 1, d).Settled() }
	on, none, off := store.Config{History: history(60)}, store.Config{History: history(ttlrules.NoDefault)},
		store.Config{}
	max15, min15 := on, on
	max15.MaxTTL, min15.MinTTL = 15, 15
	live := &Version{Header: store.Header{Ts: 40_000, Etag: 5, TTL: 20, NotAfter: 70_000}, Body: []byte(`{"ttl":20}`)}
	const far = 50_000 + ttlrules.MaxSeconds*1000
	for _, c := range []struct {
		name   string
		config store.Config
		live   *Version
		op     wire.Op
		body   string
		header string
		// status and expiresAt of the outcome; then ttl, kept, absolute and notAfter of the stored document
		want string
	}{
		{"the ttl ends first", none, nil, wire.Create, `{"ttl":20}`, "not-after 70001", "201 70000: 20 0 0 70001"},
		{"the limit comes first", on, nil, wire.Create, `{"ttl":20}`, "not-after 69999", "201 69999: 20 0 0 69999"},
		{"of an upsert", on, live, wire.Upsert, `{"ttl":20}`, "not-after 60000", "200 60000: 20 0 0 60000"},
		{"of a replace", on, live, wire.Replace, `{"ttl":20}`, "not-after 60000", "200 60000: 20 0 0 60000"},
		{"with a kept clock", on, live, wire.Upsert, `{"ttl":25}`, "not-after 80000 keep",
			"200 65000: 25 40000 0 80000"},
		{"after a kept clock", on, live, wire.Upsert, `{"ttl":25}`, "not-after 64999 keep",
			"200 64999: 25 40000 0 64999"},
		{"a touch keeps it", on, live, wire.Touch, ``, "", "200 70000: 20 0 0 70000"},
		{"a patch keeps it", on, live, wire.Patch, `{"a":1}`, "", "200 70000: 20 0 0 70000"},
		{"so does another ttl", on, live, wire.Patch, `{"ttl":21}`, "", "200 70000: 21 0 0 70000"},
		{"a shorter ttl", on, live, wire.Patch, `{"ttl":19}`, "", "200 69000: 19 0 0 70000"},
		{"no ttl", on, live, wire.Patch, `{"ttl":null}`, "", "200 70000: 0 0 0 70000"},
		{"never", on, live, wire.Patch, `{"ttl":-1}`, "", "200 70000: -1 0 0 70000"},
		{"with the kept clock", on, live, wire.Patch, `{"ttl":25}`, "keep", "200 65000: 25 40000 0 70000"},
		{"an upsert begins without", on, live, wire.Upsert, `{"ttl":25}`, "", "200 75000: 25 0 0 0"},
		{"so does a replace", on, live, wire.Replace, `{"ttl":25}`, "keep", "200 65000: 25 40000 0 0"},
		{"no deadline takes its place", on, live, wire.Touch, ``, "expires-at 90000", "400"},
		{"nor in a patch, or while TTL is off", off, live, wire.Patch, `{}`, "expires-at 60000", "400"},
		{"but in an upsert", on, live, wire.Upsert, `{}`, "expires-at 90000", "200 90000: 0 0 90000 0"},
		{"the next millisecond", on, nil, wire.Create, `{"ttl":20}`, "not-after 50001", "201 50001: 20 0 0 50001"},
		{"the stamp itself", on, nil, wire.Create, `{"ttl":20}`, "not-after 50000", "400"},
		{"as far as possible", on, nil, wire.Create, `{"ttl":20}`, fmt.Sprint("not-after ", int64(far)),
			fmt.Sprint("201 70000: 20 0 0 ", int64(far))},
		{"too far", on, nil, wire.Create, `{"ttl":20}`, fmt.Sprint("not-after ", int64(far+1)), "400"},
		{"off: kept, not interpreted", off, nil, wire.Create, `{"ttl":20}`, "not-after 60000",
			"201 never: 20 0 0 60000"},
		{"off: out of range is absent", off, nil, wire.Create, `{"ttl":20}`, "not-after 50000", "201 never: 20 0 0 0"},
		{"off: a touch keeps it", off, live, wire.Touch, ``, "", "200 never: 20 0 0 70000"},
		{"off: a bad ttl", off, live, wire.Patch, `{"ttl":"x"}`, "", "200 never: 0 0 0 70000"},
		{"maxTtl is for the ttl", max15, nil, wire.Create, `{"ttl":16}`, "not-after 51000", "400"},
		{"and not for the limit", max15, nil, wire.Create, `{"ttl":15}`, "not-after 99000", "201 65000: 15 0 0 99000"},
		{"nor is minTtl", min15, nil, wire.Create, `{"ttl":15}`, "not-after 51000", "201 51000: 15 0 0 51000"},
		{"a limit that is the deadline", max15, live, wire.Patch, `{"ttl":null}`, "", "400"},
		{"within maxTtl", on, live, wire.Patch, `{"ttl":null}`, "", "200 70000: 0 0 0 70000"},
		{"is left as it is", max15, live, wire.Touch, ``, "", "200 70000: 20 0 0 70000"},
	} {
		header := nats.Header{wire.HeaderReplyTo: {"_INBOX.x"}}
		for name, text := range map[string]string{wire.HeaderNotAfter: "not-after ",
			wire.HeaderExpiresAt: "expires-at "} {
			if _, value, ok := strings.Cut(c.header, text); ok {
				var ms int64
				_, _ = fmt.Sscan(value, &ms)
				header[name] = []string{instant(ms)}
			}
		}
		if strings.Contains(c.header, "keep") {
			header[wire.HeaderClock] = []string{wire.ClockKeep}
		}
		m := decoder.Decode(wire.DefaultPrefix.Write(c.op, "c", "x"), header, []byte(c.body), Position{Seq: 9,
			Time: 50_000})
		o, d := decideOne(t, c.config, c.live, m)
		got := fmt.Sprint(o.Status)
		if s := d.docs[Key{Collection: "c", ID: "x"}]; o.Status < 400 {
			at := "never"
			if o.ExpiresAt != nil {
				at = fmt.Sprint(int64(*o.ExpiresAt))
			}
			h := s.Now.Header
			got = fmt.Sprintf("%d %s: %d %d %d %d", o.Status, at, h.TTL, h.Kept, h.Absolute, h.NotAfter)
		}
		if got != c.want {
			t.Errorf("%s: %s (%s), want %s", c.name, got, o.Error, c.want)
		}
	}
}
