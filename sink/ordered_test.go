package sink_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// crowd writes documents of all kinds, many with the same score, and returns the ids of those that
// no test changes. Their ids begin with s.
func (r *rig) crowd(t *rapid.T, n int) (stay []string) {
	var changes []store.Change
	for i := range n {
		id := fmt.Sprintf("s%s%d", rapid.SampledFrom([]string{"", "a", "B", "é", "\x00", "<&>"}).Draw(t, "name"), i)
		h := store.Header{Ts: far - 1000*rapid.Int64Range(0, 8).Draw(t, "age"), Etag: uint64(i + 1),
			TTL: ttlrules.TTL(rapid.SampledFrom([]int{0, 0, -1, 2, 5, 9, 12}).Draw(t, "ttl"))}
		changes = append(changes, r.Change("orders", id, &h,
			[]byte(`{"x":"`+strings.Repeat("x", rapid.IntRange(0, 90).Draw(t, "size"))+`"}`)))
		stay = append(stay, id)
	}
	r.Write("orders", changes...)
	return stay
}

// others writes and removes documents that no list is asked about, so many that Redis resizes the
// hash. It does so after the first pages.
func (r *rig) others(t *rapid.T, page int) {
	if page > 3 {
		return
	}
	n := rapid.SampledFrom([]int{0, 1, 40, 400}).Draw(t, "others")
	var changes []store.Change
	if rapid.Bool().Draw(t, "go") {
		for id := range r.Docs["orders"] {
			if id[0] != 's' && len(changes) < n {
				changes = append(changes, r.Change("orders", id, nil, nil))
			}
		}
	} else {
		for i := range n {
			h := store.Header{Ts: far - int64(i), Etag: 1, TTL: ttlrules.TTL(i%3 - 1)}
			changes = append(changes, r.Change("orders", fmt.Sprintf("o%d-%d", i, len(r.Docs["orders"])), &h, []byte("{}")))
		}
	}
	r.Write("orders", changes...)
}

var defaults = []int{0, -1, 3, 6, 20}

func (r *rig) randomDefault(t *rapid.T) {
	r.WithDefault("orders", far, ttlrules.Default(rapid.SampledFrom(defaults).Draw(t, "default")))
}

// TestG2_ListOnce: a list has each live document exactly once that nobody changes, and no expired one,
// whatever comes and goes between its pages, however many have the same score, and whatever Redis
// does with its hash. So does a list with a prefix.
//
// It fails if List goes through the hash, or goes on behind the last score rather than the last member.
func TestG2_ListOnce(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		check(t, func(t *rapid.T) {
			r := newRig(t, s, rapid.IntRange(1, 3).Draw(t, "shards"), far)
			r.randomDefault(t)
			stay := r.crowd(t, rapid.SampledFrom([]int{0, 3, 40, 150}).Draw(t, "documents"))
			opts := sink.ListOptions{Limit: rapid.SampledFrom([]int{3, 20, 100}).Draw(t, "limit"),
				MaxBytes: rapid.SampledFrom([]int{0, 150, 500}).Draw(t, "bytes"),
				Prefix:   rapid.SampledFrom([]string{"", "s", "sB", "é", "s\x00"}).Draw(t, "prefix")}
			want := map[string]int{}
			live := r.Live("orders", far)
			for _, id := range stay {
				if _, ok := live[id]; ok && strings.HasPrefix(id, opts.Prefix) {
					want[id] = 1
				}
			}
			none := rapid.IntRange(-1, 9).Draw(t, "the page after which the indexing mode is none")
			got := map[string]int{}
			r.walk(t, opts, func(n int, page sink.Page) {
				for _, d := range page.Documents {
					if _, ok := r.Live("orders", far)[d.ID]; !ok || !strings.HasPrefix(d.ID, opts.Prefix) {
						t.Errorf("%q is listed, and is expired or has another prefix than %q", d.ID, opts.Prefix)
					}
					if d.ID[0] == 's' {
						got[d.ID]++
					}
				}
				if c := r.Configs["orders"]; n == none && c.History.Current() == ttlrules.Off {
					c.NoIndex = true
					r.Configure("orders", &c)
				}
				r.others(t, n)
			})
			for id := range want {
				if n := got[id]; n != 1 {
					t.Errorf("%q is listed %d times", id, n)
				}
			}
		})
	})
}

// walk reads all pages of a list, with visit after each.
func (r *rig) walk(t storetestT, opts sink.ListOptions, visit func(n int, page sink.Page)) {
	for n := 0; ; n++ {
		page, err := r.Reader.List(ctx, "orders", opts)
		if err != nil {
			t.Fatalf("page %d: %v", n, err)
		}
		if len(page.Documents) > opts.Limit {
			t.Errorf("page %d has %d documents, the limit is %d", n, len(page.Documents), opts.Limit)
		}
		visit(n, page)
		if opts.Continuation = page.Continuation; opts.Continuation == "" {
			return
		}
		if len(opts.Continuation) > 8<<10 {
			t.Errorf("page %d: the continuation has %d bytes", n, len(opts.Continuation))
		}
		if n > 10_000 {
			t.Fatalf("the list does not end")
		}
	}
}

type storetestT interface {
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// expiring are the documents of the model that will expire by an instant, by deadline and id.
func (r *rig) expiring(by int64) (ids []string) { return r.expiringIn("orders", far, by) }

// expiringIn is expiring in a collection, at an instant.
func (r *rig) expiringIn(collection string, now, by int64) (ids []string) {
	deadlines := map[string]int64{}
	for id, d := range r.Live(collection, now) {
		if at, ok := d.Header.Clock().Deadline(r.Configs[collection].History.Current()); ok && at <= by {
			deadlines[id] = at
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(deadlines[a], deadlines[b]),
			cmp.Compare(a, b))
	})
	return ids
}

// TestG2_ListByDeadline: a list by deadline has what will expire, by deadline and id, each exactly
// once, up to its limit, and nothing that is expired, whatever comes and goes between its pages.
//
// It fails if the list misses the last document of a page, goes on behind all that share a deadline, or
// ends with the first shard that ends.
func TestG2_ListByDeadline(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		check(t, func(t *rapid.T) {
			r := newRig(t, s, rapid.IntRange(1, 5).Draw(t, "shards"), far)
			for range rapid.IntRange(0, 2).Draw(t, "epochs") {
				r.randomDefault(t)
			}
			r.crowd(t, rapid.SampledFrom([]int{0, 3, 40, 150}).Draw(t, "documents"))
			opts := sink.ListOptions{Order: wire.ByDeadline, Limit: rapid.SampledFrom([]int{3, 20, 100, 1000}).Draw(t, "limit"),
				MaxBytes: rapid.SampledFrom([]int{0, 150, 500}).Draw(t, "bytes")}
			by := int64(1 << 60)
			switch ahead := rapid.Int64Range(0, 12_000).Draw(t, "ahead"); rapid.SampledFrom([]string{"", "until",
				"within"}).Draw(t, "limited") {
			case "until":
				by = far + ahead
				opts.Until = (*wire.Time)(&by)
			case "within":
				by = far + max(1, ahead)
				opts.Within = time.Duration(max(1, ahead)) * time.Millisecond
			}
			want := r.expiring(by)
			var got []string
			r.walk(t, opts, func(n int, page sink.Page) {
				for _, d := range page.Documents {
					if d.ID[0] == 's' {
						got = append(got, d.ID)
					}
					if stored, ok := r.Live("orders", far)[d.ID]; !ok || stored.Body != string(d.Body) || d.ExpiresAt == nil ||
						int64(*d.ExpiresAt) > by || int64(*d.ExpiresAt) <= far {
						t.Errorf("%q, which expires at %v, is listed up to %d", d.ID, d.ExpiresAt, by)
					}
				}
				r.others(t, n)
			})
			if !slices.Equal(got, want) {
				t.Errorf("listed are\n%q\nwant\n%q", got, want)
			}
		})
	})
}

// TestListByDeadlineReconfigured: the default changes between pages. Each document is still listed at
// most once, and each page is in order; each that expires by the last configuration, and was not
// listed before, is on a later page.
//
// It fails if the continuation keeps a deadline for the documents that inherit the default.
func TestListByDeadlineReconfigured(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		check(t, func(t *rapid.T) {
			r := newRig(t, s, rapid.IntRange(1, 3).Draw(t, "shards"), far)
			r.WithDefault("orders", 0, 20)
			r.crowd(t, 40)
			opts := sink.ListOptions{Order: wire.ByDeadline, Limit: 7}
			at := rapid.IntRange(0, 4).Draw(t, "changed after page")
			to := ttlrules.Default(rapid.SampledFrom([]int{-1, 10, 20, 40}).Draw(t, "to"))
			times := map[string]int{}
			r.walk(t, opts, func(n int, page sink.Page) {
				if !slices.IsSortedFunc(page.Documents, func(a, b sink.Document) int {
					return cmp.Or(cmp.Compare(*a.ExpiresAt, *b.ExpiresAt), cmp.Compare(a.ID, b.ID))
				}) {
					t.Errorf("page %d is not in order", n)
				}
				for _, d := range page.Documents {
					times[d.ID]++
				}
				if n == at {
					r.WithDefault("orders", far, to)
				}
			})
			for _, id := range r.expiring(1 << 60) {
				if times[id] != 1 {
					t.Errorf("%q is listed %d times", id, times[id])
				}
			}
			for id, n := range times {
				if n > 1 {
					t.Errorf("%q is listed %d times", id, n)
				}
			}
		})
	})
}
