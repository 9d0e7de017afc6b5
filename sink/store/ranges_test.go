package store_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// cut is the same cut for both indexes of a collection.
func cut(collection string, at int64) store.Cut {
	return store.Cut{Collection: collection, Cuts: ttlrules.Cuts{Inherit: at, Own: at}}
}

const never = math.MaxInt64 // stands for store.NoScore

// TestG2_DueAroundTheCut: a document a millisecond above the cut is not due. One at the cut or
// below it is due, in both indexes.
//
// Goes red if ranges.lua takes the cut for exclusive.
func TestG2_DueAroundTheCut(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		r.Put("orders", "inherit", store.Header{Ts: far, Etag: 1}, "{}")
		r.Put("orders", "own", store.Header{Ts: far - 5000, Etag: 2, TTL: 5}, "{}")
		r.Put("orders", "never", store.Header{Ts: 1, Etag: 3, TTL: -1}, "{}")
		for off := int64(-1); off <= 1; off++ {
			for _, c := range []ttlrules.Cuts{
				{Inherit: far + off, Own: far + off}, {Inherit: far + off, Own: ttlrules.NoCut},
				{Inherit: ttlrules.NoCut, Own: far + off}, {Inherit: ttlrules.NoCut, Own: ttlrules.NoCut},
			} {
				found, err := r.Shards[0].Due(ctx, r.At[0].Version, []store.Cut{{Collection: "orders", Cuts: c}}, 10, 1<<20, true)
				if err != nil {
					t.Fatal(err)
				}
				want := store.Due{IDs: []string{}, Documents: []store.Stored{}, NextInherit: far, NextOwn: far}
				if off >= 0 && c.Inherit != ttlrules.NoCut {
					want.IDs, want.Documents = append(want.IDs, "inherit"), append(want.Documents, r.Docs["orders"]["inherit"])
					want.NextInherit = never
				}
				if off >= 0 && c.Own != ttlrules.NoCut {
					want.IDs, want.Documents = append(want.IDs, "own"), append(want.Documents, r.Docs["orders"]["own"])
					want.NextOwn = never
				}
				if diff := cmp.Diff([]store.Due{want}, found); diff != "" {
					t.Errorf("cuts %+v:\n%s", c, diff)
				}
			}
		}
	})
}

// TestDue: the limits of documents and bytes hold over all collections together. The result has
// the next score of each index, and the number of due documents that are left.
func TestDue(t *testing.T) {
	type want struct {
		ids          string // of all collections, with / between them
		inherit, own []int64
	}
	tests := []struct {
		name         string
		limit, bytes int
		at           int64
		want         want
	}{
		{"nothing is due", 10, 1 << 20, 99, want{"//", []int64{100, 100, never}, []int64{2100, 2100, never}}},
		{"some of it", 100, 1 << 20, 101, want{"i0 i1/i0 i1/", []int64{102, 102, never}, []int64{2100, 2100, never}}},
		{"all of it", 100, 1 << 20, math.MaxInt64, want{"i0 i1 i2 o0 o1 o2/i0 i1 i2 o0 o1 o2/", []int64{never, never, never},
			[]int64{never, never, never}}},
		{"one", 1, 1 << 20, math.MaxInt64, want{"i0//", []int64{101, 100, never}, []int64{2100, 2100, never}}},
		{"up to the end of an index", 3, 1 << 20, math.MaxInt64, want{"i0 i1 i2//", []int64{never, 100, never},
			[]int64{2100, 2100, never}}},
		{"into the second index", 4, 1 << 20, math.MaxInt64, want{"i0 i1 i2 o0//", []int64{never, 100, never},
			[]int64{2101, 2100, never}}},
		{"into the second collection", 7, 1 << 20, math.MaxInt64, want{"i0 i1 i2 o0 o1 o2/i0/", []int64{never, 101, never},
			[]int64{never, 2100, never}}},
		{"no bytes, but one document", 100, 1, math.MaxInt64, want{"i0//", []int64{101, 100, never},
			[]int64{2100, 2100, never}}},
		{"bytes for two", 100, 2 * 1017, math.MaxInt64, want{"i0 i1//", []int64{102, 100, never},
			[]int64{2100, 2100, never}}},
		{"bytes for two and a bit", 100, 2*1017 + 1, math.MaxInt64, want{"i0 i1 i2//", []int64{never, 100, never},
			[]int64{2100, 2100, never}}},
		{"bytes into the second index", 100, 4 * 1017, math.MaxInt64, want{"i0 i1 i2 o0//", []int64{never, 100, never},
			[]int64{2101, 2100, never}}},
		{"bytes for one collection", 100, 6 * 1017, math.MaxInt64, want{"i0 i1 i2 o0 o1 o2//", []int64{never, 100, never},
			[]int64{never, 2100, never}}},
		{"bytes into the second collection", 100, 7 * 1017, math.MaxInt64, want{"i0 i1 i2 o0 o1 o2/i0/",
			[]int64{never, 101, never}, []int64{never, 2100, never}}},
	}
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		for _, c := range []string{"a", "b"} {
			for i := range 3 {
				r.Put(c, fmt.Sprint("i", 2-i), store.Header{Ts: int64(102 - i), Etag: 1}, strings.Repeat("x", 1000))
				r.Put(c, fmt.Sprint("o", 2-i), store.Header{Ts: int64(102 - i), Etag: 1, TTL: 2}, strings.Repeat("x", 1000))
			}
		}
		for _, tt := range tests {
			found, err := r.Shards[0].Due(ctx, r.At[0].Version,
				[]store.Cut{cut("a", tt.at), cut("b", tt.at), cut("empty", tt.at)}, tt.limit, tt.bytes, true)
			if err != nil {
				t.Fatal(err)
			}
			var got want
			var ids []string
			for i, c := range []string{"a", "b", "empty"} {
				ids = append(ids, strings.Join(found[i].IDs, " "))
				got.inherit, got.own = append(got.inherit, found[i].NextInherit), append(got.own, found[i].NextOwn)
				due := int64(0)
				for _, d := range r.Docs[c] {
					if d.Header.Ts+1000*int64(d.Header.TTL) <= tt.at {
						due++
					}
				}
				if all := int64(len(found[i].IDs)) + found[i].Left; all != due {
					t.Errorf("%s: %s: %d are returned and left, want %d", tt.name, c, all, due)
				}
				for j, id := range found[i].IDs {
					if found[i].Documents[j] != r.Docs[c][id] {
						t.Errorf("%s: %s/%s is another document", tt.name, c, id)
					}
				}
			}
			got.ids = strings.Join(ids, "/")
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("%s:\n%s", tt.name, diff)
			}
		}
		// Without bodies their bytes do not count.
		found, err := r.Shards[0].Due(ctx, r.At[0].Version, []store.Cut{cut("a", math.MaxInt64)}, 100, 17*4, false)
		if err != nil || !slices.Equal(found[0].IDs, []string{"i0", "i1", "i2", "o0"}) || found[0].Documents[0].Body != "" {
			t.Errorf("headers of what is due: %+v, %v", found, err)
		}
	})
}

// TestDueReapsAll reaps some documents at a time until none is due: each comes once.
func TestDueReapsAll(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		for c := range 3 {
			var changes []store.Change
			for i := range 300 {
				h := store.Header{Ts: int64(i / 7), Etag: 1, TTL: ttlrules.TTL(i%3 - 1)}
				changes = append(changes, r.Change(fmt.Sprint("c", c), fmt.Sprint(i), &h, []byte(strings.Repeat("x", i))))
			}
			r.Write(fmt.Sprint("c", c), changes...)
		}
		cuts := []store.Cut{cut("c0", far), cut("c1", far), cut("c2", far)}
		for n := 0; ; n++ {
			found, err := r.Shards[0].Due(ctx, r.At[0].Version, cuts, 50, 4000, true)
			if err != nil {
				t.Fatal(err)
			}
			var changes []store.CollectionChanges
			for i, f := range found {
				c := store.CollectionChanges{Collection: cuts[i].Collection}
				for j, id := range f.IDs {
					if f.Documents[j] != r.Docs[c.Collection][id] {
						t.Fatalf("%s/%s is not what was stored, or comes twice", c.Collection, id)
					}
					c.Changes = append(c.Changes, store.Change{ID: id, Old: &f.Documents[j].Header})
				}
				if len(c.Changes) > 0 {
					changes = append(changes, c)
				}
			}
			if len(changes) == 0 {
				break
			}
			r.Commit(0, nil, changes...)
			if n > 900 {
				t.Fatal("it does not end")
			}
		}
		for name, docs := range r.Docs {
			if len(docs) != 100 {
				t.Errorf("collection %s has %d documents left, want the 100 that never expire", name, len(docs))
			}
		}
	})
}

// TestDueDamaged: a document that is only in the index is damage.
func TestDueDamaged(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, 1000)
		r.Put("orders", "a", store.Header{Ts: 1, Etag: 1}, "{}")
		p, version := r.Shards[0], r.At[0].Version
		for value, field := range map[string]string{"": "a", "short": "a"} {
			s.Client.HSet(ctx, r.Key(0, "docs:orders"), field, value)
			_, err := p.Due(ctx, version, []store.Cut{cut("orders", 1)}, 1, 1, true)
			wantErr(t, err, store.ErrDamaged, "due with the document "+value)
			_, err = p.ReadDocuments(ctx, version, []store.Want{{Collection: "orders", Headers: []string{"a"}}})
			wantErr(t, err, store.ErrDamaged, "read with the document "+value)
		}
		s.Client.HDel(ctx, r.Key(0, "docs:orders"), "a")
		_, err := p.Due(ctx, version, []store.Cut{cut("orders", 1)}, 1, 1, true)
		wantErr(t, err, store.ErrDamaged, "due without the document")
	})
}

// TestG2_ClockOfTheServer: Clock is what the server's clock shows or less, never more. Nothing
// is known before the first call of Due, and after a takeover.
//
// Goes red if Clock is this process's clock.
func TestG2_ClockOfTheServer(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, 1000)
		p := r.Shards[0]
		if now := p.Clock(); now != math.MinInt64 {
			t.Errorf("before anything was asked the clock shows %d", now)
		}
		for range 100 {
			if _, err := p.Due(ctx, r.At[0].Version, nil, 1, 1, true); err != nil {
				t.Fatal(err)
			}
			known := p.Clock()
			shown, err := s.Client.Time(ctx).Result()
			if err != nil {
				t.Fatal(err)
			}
			if late := shown.UnixMilli() - known; late < 0 || late > 5000 {
				t.Errorf("the clock shows %d, and is known to show %d", shown.UnixMilli(), known)
			}
		}
		if err := p.Take(ctx, store.State{Version: r.At[0].Version}, "taken", 0); err != nil {
			t.Fatal(err)
		}
		if now := p.Clock(); now != math.MinInt64 {
			t.Errorf("after a takeover the clock shows %d", now)
		}
	})
}

// TestBetween: slices of the indexes, in chunks of any size, have each document after the place and up
// to the score once, in order, however many share a score.
func TestBetween(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		for i := range 40 { // 10 share a score
			r.Put("orders", fmt.Sprintf("i%02d", i), store.Header{Ts: far + int64(i/10), Etag: uint64(i + 1)}, "{}")
			r.Put("orders", fmt.Sprintf("o%02d", i), store.Header{Ts: far + int64(i/10), Etag: uint64(i + 50), TTL: 5}, "{}")
		}
		r.Put("orders", "never", store.Header{Ts: far, Etag: 100, TTL: ttlrules.Never}, "{}")
		p := r.Shards[0]
		walk := func(slices []store.Slice, limit, bytes int) (all []string) {
			for {
				found, err := p.Between(ctx, r.At[0].Version, "orders", slices, limit, bytes)
				if err != nil {
					t.Fatal(err)
				}
				more := false
				for i, f := range found {
					all = append(all, f.IDs...)
					if n := len(f.IDs); n > 0 {
						if string(f.Documents[n-1].Body) != "{}" {
							t.Errorf("%s has body %q", f.IDs[n-1], f.Documents[n-1].Body)
						}
						score, _ := f.Documents[n-1].Header.Clock().Score()
						slices[i].After = store.Place{Score: score, ID: f.IDs[n-1]}
					}
					more = more || f.Next <= slices[i].UpTo
				}
				if !more {
					return all
				}
			}
		}
		want := func(prefix string, from, to int) (ids []string) {
			for i := from; i < to; i++ {
				ids = append(ids, fmt.Sprintf("%s%02d", prefix, i))
			}
			return ids
		}
		for _, limit := range []int{1, 7, 10, 1000} {
			both := func() []store.Slice {
				return []store.Slice{
					{Index: ttlrules.ByInherit, After: store.AfterAll(far), UpTo: far + 2},
					{Index: ttlrules.ByOwn, After: store.Place{Score: far + 5000, ID: "o04"}, UpTo: math.MaxInt64 >> 12},
				}
			}
			for _, bytes := range []int{1, 1 << 20} {
				all := strings.Join(walk(both(), limit, bytes), " ")
				if expected := strings.Join(append(want("i", 10, 30), want("o", 5, 40)...), " "); limit == 1000 && bytes > 1 &&
					all != expected {
					t.Errorf("%s\nwant %s", all, expected)
				} else if len(all) != len(expected) {
					t.Errorf("chunks of %d have %s", limit, all)
				}
			}
		}
		found, err := p.Between(ctx, r.At[0].Version, "orders", []store.Slice{
			{Index: ttlrules.ByInherit, After: store.AfterAll(far - 1), UpTo: far - 1},
			{Index: ttlrules.ByOwn, After: store.AfterAll(far + 5003), UpTo: far + 9000},
		}, 10, 1<<20)
		if err != nil || len(found[0].IDs)+len(found[1].IDs) > 0 || found[0].Next != far || found[1].Next != store.NoScore {
			t.Errorf("empty slices: %+v, %v", found, err)
		}
	})
}
