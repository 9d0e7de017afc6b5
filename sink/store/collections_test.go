package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
)

// TestManyCollections: a step and a read may touch, and a removal may find, more collections than
// Lua can pass to one call: 8,000 on Redis, 5,113 on miniredis.
//
// Goes red if a script unpacks a list that no caller bounds.
func TestManyCollections(t *testing.T) {
	const n = 9000
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		p := r.Shards[0]
		h := store.Header{Ts: far, Etag: 1, TTL: 60}
		changes, wants := make([]store.CollectionChanges, n), make([]store.Want, n)
		for i := range changes {
			name := fmt.Sprint("c", i)
			changes[i] = store.CollectionChanges{Collection: name,
				Changes: []store.Change{{ID: "a", New: &h, Body: []byte("{}")}}}
			wants[i] = store.Want{Collection: name, Headers: []string{"a"}}
		}
		r.Commit(0, nil, changes...)
		found, err := p.ReadDocuments(ctx, r.At[0].Version, wants)
		if err != nil {
			t.Fatal(err)
		}
		for i, docs := range found {
			if docs[0] == nil || docs[0].Header != h {
				t.Fatalf("collection %d has %v", i, docs)
			}
		}
		next := store.State{Version: "cleared", Log: "log"}
		if err := p.Take(ctx, store.State{Version: r.At[0].Version}, "clearing", store.Clearing); err != nil {
			t.Fatal(err)
		}
		if err := p.Clear(ctx, "clearing", next, 0); err != nil {
			t.Fatal(err)
		}
		if keys, err := p.Leftovers(ctx); err != nil || len(keys) != 1 {
			t.Errorf("after the removal there are %d keys (%v)", len(keys), err)
		}
	})
}

// TestScansHaveNoDeadline: a search for the keys of a shard passes by those of all programs that use
// the Redis, however many there are. So no deadline of a takeover ends it; the end of the process does.
//
// Goes red if the time that the whole scan takes is limited.
func TestScansHaveNoDeadline(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		p := r.Shards[0]
		r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
		late, cancel := context.WithDeadline(ctx, time.Unix(1, 0))
		defer cancel()
		if keys, err := p.Leftovers(late); err != nil || len(keys) != 3 {
			t.Errorf("leftovers: %v, %v", keys, err)
		}
		if err := p.Clear(late, r.At[0].Version, store.State{Version: "cleared", Log: "log"}, 0); err != nil {
			t.Errorf("clear: %v", err)
		}
		ended, end := context.WithCancel(ctx)
		end()
		if _, err := p.Leftovers(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("leftovers, after the process has ended: %v", err)
		}
	})
}
