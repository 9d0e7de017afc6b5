package processor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/wire"
)

// warnings are all warnings that are stored of a collection, each as "id before expiresAt"; those that
// came early, or behind the expiry event of their version, fail the test.
func (r *rig) warnings(collection string) (all []string) {
	r.t.Helper()
	expired := make(map[string]bool)
	for _, m := range r.outputs() {
		var e wire.Expiring
		if err := json.Unmarshal(m.data, &e); err != nil || !strings.HasPrefix(m.subject, "lapse.exp") ||
			e.Collection != collection {
			continue
		}
		version := e.ID + " " + e.Etag.String()
		if strings.HasPrefix(m.subject, "lapse.expired.") {
			expired[version] = true
			continue
		}
		if m.at.UnixMilli() < int64(e.At()) {
			r.t.Errorf("%s was stored at %s: early", m.data, m.at)
		}
		if expired[version] {
			r.t.Errorf("%s came behind the event", m.data)
		}
		all = append(all, fmt.Sprintf("%s %02d %s", e.ID, e.Before, e.ExpiresAt))
	}
	slices.Sort(all)
	return all
}

// warning is an entry of warnings.
func warning(id string, before int, deadline wire.Time) string {
	return fmt.Sprintf("%s %02d %s", id, before, deadline)
}

// scaled formats numbers of seconds that are slower times as long.
func scaled(format string, seconds ...any) string {
	for i := range seconds {
		seconds[i] = seconds[i].(int) * slower
	}
	return fmt.Sprintf(format, seconds...)
}

// TestG3_Warnings: each version that lives until then is warned of, once for each of the seconds; one that
// is overwritten, touched or deleted before is not. Then all agrees with the oracle; a wiped Redis and a
// restart warn of nothing again.
func TestG3_Warnings(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		r.config("c", scaled(`{"defaultTtl":%d,"warnBefore":[%d,%d]}`, 3, 1, 2))
		r.config("none", scaled(`{"defaultTtl":%d}`, 3))
		lives := r.put("c", "lives", `{"n":1}`)
		own := r.put("c", "own", scaled(`{"ttl":%d}`, 4))
		r.put("c", "short", scaled(`{"ttl":%d}`, 1)) // its deadline is nearer than the warning
		at := lives.Ts + 3500*slower
		r.must(201, prefix.Write(wire.Upsert, "c", "at"), `{}`, wire.HeaderExpiresAt, at.String())
		r.put("c", "never", `{"ttl":-1}`)
		r.put("none", "unwarned", `{}`)
		r.put("c", "deleted", `{}`)
		first := r.put("c", "touched", `{}`)
		kept := r.put("c", "kept", `{}`)
		r.must(204, prefix.Write(wire.Delete, "c", "deleted"), ``)
		eventually(t, "some time passes", func() bool { return time.Now().UnixMilli() > int64(first.Ts)+300 })
		touched := r.must(200, prefix.Write(wire.Touch, "c", "touched"), ``)
		r.must(200, prefix.Write(wire.Patch, "c", "kept"), `{"n":2}`, wire.HeaderClock, "keep")
		want := []string{
			warning("at", slower, at), warning("at", 2*slower, at),
			warning("kept", slower, *kept.ExpiresAt), warning("kept", 2*slower, *kept.ExpiresAt),
			warning("lives", slower, *lives.ExpiresAt), warning("lives", 2*slower, *lives.ExpiresAt),
			warning("own", slower, *own.ExpiresAt), warning("own", 2*slower, *own.ExpiresAt),
			warning("touched", slower, *touched.ExpiresAt), warning("touched", 2*slower, *touched.ExpiresAt),
		}
		r.expires(p, "c", own)
		if diff := cmp.Diff(want, r.warnings("c")); diff != "" {
			t.Errorf("warnings:\n%s", diff)
		}
		if got := r.warnings("none"); len(got) > 0 {
			t.Errorf("warnings that nobody asked for: %v", got)
		}
		r.agrees()
		p.stop(t)
		r.redis.FlushAll(t.Context())
		r.forgetPlaces()
		r.caughtUp(r.run())
		if diff := cmp.Diff(want, r.warnings("c")); diff != "" {
			t.Errorf("warnings after a rebuild:\n%s", diff)
		}
	})
}

// TestG3_WarningsOfAChange: a change of the default or of warnBefore warns of nothing whose instant has
// passed, and of nothing a second time; a drop and a default that is turned off end what is not due yet.
func TestG3_WarningsOfAChange(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.run()
		put := make(map[string]wire.Outcome)
		config := func(c, format string, seconds ...any) { r.config(c, scaled(format, seconds...)) }
		for _, c := range []string{"more", "shorter", "off", "dropped", "late"} {
			config(c, `{"defaultTtl":%d,"warnBefore":[%d]}`, 6, 5)
			put[c] = r.put(c, "x", `{}`)
		}
		last := put["late"]
		eventually(t, "they are warned of", func() bool {
			return time.Now().UnixMilli() > int64(last.Ts)+1000*slower && len(r.warnings("late")) == 1
		})
		config("more", `{"defaultTtl":%d,"warnBefore":[%d,%d,%d]}`, 6, 5, 2, 1) // 5 counts since before
		config("shorter", `{"defaultTtl":%d,"warnBefore":[%d,%d,%d]}`, 5, 5, 4, 1)
		config("off", `{"warnBefore":[%d,%d]}`, 5, 1)
		r.must(204, prefix.Drop("dropped"), ``)
		config("late", `{"defaultTtl":%d,"warnBefore":[%d,%d]}`, 6, 6, 5)
		r.put("dropped", "x", `{"ttl":1}`)
		r.expires(p, "more", put["more"])
		r.expires(p, "late", last)
		of := func(c string, before int) string { return warning("x", before*slower, *put[c].ExpiresAt) }
		want := map[string][]string{
			"more":    {of("more", 1), of("more", 2), of("more", 5)},
			"shorter": {warning("x", slower, put["shorter"].Ts+5000*slower), of("shorter", 5)},
			"off":     {of("off", 5)},
			"dropped": {of("dropped", 5)},
			"late":    {of("late", 5)},
		}
		for c, all := range want {
			if diff := cmp.Diff(all, r.warnings(c)); diff != "" {
				t.Errorf("%s:\n%s", c, diff)
			}
		}
		r.agrees()
	})
}

// TestG3_WarningsWhoseInstantIsOneForAll: more documents than one look takes are to be warned of at the
// same instant. Each is, once, although the owner dies between chunks, after steps that have committed a
// later log time, or comes so late that they have expired.
//
// It fails if a takeover goes on from the log time that is committed, and not from the checkpoint.
func TestG3_WarningsWhoseInstantIsOneForAll(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprintf("late %v", late), func(t *testing.T) {
			onBoth(t, func(t *testing.T, r *rig) {
				p := r.run()
				r.config("c", `{"defaultTtl":3600,"warnBefore":[5]}`)
				const n = 3000
				at := wire.Time(time.Now().UnixMilli() + 6000 + 3000*slower) // all are written 5 s before
				for i := range n {
					r.sendMsgAsync(&nats.Msg{Subject: prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), Data: []byte(`{}`),
						Header: nats.Header{wire.HeaderExpiresAt: {at.String()}}})
				}
				r.flush()
				r.caughtUp(p)
				p.stop(t)
				from, point, nth := int64(at)-5000, crash.AfterWarn, int32(3)
				if late {
					from, point, nth = int64(at), crash.AfterPublish, 2 // they go with the events, most of them in a second step
				}
				eventually(t, "they are due to be warned of", func() bool { return time.Now().UnixMilli() > from })
				for range 2 {
					for i := range 20 { // a step of each shard commits log time, which is past the warnings
						r.sendAsync(prefix.Write(wire.Upsert, "others", fmt.Sprint(i)), `{}`)
					}
					r.flush()
					select {
					case <-r.start(dies(point, nth)).done:
					case <-time.After(limit):
						t.Fatal("no owner has died between chunks")
					}
				}
				p = r.run()
				eventually(t, "they have expired", func() bool { return time.Now().UnixMilli() > int64(at) })
				r.reaped("c")
				r.caughtUp(p)
				got := r.warnings("c")
				if unique := slices.Compact(slices.Clone(got)); len(got) != n || len(unique) != n {
					t.Errorf("%d warnings of %d documents, want one of each of %d", len(got), len(unique), n)
				}
				if events := len(r.events("c")); events != n {
					t.Errorf("%d events, want %d", events, n)
				}
			})
		})
	}
}

// dies is a process that dies when it reaches a point for the nth time.
func dies(at crash.Point, nth int32) func(crash.Point) error {
	var reached atomic.Int32
	return func(here crash.Point) error {
		if here == at && reached.Add(1) >= nth || reached.Load() >= nth {
			return errDead
		}
		return nil
	}
}
