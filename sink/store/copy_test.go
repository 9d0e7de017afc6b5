package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
)

// filled is a shard with n documents of a size in a collection.
func filled(t *testing.T, s redistest.Server, collection string, n, size int) *store.Shard {
	t.Helper()
	p := store.New(s.Client, "p", 0, 1)
	if err := p.Take(ctx, store.State{Log: "log"}, "v0", 0); err != nil {
		t.Fatal(err)
	}
	c := store.CollectionChanges{Collection: collection}
	for i := range n {
		c.Changes = append(c.Changes, store.Change{ID: fmt.Sprint(i), New: &store.Header{Ts: 1, Etag: 1},
			Body: []byte(strings.Repeat("x", size))})
	}
	if err := p.Commit(ctx, store.Progress{Version: "v0", Next: "v1"}, nil, []store.CollectionChanges{c}); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestCopyIsBounded: a copy stops after so many documents, or so many bytes, on a server that reads
// collections in parts. It fails if large documents are read many at a time.
func TestCopyIsBounded(t *testing.T) {
	const most = 64 << 10
	for _, size := range []int{10, 1000, 20_000, 200_000} {
		s := redistest.Start(t)
		p := filled(t, s, "c", 300, size)
		seen, place, collections := map[string]bool{}, store.CopyPlace{}, []string{"c", "none"}
		for len(collections) > 0 {
			c, err := p.Copy(ctx, "v1", collections, place, 64, most)
			if err != nil {
				t.Fatal(err)
			}
			bytes := 0
			for _, d := range c.Documents {
				seen[d.ID] = true
				bytes += len(d.Value)
			}
			// HSCAN may return some more than it is asked for: a small hash as a whole, else the documents whose hashes are
			// alike. Valkey keeps seven of these in a bucket, and may have several buckets for them: 14 were seen.
			if bytes > most+24*size || size > 64 && len(c.Documents) > 2*64 {
				t.Errorf("of documents of %d bytes, one copy has %d, %d bytes", size, len(c.Documents), bytes)
			}
			collections, place = collections[c.Done:], c.Next
		}
		if len(seen) != 300 {
			t.Errorf("of 300 documents of %d bytes, %d were copied", size, len(seen))
		}
	}
}

// TestCopyBeginsAgainInAnotherProcess: a cursor means nothing to another process of Redis. It fails
// if a copy goes on there.
func TestCopyBeginsAgainInAnotherProcess(t *testing.T) {
	s := redistest.Start(t)
	p := filled(t, s, "c", 300, 1000)
	first, err := p.Copy(ctx, "v1", []string{"c"}, store.CopyPlace{}, 64, 1<<20)
	if err != nil || first.Done > 0 || first.Next.Server == "" {
		t.Fatalf("the first copy: %+v, %v", first, err)
	}
	first.Next.Server = "another"
	if c, err := p.Copy(ctx, "v1", []string{"c"}, first.Next, 64, 1<<20); err != nil || len(c.Documents) > 0 ||
		c.Done > 0 || c.Next != (store.CopyPlace{}) {
		t.Errorf("in another process: %+v, %v", c, err)
	}
}

// TestG7_CopyOfALossIsRefused: a copy reads nothing from a collection that has lost a document, and
// nothing at another version. It fails if a snapshot can lack what Redis has lost.
func TestG7_CopyOfALossIsRefused(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		p := filled(t, s, "c", 300, 100)
		if _, err := p.Copy(ctx, "v0", []string{"c"}, store.CopyPlace{}, 64, 1<<20); !errors.Is(err, store.ErrFenced) {
			t.Errorf("at another version: %v", err)
		}
		keys := s.Client.Keys(ctx, "*docs:c").Val()
		s.Client.HDel(ctx, keys[0], "7")
		if _, err := p.Copy(ctx, "v1", []string{"none", "c"}, store.CopyPlace{}, 64, 1<<20); !errors.Is(err,
			store.ErrDamaged) {
			t.Errorf("after a loss: %v", err)
		}
		s.Client.Del(ctx, keys[0])
		s.Client.Set(ctx, keys[0], "x", 0)
		if _, err := p.Copy(ctx, "v1", []string{"c"}, store.CopyPlace{}, 64, 1<<20); !errors.Is(err, store.ErrForeign) {
			t.Errorf("of a key of another type: %v", err)
		}
	})
}

// TestFillIsFenced: a fill and a count change nothing at another version.
func TestFillIsFenced(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		p := filled(t, s, "c", 3, 10)
		if err := p.Fill(ctx, "v0", "v1", []store.CollectionFill{{Collection: "c", Drop: true}}); !errors.Is(err,
			store.ErrFenced) {
			t.Errorf("a fill: %v", err)
		}
		if _, _, err := p.Count(ctx, "v0", []string{"c"}); !errors.Is(err, store.ErrFenced) {
			t.Errorf("a count: %v", err)
		}
		if err := p.Verify(ctx, "v1", []string{"c"}); err != nil {
			t.Error(err)
		}
	})
}
