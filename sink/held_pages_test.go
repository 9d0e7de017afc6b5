//go:build held

package sink_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// heldShards is the number of shards of these tests, heldDocuments of the documents in them.
const heldShards, heldDocuments = 4, 400

// heldPage is a way to read a collection in pages.
type heldPage struct {
	operations []string // that make more than one call for its first page
	large      bool     // the documents are so large that a page takes more scripts
	kind       bool     // it selects the documents whose kind is 1
	order      string   // deadline, n (which is the same here), id; "" for none
	read       func(r *rig, reader *sink.Reader, continuation string) (docs []sink.Document, next string, err error)
}

// heldList is a list in pages.
func heldList(opts sink.ListOptions, large bool, operations ...string) heldPage {
	return heldPage{operations: operations, large: large, order: string(opts.Order), read: func(_ *rig, reader *sink.Reader, next string) (
		[]sink.Document, string, error) {
		opts.Continuation = next
		page, err := reader.List(ctx, "orders", opts)
		return page.Documents, page.Continuation, err
	}}
}

// heldQuery is a query in pages.
func heldQuery(opts sink.QueryOptions, where string, operations ...string) heldPage {
	return heldPage{operations: operations, kind: where == "kind=1", order: opts.Order.String(), read: func(r *rig, reader *sink.Reader, next string) (
		[]sink.Document, string, error) {
		if where != "" {
			opts.Where = r.where(where)
		}
		opts.Continuation = next
		page, err := reader.Query(ctx, "orders", opts)
		return page.Documents, page.Continuation, err
	}}
}

// heldPages are all ways to make a page.
var heldPages = map[string]heldPage{
	"list": heldList(sink.ListOptions{Limit: 150}, true, "sink.Reader.List", "sink.lister.fill"),
	"list by deadline": heldList(sink.ListOptions{Order: wire.ByDeadline, Limit: 150}, true, "sink.shards.listOrdered",
		"sink.merger.page", "sink.choose", "sink.bodies.visit"),
	"query by deadline": heldQuery(sink.QueryOptions{Limit: 120, Order: entries.Order{ByDeadline: true}}, "",
		"sink.querier.byDeadline", "sink.querier.choose"),
	"query by deadline where": heldQuery(sink.QueryOptions{Limit: 40, Order: entries.Order{ByDeadline: true}}, "kind=1",
		"sink.querier.byDeadline", "sink.querier.gather"),
	"query by id": heldQuery(sink.QueryOptions{Limit: 40, Order: entries.Order{ByID: true}}, "kind=1",
		"sink.querier.byID", "sink.querier.choose"),
	"query by pointer": heldQuery(sink.QueryOptions{Limit: 40, Order: entries.Order{Pointer: "/n"}}, "",
		"sink.querier.byPointer", "sink.querier.walk", "sink.Reader.Query"),
	"query by pointer where": heldQuery(sink.QueryOptions{Limit: 40, Order: entries.Order{Pointer: "/n"}}, "kind=1",
		"sink.querier.byPointer", "sink.querier.gather"),
	"query":            heldQuery(sink.QueryOptions{Limit: 40}, "kind=1", "sink.querier.unordered"),
	"query that scans": heldQuery(sink.QueryOptions{Limit: 300, Scan: true}, "other=1", "sink.querier.examine"),
}

// heldHeader is the header of a document that expires so many seconds after the clock of the rig.
func heldHeader(seconds int) *store.Header {
	return &store.Header{Ts: far, Etag: 1, TTL: ttlrules.TTL(seconds)}
}

// heldBody is the body of a document that stands at a place in the order of /n.
func heldBody(id string, at int, large bool) []byte {
	n, _ := strconv.Atoi(id)
	pad := ""
	if large {
		pad = strings.Repeat("x", 20<<10)
	}
	return fmt.Appendf(nil, `{"n":%d,"kind":%d,"other":1,"pad":%q}`, at, n%3, pad)
}

// fillHeld writes the documents: those of the first shard stand before the others, so that it is asked several times
// for a page. One in fifty is expired. It returns the places of the live ones.
func (r *rig) fillHeld(large bool) (places map[string]int) {
	r.T.Helper()
	r.WithDefault("orders", 0, -1)
	var changes []store.Change
	places = map[string]int{}
	for i := range heldDocuments {
		id, at := fmt.Sprintf("%03d", i), 1000+i
		if wire.ShardOf(heldShards, "orders", id) == 0 {
			at = 10 + i/8
		}
		h := heldHeader(at)
		if i%50 == 49 {
			h.Ts -= int64(at+1) * 1000
		} else {
			places[id] = at
		}
		changes = append(changes, r.Change("orders", id, h, heldBody(id, at, large)))
	}
	r.Write("orders", changes...)
	r.declare("/n", "/kind")
	return places
}

// TestHeldPages_Write: some documents are renewed, some removed and some made while a page is made. No page has a
// document twice, and over all pages each one that nobody changes comes once, in order, one that is removed or made at
// most once, and none that has expired.
//
// It fails if a page takes a document at its former place and at its present one, or goes on from a place that has
// another meaning by now.
func TestHeldPages_Write(t *testing.T) {
	for name, page := range heldPages {
		for _, operation := range page.operations {
			t.Run(name+"/"+strings.TrimPrefix(operation, "sink."), func(t *testing.T) {
				held.Each(t, operation, held.Write, func(t *testing.T, during func(func())) {
					r := newRig(t, redistest.StartMini(t), heldShards, far)
					places := r.fillHeld(page.large)
					changed := map[string]bool{}
					during(func() { r.changeHeld(places, changed, page.large) })
					checkHeld(t, r, page, places, changed)
				})
			})
		}
	}
}

// changeHeld renews the documents that stand first, removes some others, and makes some.
func (r *rig) changeHeld(places map[string]int, changed map[string]bool, large bool) {
	r.T.Helper()
	ids := slices.SortedFunc(maps.Keys(places), func(a, b string) int {
		return cmp.Or(cmp.Compare(places[a], places[b]), strings.Compare(a, b))
	})
	var changes []store.Change
	for i, id := range ids[:40] {
		changed[id] = true
		if i%8 == 7 {
			changes = append(changes, r.Change("orders", id, nil, nil))
			continue
		}
		at := places[id] + 5*(i%8) // behind others of the same page, and of the next ones
		changes = append(changes, r.Change("orders", id, heldHeader(at), heldBody(id, at, large)))
	}
	for i := range 20 {
		id := fmt.Sprintf("%03d", heldDocuments+i)
		changed[id] = true
		changes = append(changes, r.Change("orders", id, heldHeader(20+50*i), heldBody(id, 20+50*i, large)))
	}
	r.Write("orders", changes...)
	r.makeIndexes()
}

// checkHeld reads all pages, and checks them.
func checkHeld(t *testing.T, r *rig, page heldPage, places map[string]int, changed map[string]bool) {
	t.Helper()
	times, next := map[string]int{}, ""
	var order []string // what the unchanged documents stand by
	for n := 0; n == 0 || next != ""; n++ {
		docs, continuation, err := page.read(r, r.Reader, next)
		if err != nil {
			t.Fatalf("page %d: %v", n, err)
		}
		next = continuation
		here := map[string]bool{}
		for _, d := range docs {
			if here[d.ID] {
				t.Errorf("page %d has %s twice", n, d.ID)
			}
			here[d.ID] = true
			times[d.ID]++
			if !changed[d.ID] {
				switch page.order {
				case "":
				case "id":
					order = append(order, d.ID)
				default:
					order = append(order, fmt.Sprintf("%05d %s", places[d.ID], d.ID))
				}
			}
			if _, live := places[d.ID]; !live && !changed[d.ID] {
				t.Errorf("page %d has %s, which has expired", n, d.ID)
			}
		}
	}
	for id := range places {
		number, _ := strconv.Atoi(id)
		if selected := !page.kind || number%3 == 1; !changed[id] && selected != (times[id] == 1) {
			t.Errorf("%s, which nobody changes, comes %d times", id, times[id])
		}
	}
	for id, n := range times {
		if _, there := r.Docs["orders"][id]; n > 1 && changed[id] && (!there || places[id] == 0) {
			t.Errorf("%s, which was removed or made, comes %d times", id, n)
		}
	}
	if !slices.IsSorted(order) {
		t.Errorf("the documents do not come in order: %v", order)
	}
}

// TestHeldPages_Restart: Redis loses everything while a page is made, and another log is applied there, with another
// number of shards. The page is that of before or of after, or the error is ErrUnavailable; soon it is that of after.
//
// It fails if a page is made of both, or a document is taken for missing.
func TestHeldPages_Restart(t *testing.T) {
	for name, page := range heldPages {
		for _, operation := range page.operations {
			t.Run(name+"/"+strings.TrimPrefix(operation, "sink."), func(t *testing.T) {
				held.Each(t, operation, held.Restart, func(t *testing.T, during func(func())) {
					s := redistest.StartMini(t)
					r := newRig(t, s, heldShards, far)
					places := r.fillHeld(page.large)
					reader, err := sink.NewReader(s.Client, sink.ReaderOptions{Prefix: r.Prefix})
					if err != nil {
						t.Fatal(err)
					}
					var want, got string
					all := func() (string, error) {
						docs, _, err := page.read(r, reader, "")
						ids := ""
						for _, d := range docs {
							ids += " " + d.ID + string(d.Body[:20])
						}
						return ids, err
					}
					before, err := all()
					if err != nil {
						t.Fatal(err)
					}
					during(func() { r.makeAnew(2, places, page.large) })
					if got, err = all(); err != nil {
						wantErr(t, err, sink.ErrUnavailable, "a page during which Redis has lost everything")
					}
					first := got
					redistest.WaitFor(t, "the reader finds the new shards", func() bool {
						want, err = all()
						if err != nil && !errors.Is(err, sink.ErrUnavailable) {
							t.Fatal(err)
						}
						return err == nil
					})
					if first != "" && first != before && first != want {
						t.Errorf("a page is\n%s\nbefore it was\n%s\nand after it\n%s", first, before, want)
					}
				})
			})
		}
	}
}

// makeAnew lets Redis lose everything, and has the documents again from another log, with another number of shards.
// They stand at other places.
func (r *rig) makeAnew(shards int, places map[string]int, large bool) {
	r.T.Helper()
	if err := r.Client.FlushAll(ctx).Err(); err != nil {
		r.T.Fatalf("flush: %v", err)
	}
	next := newRig(r.T, r.Server, shards, far)
	next.WithDefault("orders", 0, -1)
	var changes []store.Change
	for id, at := range places {
		changes = append(changes, next.Change("orders", id, heldHeader(at+1), heldBody(id, at+1, large)))
	}
	next.Write("orders", changes...)
	next.declare("/n", "/kind")
	for _, key := range r.Client.Keys(ctx, string(next.Prefix)+":*").Val() {
		renamed := string(r.Prefix) + strings.TrimPrefix(key, string(next.Prefix))
		if err := r.Client.Rename(ctx, key, renamed).Err(); err != nil {
			r.T.Fatalf("rename: %v", err)
		}
	}
}
