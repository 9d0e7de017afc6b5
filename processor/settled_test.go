package processor

import (
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestG3_SettledIsCommitted: what is published and not committed is behind the settled place, and so a watch
// that reads the documents, which have no trace of it yet, gets it. Once it is committed, the place moves on.
//
// It fails if the place is the end of the stream, or that of a shard that is further on than another; or if the place
// in the log is behind a message that is not committed.
func TestG3_SettledIsCommitted(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var log wire.SettledShard
		settled := func() uint64 {
			t.Helper()
			reply, err := Settled(t.Context(), r.nc, prefix, 1)
			if err != nil {
				t.Fatal(err)
			}
			log = reply.Shards[0]
			return reply.Settled
		}
		p := r.run()
		r.config("c", `{"changes":true}`)
		r.put("c", "x", `{}`)
		published := func() (seq uint64) {
			for _, m := range r.outputs() {
				seq = m.seq
			}
			return seq
		}
		eventually(t, "the first change is settled", func() bool { return settled() >= published() })
		p.stop(t)
		before := published()
		release := r.startHeld()
		second := r.send(prefix.Write(wire.Upsert, "c", "x"), `{}`)
		eventually(t, "the second change is published", func() bool { return published() > before })
		if got := settled(); got >= published() {
			t.Errorf("%d is settled, and what is published at %d is not committed", got, published())
		}
		if log.Seq >= second {
			t.Errorf("%+v is settled, and message %d is not committed", log, second)
		}
		close(release)
		eventually(t, "the second change is settled",
			func() bool { return settled() >= published() && log.Seq >= second && log.Watermark > 0 })
	})
}
