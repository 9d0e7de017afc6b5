package processor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// indexesAgree returns an error unless nothing is being made, and each index of collection c, by its slot, has in all
// shards exactly the entries of the documents that are stored. No other index has any.
func (r *rig) indexesAgree(pointers ...string) error {
	ctx := r.t.Context()
	found := 0
	for _, state := range r.redis.Keys(ctx, string(prefix)+":*:state").Val() {
		for field, value := range r.redis.HGetAll(ctx, state).Val() {
			if strings.HasPrefix(field, "making:") {
				return fmt.Errorf("%s of %s is %s", field, state, value)
			}
		}
		base := strings.TrimSuffix(state, "state")
		want := make([][]string, len(pointers))
		for id, value := range r.redis.HGetAll(ctx, base+"docs:c").Val() {
			found++
			_, body, err := store.ParseDocument(value)
			if err != nil {
				return err
			}
			values, err := entries.Of([]byte(body), pointers)
			if err != nil {
				return err
			}
			for slot, some := range values {
				for _, v := range some {
					want[slot] = append(want[slot], entries.Member(v, id))
				}
			}
		}
		for slot := range wire.MaxIndexes {
			got := r.redis.ZRange(ctx, fmt.Sprintf("%sby%d:c", base, slot), 0, -1).Val()
			var of []string
			if slot < len(pointers) {
				of = want[slot]
			}
			if slices.Sort(of); !slices.Equal(got, of) {
				return fmt.Errorf("slot %d of %s has %d entries, and the documents %d", slot, base, len(got), len(of))
			}
		}
	}
	if found == 0 {
		return errors.New("there are no documents")
	}
	return nil
}

// TestG7_IndexesAreMade: of one shard and of four, on both servers, property indexes are made of the documents that are
// there, follow every change and expiry, and are made again after Redis was emptied. While they are made, processes
// die.
//
// It fails if an index lacks an entry, or has one of a document that is gone.
func TestG7_IndexesAreMade(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		for _, shards := range []int{1, 4} {
			t.Run(fmt.Sprint(b.name, shards), func(t *testing.T) {
				t.Parallel()
				r := newRigOn(t, b, Options{Shards: 1})
				if shards > 1 {
					r = startMapped(t, b, shards)
				}
				for _, at := range []crash.Point{crash.AfterPass, crash.AfterMade} {
					r.indexesDie(at)
				}
			})
		}
	}
}

// indexesDie lets the process of shard 0 die at a point of making.
func (r *rig) indexesDie(at crash.Point) {
	t := r.t
	t.Helper()
	r.opts.Shard = 0
	all := []*process{r.start(once(at, 1, func() error { return errDead }))}
	for i := 1; i < r.opts.Shards; i++ {
		all = append(all, r.startShard(i))
	}
	for _, p := range all {
		p.ready(t)
	}
	r.config("c", `{"defaultTtl":-1}`)
	for i := range 40 {
		r.put("c", fmt.Sprint(i), fmt.Sprintf(`{"n":%d,"tags":["a",%d],"x":{"y":"%d"}}`, i%7, i, i))
	}
	r.send(prefix.Config("c"), `{"defaultTtl":-1,"indexes":["/n","/tags"]}`) // its outcome may go with the process
	<-all[0].done
	all[0] = r.startShard(0)
	all[0].ready(t)
	agree := func(what string, pointers ...string) {
		t.Helper()
		comes(t, what, func() error { return r.indexesAgree(pointers...) })
	}
	agree("after the death", "/n", "/tags")
	for i := range 10 {
		r.put("c", fmt.Sprint(i), `{"n":"other","ttl":1}`)
		r.must(204, prefix.Write(wire.Delete, "c", fmt.Sprint(i+20)), "")
	}
	r.must(200, prefix.Write(wire.Patch, "c", "15"), `{"tags":null,"n":null}`)
	comes(t, "ten documents expire", func() error {
		if n := r.stored(); n != 20 {
			return fmt.Errorf("%d documents are stored", n)
		}
		return nil
	})
	agree("after writes and expiries", "/n", "/tags")
	r.config("c", `{"defaultTtl":-1,"indexes":["/x/y","/tags"]}`)
	agree("after an index has taken the slot of another one", "/x/y", "/tags")
	if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	agree("after Redis was emptied", "/x/y", "/tags")
	r.must(204, prefix.Drop("c"), "")
	if keys := r.redis.Keys(t.Context(), "*:by*").Val(); len(keys) > 0 {
		t.Errorf("after the drop there are %q", keys)
	}
	for _, p := range all {
		p.stop(t)
	}
}
