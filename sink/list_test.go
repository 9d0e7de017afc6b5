package sink_test

import (
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestListEachOnce: if nothing changes, every document is in one page, and all pages but the last
// are full.
func TestListEachOnce(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, n := range []int{0, 1, 2, 99, 100, 101, 128, 129, 2500} {
			r := newRig(t, s, 3, far)
			r.PutMany("orders", n, 1)
			for _, limit := range []int{1, 7, 100, wire.MaxListLimit} {
				if n/limit > 130 {
					continue
				}
				times, pages := r.list("orders", sink.ListOptions{Limit: limit})
				for id, m := range times {
					if m != 1 {
						t.Errorf("%d documents, limit %d: %s is listed %d times", n, limit, id, m)
					}
				}
				if most := max(1, (n+limit-1)/limit) + 1; len(times) != n || pages > most {
					t.Errorf("%d documents, limit %d: %d are listed, on %d pages", n, limit, len(times), pages)
				}
			}
		}
	})
}

// TestListBytes: a page ends before it has too many bytes, but it has at least one document.
func TestListBytes(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		for i := range 40 {
			r.Put("orders", fmt.Sprintf("%02d", i), store.Header{Ts: 1, Etag: 1}, strings.Repeat("x", 98))
		}
		for most, pages := range map[int]int{0: 1, 1: 40, 99: 40, 100: 40, 199: 40, 200: 20, 1000: 4, 4000: 1, 1 << 20: 1} {
			times, got := r.list("orders", sink.ListOptions{Limit: 100, MaxBytes: most})
			for id, n := range times {
				if n != 1 {
					t.Errorf("%d bytes: %s is listed %d times", most, id, n)
				}
			}
			if len(times) != 40 || got != pages {
				t.Errorf("%d bytes: %d documents on %d pages, want 40 on %d", most, len(times), got, pages)
			}
		}
	})
}

// TestPageBytes: a page by deadline, and a page of a query in any order, ends before it has too many bytes. It has at
// least one document.
func TestPageBytes(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		r.WithDefault("orders", 0, 1000)
		bodies, text := map[string]string{}, strings.Repeat("x", 77)
		for i := range 20 { // 100 bytes each, with the id
			bodies[fmt.Sprintf("%02d", i)] = fmt.Sprintf(`{"n":%d,"k":1,"x":"%s"}`, 10+i, text)
		}
		r.put(bodies)
		r.declare("/n", "/k")
		for most, want := range map[int]int{0: 1, 1: 20, 199: 20, 200: 10, 1000: 2, 1999: 2, 2000: 1, 1 << 30: 1} {
			list := sink.ListOptions{Order: wire.ByDeadline, Limit: 100, MaxBytes: most}
			if times, pages := r.list("orders", list); len(times) != 20 || pages != want {
				t.Errorf("%d bytes, list by deadline: %d documents on %d pages, want 20 on %d", most, len(times), pages, want)
			}
			for _, opts := range []sink.QueryOptions{
				{Where: r.where("n>0")}, {Where: r.where("x=" + text), Scan: true}, {Order: entries.Order{Pointer: "/n"}},
				{Order: entries.Order{ByDeadline: true}}, {Order: entries.Order{ByID: true}, Where: r.where("k=1")},
			} {
				opts.Limit, opts.MaxBytes = 100, most
				documents, pages := 0, 0
				r.queryPages(r.Reader, opts, func(_ int, page sink.QueryPage) {
					documents, pages = documents+len(page.Documents), pages+1
				})
				if documents != 20 || pages != want {
					t.Errorf("%d bytes, %s: %d documents on %d pages, want 20 on %d", most, show(opts), documents, pages, want)
				}
			}
		}
	})
}

// TestListMissesNothing: a document that exists from the first page to the last is in exactly one of
// them, whatever documents come and go meanwhile, and whatever the indexing mode is: also while Redis turns
// an index from a listpack into a skip list.
func TestListMissesNothing(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, tt := range []struct{ stay, come, limit, bytes int }{
			{100, 10, 7, 0}, {100, 200, 7, 0}, {120, 20, 50, 0}, {120, 20, 1000, 300}, {1000, 900, 30, 0},
			{1500, 150, 60, 0}, {1500, -150, 60, 0}, {500, 500, 100, 400}, {50, -400, 20, 0},
		} {
			r := newRig(t, s, 2, far)
			r.Configure("orders", &store.Config{NoIndex: true})
			r.PutMany("orders", tt.stay, 1)
			var temporary []string
			leave := func(n int) {
				var changes []store.Change
				for range min(n, len(temporary)) {
					changes = append(changes, r.Change("orders", temporary[0], nil, nil))
					temporary = temporary[1:]
				}
				r.Write("orders", changes...)
			}
			arrive := func(n int) {
				var changes []store.Change
				for range n {
					id := fmt.Sprintf("%x-%d", len(temporary)*7919%251, len(r.Docs["orders"]))
					temporary = append(temporary, id)
					changes = append(changes, r.Change("orders", id, &store.Header{Ts: 1, Etag: 1}, []byte("{}")))
				}
				r.Write("orders", changes...)
			}
			if tt.come < 0 {
				arrive(20 * -tt.come)
			}
			opts := sink.ListOptions{Limit: tt.limit, MaxBytes: tt.bytes}
			seen := map[string]int{}
			for pages := 0; ; pages++ {
				page, err := r.Reader.List(ctx, "orders", opts)
				if err != nil {
					t.Fatalf("%+v: %v", tt, err)
				}
				for _, d := range page.Documents {
					seen[d.ID]++
				}
				if opts.Continuation = page.Continuation; opts.Continuation == "" {
					break
				}
				switch {
				case tt.come < 0:
					leave(-tt.come)
				case pages < 20:
					arrive(tt.come)
					if pages%3 == 2 {
						leave(tt.come * 2)
					}
				}
			}
			for i := range tt.stay {
				if id := fmt.Sprintf("doc-%06d", i); seen[id] != 1 {
					t.Errorf("%+v: %s was listed %d times", tt, id, seen[id])
				}
			}
		}
	})
}

// TestContinuation: List refuses a continuation that it has not returned, or answers it without
// harm.
func TestContinuation(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 2, far)
		r.PutMany("orders", 500, 1)
		page, err := r.Reader.List(ctx, "orders", sink.ListOptions{Limit: 10})
		if err != nil || page.Continuation == "" {
			t.Fatalf("list: %q, %v", page.Continuation, err)
		}
		encode := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		for _, bad := range []string{
			"x", "%%%", page.Continuation + "A!", page.Continuation[1:], encode("null"), encode("{}"), encode("[]"),
			encode(`{"p":0}`),
			encode(`{"p":-1,"i":1}`), encode(`{"p":0,"c":"7"}`),
			encode(`{"p":0,"i":3}`), encode(`{"p":2,"i":1}`), encode(`{"p":0,"i":1,"t":{"k":"x","d":"a"}}`),
			encode(`{"p":0,"i":1,"t":{"k":"5"}}`),
			encode(`{"p":0,"i":1,"t":{"k":"05","d":"a"}}`), encode(`{"p":0,"i":1,"t":{"k":"99999999999999999","d":"a"}}`),
			encode(`{"p":0,"i":1,"t":{"k":"5","d":"` + strings.Repeat("a", 256) + `"}}`), encode(`{"p":0,"i":1,"f":"` +
				strings.Repeat("a", 7000) + `"}`),
			encode(`{"o":{"u":-1,"w":-1}}`), encode(`{"o":{"n":{"d":"a"}}}`), encode(`{"p":1,"o":{}}`),
			encode(`{"o":{"i":{"k":"9e3","d":"a"}}}`),
		} {
			_, err := r.Reader.List(ctx, "orders", sink.ListOptions{Continuation: bad})
			wantErr(t, err, sink.ErrInvalidRequest, "continuation "+strconv.Quote(bad))
		}
		for _, limit := range []int{-1, wire.MaxListLimit + 1} {
			_, err := r.Reader.List(ctx, "orders", sink.ListOptions{Limit: limit})
			wantErr(t, err, sink.ErrInvalidRequest, "limit "+strconv.Itoa(limit))
		}
		if page, err := r.Reader.List(ctx, "orders", sink.ListOptions{}); err != nil ||
			len(page.Documents) != wire.DefaultListLimit {
			t.Errorf("a page by default has %d documents, %v", len(page.Documents), err)
		}
	})
}
