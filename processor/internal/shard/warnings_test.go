package shard

import (
	"fmt"
	"testing"
)

// warned are the ids of the documents that the stream has warned of, in its order.
func (r *rig) warned() (ids []string) {
	r.t.Helper()
	info, err := r.streams.Events.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
		m, err := r.streams.Events.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		if m.Header.Get("ce-type") == "lapse.document.expiring.v1" {
			ids = append(ids, m.Header.Get("ce-subject"))
		}
	}
	return ids
}

// TestG3_WarningsOfOneInstant: more documents than one look finds are to be warned of at the same instant, and log time
// is that instant exactly. The looks after the first find the rest.
func TestG3_WarningsOfOneInstant(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.send(start, "lapse.config.c", `{"defaultTtl":60,"warnBefore":[10]}`)
	const n = ReapChunk + 2
	for i := range n {
		r.write(start, fmt.Sprint(i), `{}`)
	}
	r.idle()
	r.passTime(start + 49_999)
	r.idle()
	if got := r.warned(); len(got) > 0 {
		t.Fatalf("a millisecond too early it warns of %v", got)
	}
	r.passTime(start + 50_000)
	r.idle()
	seen := map[string]bool{}
	for _, id := range r.warned() {
		if seen[id] {
			t.Errorf("it warns of %s twice", id)
		}
		seen[id] = true
	}
	if len(seen) != n {
		t.Errorf("it warns of %d of %d documents", len(seen), n)
	}
}

// TestG3_WarningsAfterATakeover: another owner takes the shard over, as it is stored, or from a snapshot because Redis
// is empty. What is in it is warned of once: not again if that was published before, and at its time if it was not.
func TestG3_WarningsAfterATakeover(t *testing.T) {
	for _, empty := range []bool{false, true} {
		t.Run(fmt.Sprintf("redis is empty: %t", empty), func(t *testing.T) {
			r := newRig(t)
			r.idle()
			r.send(start, "lapse.config.c", `{"defaultTtl":60,"warnBefore":[10]}`)
			r.write(start, "warned", `{}`)
			r.write(start+5_000, "later", `{}`)
			r.passTime(start + 50_000)
			r.idle()
			r.snapshot()
			r.idle()
			r.checkpoint()
			if empty {
				r.truncate(r.progress.Offset)
				r.wipe()
			}
			r.restart()
			r.passed = nil
			r.idle()
			if loaded := r.calls("fill") > 0; loaded != empty {
				t.Fatalf("it was loaded from the snapshot: %t, by %q", loaded, r.passed)
			}
			r.passTime(start + 55_000)
			r.idle()
			same(t, "warnings", r.warned(), []string{"warned", "later"})
		})
	}
}
