package shard

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/processor/internal/crash"
	index "github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// passes lets the owner pass so many documents at once for property indexes.
func passes(t *testing.T, n int) {
	before := passedAtOnce
	passedAtOnce = n
	t.Cleanup(func() { passedAtOnce = before })
}

// indexesMade checks that nothing is being made, that each property index of c has exactly the entries of the
// documents, and that Redis has no other entries.
func (r *rig) indexesMade(t *testing.T) {
	t.Helper()
	state := r.state()
	if len(state.Making) > 0 || r.collections.IndexesMade() > 0 {
		t.Errorf("still being made are %v", state.Making)
	}
	found, err := store.New(r.redis.Client, prefix, 0, 1).Copy(t.Context(), r.progress.Version, []string{"c"},
		store.CopyPlace{}, 10_000, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	keys := r.redis.Client.Keys(t.Context(), "*:by*").Val()
	for _, x := range state.Configs["c"].Indexes {
		want := []string{}
		for _, doc := range found.Documents {
			_, body, err := store.ParseDocument(doc.Value)
			if err != nil {
				t.Fatal(err)
			}
			values, err := index.Of([]byte(body), []string{x.Pointer})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range values[0] {
				want = append(want, index.Member(v, doc.ID))
			}
		}
		at := slices.IndexFunc(keys, func(key string) bool {
			return strings.HasSuffix(key, fmt.Sprintf(":by%d:c",
				x.Slot))
		})
		got := []string{}
		if at >= 0 {
			got = r.redis.Client.ZRange(t.Context(), keys[at], 0, -1).Val()
			keys = slices.Delete(keys, at, at+1)
		}
		same(t, "entries of "+x.Pointer, got, want)
	}
	if len(keys) > 0 {
		t.Errorf("there are entries of no index: %q", keys)
	}
}

func indexed(pointers string) string { return `{"defaultTtl":-1,"indexes":[` + pointers + `]}` }

// tenDocuments writes documents of every kind of clock, with other values each time.
func tenDocuments(r *rig, k int) {
	for i := range 10 {
		ttl := []string{"", `,"ttl":-1`, `,"ttl":1000000`}[i%3]
		r.write(at(k), fmt.Sprint("d", i), fmt.Sprintf(`{"a":%d,"b":["x",%d,"x"],"c":{"d":"%d"}%s}`, k, i, k, ttl))
	}
}

var makingStages = map[string]stage{
	"indexes are made and removed, while documents change and expire": {
		send: func(r *rig, k int) {
			r.send(at(k), prefix.Config("c"), indexed(""))
			tenDocuments(r, k)
			r.write(at(k), "dies", `{"a":1,"c":{"d":"x"},"ttl":5}`)
			r.idleUnharmed()
			r.send(at(k), prefix.Config("c"), indexed(`"/a","/b"`))
			r.write(at(k), "d1", `{"a":"other","b":[]}`)
			r.send(at(k)+1, prefix.Write(wire.Touch, "c", "d2"), ``)
			r.send(at(k)+1, prefix.Write(wire.Delete, "c", "d3"), ``)
			r.send(at(k)+1, prefix.Write(wire.Patch, "c", "d4"), `{"b":7,"ttl":2000000}`)
			r.idleUnharmed()
			r.send(at(k)+2, prefix.Config("c"), indexed(`"/c/d","/b"`))
			r.passTime(at(k) + 6000)
		},
		ends: func(t *testing.T, r *rig, n int) {
			r.indexesMade(t)
			if got := r.expired(); len(got) != n {
				t.Errorf("%d events, want %d", len(got), n)
			}
		},
	},
	"a collection is dropped while its indexes are being made": {
		send: func(r *rig, k int) {
			r.send(at(k), prefix.Config("c"), indexed(""))
			tenDocuments(r, k)
			r.write(at(k), "dies", `{"a":1,"ttl":5}`)
			r.idleUnharmed()
			r.send(at(k), prefix.Config("c"), indexed(`"/a","/b"`))
			if k%2 == 0 {
				r.passTime(at(k) + 6000)
			}
			r.send(at(k)+6000, "lapse.drop.c", "")
			r.send(at(k)+6000, prefix.Config("c"), indexed(`"/a"`))
			r.write(at(k)+6000, "d1", `{"a":1}`)
		},
		ends: func(t *testing.T, r *rig, n int) {
			r.indexesMade(t)
			same(t, "documents", r.documents(), []string{"d1"})
			if got := r.expired(); len(got) != n {
				t.Errorf("%d events, want %d", len(got), n)
			}
		},
	},
	"Redis is emptied, and the shard with its indexes is built from the log": {
		begin: func(r *rig) {
			r.send(start, prefix.Config("c"), indexed(`"/a"`))
			tenDocuments(r, 0)
			r.send(at(0), prefix.Config("c"), indexed(`"/b"`))
			tenDocuments(r, 1)
			r.write(at(1), "dies", `{"b":1,"ttl":5}`) // its event is published before the checkpoint
			r.passTime(at(2))
			r.send(at(3), prefix.Config("other"), `{}`) // steps of their own: what is due is looked up between them
			r.send(at(4), prefix.Config("other"), `{}`)
		},
		send: func(r *rig, k int) {
			r.idleUnharmed()
			r.checkpoint()
			r.wipe()
		},
		ends: func(t *testing.T, r *rig, n int) {
			r.indexesMade(t)
			same(t, "events", r.expired(), []string{"dies"})
		},
	},
	"Redis is emptied, and the shard with its indexes is loaded from a snapshot": {
		begin: func(r *rig) {
			r.send(start, prefix.Config("c"), indexed(`"/a","/b"`))
			tenDocuments(r, 0)
			r.idle()
			r.snapshot()
			r.idle()
			r.checkpoint()
			r.truncate(r.progress.Offset + 1)
		},
		send: func(r *rig, k int) { r.wipe() },
		ends: func(t *testing.T, r *rig, n int) {
			r.indexesMade(t)
			if got := r.documents(); len(got) != 10 {
				t.Errorf("there are %d documents", len(got))
			}
		},
	},
}

// TestG1_MakingFailsAnywhere fails each call of Redis once, and each point that the owner passes, while property
// indexes are made and removed. In the end each has exactly the entries of the documents.
//
// It fails if a commit moves the place of a making without its entries, or if a load leaves nothing to be made.
func TestG1_MakingFailsAnywhere(t *testing.T) {
	passes(t, 3)
	for name, s := range makingStages {
		t.Run(name, s.run)
	}
}

// TestMakingGoesOnAfterATakeover: another owner goes on where the one before has come to, and does not begin anew. A
// collection without documents has nothing to be made.
func TestMakingGoesOnAfterATakeover(t *testing.T) {
	passes(t, 2)
	r := newRig(t)
	r.send(start, prefix.Config("empty"), indexed(`"/a"`))
	r.send(start, prefix.Config("c"), indexed(""))
	tenDocuments(r, 0)
	r.idle()
	if n := r.calls(string(crash.AfterPass)); n > 0 {
		t.Errorf("a collection without documents was passed %d times", n)
	}
	r.passed = nil
	r.send(at(1), prefix.Config("c"), indexed(`"/a"`))
	seen, most := 0, int64(0)
	r.at[crash.AfterMade] = func() {
		if seen++; seen == 2 {
			most = r.Status.Making.Load()
			r.failAt = len(r.passed)
		}
	}
	if err := r.try(); err == nil {
		t.Fatal("nothing has failed")
	}
	if m := r.state().Making["c"]; m.Made != 4 || most != 1 {
		t.Errorf("after the failure %d documents are passed, and %d indexes being made", m.Made, most)
	}
	before := len(r.passed)
	r.restart()
	r.idle()
	if n := r.calls(string(crash.AfterPass)); n != 5 {
		t.Errorf("10 documents were passed in %d times, want 5: %q", n, r.passed[before:])
	}
	r.indexesMade(t)
}

// TestG9_MakingWaitsForRoom: while Redis is full, property indexes wait, and the owner keeps the shard. It tells why,
// and goes on when there is room.
func TestG9_MakingWaitsForRoom(t *testing.T) {
	passes(t, 2)
	r := newRig(t)
	r.redis = redistest.Start(t)
	r.restart()
	r.send(start, prefix.Config("c"), indexed(""))
	tenDocuments(r, 0)
	r.idle()
	r.send(at(1), prefix.Config("c"), indexed(`"/a"`))
	limit := func(bytes string) {
		if err := r.redis.Client.ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Error(err)
		}
	}
	r.at[crash.AfterMade] = func() { limit("1") }
	r.idle()
	if m := r.state().Making["c"]; m.Made != 2 || !r.tenure.taken || !r.duties.full {
		t.Errorf("%d documents are passed; the shard is taken over: %t", m.Made, r.tenure.taken)
	}
	r.at[crash.AfterMade] = nil
	if !slices.Contains(r.logged, "there is a problem") {
		t.Errorf("it is not told: %q", r.logged)
	}
	r.send(at(2), prefix.Write(wire.Delete, "c", "d1"), ``)
	r.idle()
	limit("0")
	r.duties.made = time.Time{}
	r.idle()
	if r.indexesMade(t); !slices.Contains(r.logged, "a problem is over") {
		t.Errorf("its end is not told: %q", r.logged)
	}
}

// TestG7_LostEntriesAreDamage: if Redis has lost entries of an index, the owner notices, and builds the shard anew.
func TestG7_LostEntriesAreDamage(t *testing.T) {
	r := newRig(t)
	r.send(start, prefix.Config("c"), indexed(`"/a"`))
	tenDocuments(r, 0)
	r.idle()
	r.checkpoint()
	for _, key := range r.redis.Client.Keys(t.Context(), "*:by0:c").Val() {
		r.redis.Client.Del(t.Context(), key)
	}
	r.duties.heartbeat = time.Time{}
	err := r.try()
	if err == nil || !strings.Contains(err.Error(), "by0:c does not have the entries") {
		t.Fatalf("the loss is noticed as %v", err)
	}
	r.recover(err)
	r.idle()
	r.indexesMade(t)
}
