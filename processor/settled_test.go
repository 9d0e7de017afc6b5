package processor

import (
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestG3_SettledIsCommitted: what is published and not committed is behind the settled place, and so a watch
// that reads the documents, which have no trace of it yet, gets it. Once it is committed, the place moves on.
//
// It fails if the place is the end of the stream, or that of a shard that is further on than another.
func TestG3_SettledIsCommitted(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		settled := func() uint64 {
			t.Helper()
			seq, err := Settled(t.Context(), r.nc, prefix, 1)
			if err != nil {
				t.Fatal(err)
			}
			return seq
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
		r.send(prefix.Write(wire.Upsert, "c", "x"), `{}`)
		eventually(t, "the second change is published", func() bool { return published() > before })
		if got := settled(); got >= published() {
			t.Errorf("%d is settled, and what is published at %d is not committed", got, published())
		}
		close(release)
		eventually(t, "the second change is settled", func() bool { return settled() >= published() })
	})
}
