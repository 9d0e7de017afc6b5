package processor

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestG2_TheClockThatIsAskedFor: what each header makes of the clock of a document, as its
// outcome, the reads and the events have it; then all agrees with the oracle, also after a rebuild
// from the log.
func TestG2_TheClockThatIsAskedFor(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"defaultTtl":3600,"minTtl":1,"maxTtl":7200}`)
		at := func(id string, op wire.Op) string { return prefix.Write(op, "c", id) }
		after := func(o wire.Outcome, ms int) wire.Time { return o.Ts + wire.Time(ms) }
		expires := func(what string, o wire.Outcome, want wire.Time) {
			t.Helper()
			if o.ExpiresAt == nil || *o.ExpiresAt != want {
				t.Errorf("%s expires at %v, want %s", what, o.ExpiresAt, want)
			}
		}
		far := wire.Time(time.Now().Add(time.Hour).UnixMilli())
		// A kept clock counts from the first write, whatever comes between.
		first := r.put("c", "kept", `{}`)
		for _, op := range []wire.Op{wire.Upsert, wire.Replace, wire.Patch} {
			body := fmt.Sprintf(`{"by":%q}`, op)
			expires(string(op), r.must(200, at("kept", op), body, wire.HeaderClock, "keep"), after(first, 3600_000))
		}
		expires("with a ttl", r.must(200, at("kept", wire.Patch), `{"ttl":600}`, wire.HeaderClock, "keep"),
			after(first, 600_000))
		o := r.must(200, at("kept", wire.Touch), ``)
		expires("a touch", o, after(o, 600_000))
		// An absolute deadline stays until something takes its place.
		deadline := []string{wire.HeaderExpiresAt, far.String()}
		r.must(201, at("at", wire.Create), `{"n":1}`, deadline...)
		expires("a touch", r.must(200, at("at", wire.Touch), ``), far)
		expires("a patch", r.must(200, at("at", wire.Patch), `{"n":2}`), far)
		if d, err := r.reader.Get(t.Context(), "c", "at"); err != nil || d.ExpiresAt == nil || *d.ExpiresAt != far {
			t.Errorf("a read: %+v, %v", d, err)
		}
		o = r.must(200, at("at", wire.Patch), `{"ttl":null}`)
		expires("a patch of ttl", o, after(o, 3600_000))
		for status, ms := range map[int]int{201: 7000_000, 400: 7300_000} {
			r.must(status, at(fmt.Sprint(ms), wire.Upsert), `{}`, wire.HeaderExpiresAt,
				wire.Time(time.Now().UnixMilli()+int64(ms)).String())
		}
		r.must(400, at("at", wire.Upsert), `{}`, wire.HeaderExpiresAt, first.Ts.String())
		r.must(400, at("at", wire.Delete), ``, deadline...)
		r.must(400, prefix.Config("c"), `{}`, deadline...)
		// An event has no ttl if a deadline counted, and has the write's own if the clock had run out.
		r.config("d", `{"defaultTtl":-1}`)
		first = r.put("d", "out", `{}`)
		soon := r.must(201, prefix.Write(wire.Create, "d", "soon"), `{}`, wire.HeaderExpiresAt, after(first, 1500).String())
		eventually(t, "a second passes", func() bool { return time.Now().UnixMilli() > int64(first.Ts)+1000 })
		out := r.must(200, prefix.Write(wire.Patch, "d", "out"), `{"ttl":1}`, wire.HeaderClock, "keep")
		expires("one that has run out", out, out.Ts)
		for _, e := range r.waitEvents("d", 2) {
			want := map[string]wire.Event{
				"out":  {TTL: 1, ExpiredAt: out.Ts, Etag: out.Etag},
				"soon": {ExpiredAt: *soon.ExpiresAt, Etag: soon.Etag},
			}[e.ID]
			if e.TTL != want.TTL || e.ExpiredAt != want.ExpiredAt || e.Etag != want.Etag {
				t.Errorf("event %s, want %+v", e.stored.data, want)
			}
		}
		r.caughtUp(p)
		r.agrees()
		p.stop(t)
		r.redis.FlushAll(t.Context())
		r.caughtUp(r.run())
		r.agrees()
	})
}

// TestG5_AnOldDefaultDoesNotExpireAKeptClock: a default of a second is no more when a document that
// is older than that begins to inherit. It fails if its entry in the index comes under the cut of
// the old default, which is not settled yet because other documents are due.
func TestG5_AnOldDefaultDoesNotExpireAKeptClock(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", `{"defaultTtl":-1}`)
		first := r.put("c", "x", `{"ttl":-1}`)
		last := first
		for i := range 20 {
			last = r.put("c", fmt.Sprint("due", i), `{}`)
		}
		eventually(t, "a second passes", func() bool { return time.Now().UnixMilli() > int64(last.Ts)+1000 })
		for range 5 { // so that all come before the history is settled
			r.sendAsync(prefix.Config("c"), `{"defaultTtl":1}`)
			r.sendAsync(prefix.Config("c"), `{"defaultTtl":3600}`)
		}
		o := r.must(200, prefix.Write(wire.Patch, "c", "x"), `{"ttl":null}`, wire.HeaderClock, "keep")
		if o.ExpiresAt == nil || *o.ExpiresAt != first.Ts+3600_000 {
			t.Errorf("outcome %+v", o)
		}
		if r.body("c", "x") != `{}` {
			t.Error("the document has expired")
		}
		r.waitEvents("c", 20)
		r.caughtUp(p)
		r.agrees()
	})
}
