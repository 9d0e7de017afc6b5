package sink_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// declare gives the collection orders indexes, and makes them at once.
func (r *rig) declare(pointers ...string) {
	r.T.Helper()
	c := r.Configs["orders"]
	c = c.WithIndexes(pointers)
	r.Configure("orders", &c)
	r.makeIndexes()
}

// makeIndexes makes the entries of the collection orders from the model.
func (r *rig) makeIndexes() {
	r.T.Helper()
	by := make([]map[int][]redis.Z, r.N)
	for id, d := range r.Docs["orders"] {
		p := wire.ShardOf(r.N, "orders", wire.EscapeID(id))
		values, err := entries.Of([]byte(d.Body), r.Configs["orders"].Pointers())
		if err != nil {
			r.T.Fatalf("%s: %v", d.Body, err)
		}
		for i, x := range r.Configs["orders"].Indexes {
			if by[p] == nil {
				by[p] = map[int][]redis.Z{}
			}
			for _, v := range values[i] {
				by[p][x.Slot] = append(by[p][x.Slot], redis.Z{Member: entries.Member(v, id)})
			}
		}
	}
	for p := range r.N {
		k := layout.NewKeys(r.Prefix, p, r.N)
		pipe := r.Client.Pipeline()
		for slot := range wire.MaxIndexes {
			pipe.Del(ctx, k.By(slot, "orders"))
			pipe.HDel(ctx, k.State(), layout.EntriesField(slot, "orders"))
			if found := by[p][slot]; len(found) > 0 {
				for some := range slices.Chunk(found, 1000) {
					pipe.ZAdd(ctx, k.By(slot, "orders"), some...)
				}
				pipe.HSet(ctx, k.State(), layout.EntriesField(slot, "orders"), len(found))
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			r.T.Fatalf("make the indexes: %v", err)
		}
	}
}

// making sets which slots of the collection orders are being made in a shard; none removes the field.
func (r *rig) making(p int, m layout.Making) {
	r.T.Helper()
	k, field := layout.NewKeys(r.Prefix, p, r.N), layout.MakingPrefix+"orders"
	err := r.Client.HDel(ctx, k.State(), field).Err()
	if len(m.Slots) > 0 {
		err = r.Client.HSet(ctx, k.State(), field, m.Encode()).Err()
	}
	if err != nil {
		r.T.Fatalf("making: %v", err)
	}
}

// where makes conditions of the texts that people type.
func (r *rig) where(texts ...string) []entries.Condition {
	r.T.Helper()
	merged, err := entries.Merge(texts)
	if err != nil {
		r.T.Fatalf("%q: %v", texts, err)
	}
	where, err := entries.ParseWhere(merged)
	if err != nil {
		r.T.Fatalf("%q: %v", texts, err)
	}
	return where
}

// selected are the ids of the documents that a query selects by the model, in its order, or in that of ids.
func (r *rig) selected(opts sink.QueryOptions, now int64) (ids []string) {
	type standing struct {
		value    entries.Value
		deadline int64
	}
	places := map[string]standing{}
	for id, d := range r.Live("orders", now) {
		var at standing
		ok, ordered := true, opts.Order.Pointer == ""
		for _, c := range append(slices.Clone(opts.Where), entries.Condition{Pointer: opts.Order.Pointer}) {
			if c.Pointer == "" {
				continue
			}
			values, err := entries.Of([]byte(d.Body), []string{c.Pointer})
			if err != nil {
				r.T.Fatalf("%v", err)
			}
			holding := slices.DeleteFunc(slices.Clone(values[0]), func(v entries.Value) bool { return !c.Holds(v) })
			ok = ok && len(holding) > 0
			if c.Pointer == opts.Order.Pointer && !ordered && len(holding) > 0 {
				ordered = true
				if at.value = holding[0]; opts.Order.Descending {
					at.value = holding[len(holding)-1]
				}
			}
		}
		if opts.Order.ByDeadline {
			deadline, expires := d.Header.Clock().Deadline(r.Configs["orders"].History.Current())
			ok = ok && expires && (opts.Until == nil || deadline <= int64(*opts.Until))
			at.deadline = deadline
		}
		if ok && ordered {
			places[id] = at
		}
	}
	return slices.SortedFunc(maps.Keys(places), func(a, b string) int {
		if opts.Order.Descending {
			a, b = b, a
		}
		return cmp.Or(entries.Compare(places[a].value, places[b].value), cmp.Compare(places[a].deadline, places[b].deadline),
			strings.Compare(a, b))
	})
}

// queryPages reads all pages of a query, with visit after each.
func (r *rig) queryPages(reader *sink.Reader, opts sink.QueryOptions, visit func(n int, page sink.QueryPage)) {
	r.T.Helper()
	for n := 0; ; n++ {
		page, err := reader.Query(ctx, "orders", opts)
		if err != nil {
			r.T.Fatalf("page %d of %+v: %v", n, opts, err)
		}
		if opts.Limit > 0 && len(page.Documents) > opts.Limit {
			r.T.Errorf("page %d has %d documents, the limit is %d", n, len(page.Documents), opts.Limit)
		}
		if page.Examined > 2000 || page.Continuation != "" && page.Examined == 0 {
			r.T.Errorf("page %d of %+v examined %d entries", n, opts, page.Examined)
		}
		if opts.Continuation = page.Continuation; visit != nil {
			visit(n, page)
		}
		if opts.Continuation == "" {
			return
		}
		if n > 5000 {
			r.T.Fatalf("the query does not end: %+v", opts)
		}
	}
}

// queried are the ids of all pages.
func (r *rig) queried(opts sink.QueryOptions) (ids []string) {
	r.T.Helper()
	r.queryPages(r.Reader, opts, func(_ int, page sink.QueryPage) {
		for _, d := range page.Documents {
			ids = append(ids, d.ID)
		}
	})
	return ids
}

// wantQuery compares a query with the model.
func (r *rig) wantQuery(opts sink.QueryOptions, now int64) {
	r.T.Helper()
	got, want := r.queried(opts), r.selected(opts, now)
	if (opts.Order == entries.Order{}) {
		slices.Sort(got)
	}
	if !slices.Equal(got, want) {
		r.T.Errorf("%s: found %q, want %q", show(opts), got, want)
	}
	counted := int64(0)
	opts.Count = true
	r.queryPages(r.Reader, opts, func(_ int, page sink.QueryPage) {
		if len(page.Documents) > 0 {
			r.T.Errorf("%s: a count returns documents", show(opts))
		}
		counted += *page.Count
	})
	if counted != int64(len(want)) {
		r.T.Errorf("%s: counted %d, want %d", show(opts), counted, len(want))
	}
}

// show is a query for a message.
func show(opts sink.QueryOptions) string {
	text := "order " + opts.Order.String()
	for _, c := range opts.Where {
		text += fmt.Sprintf(" %s %s", c.Pointer, c.Encode())
	}
	return text
}

// put writes documents with bodies, in order, that inherit the default, and makes their entries.
func (r *rig) put(bodies map[string]string) {
	r.T.Helper()
	var changes []store.Change
	for _, id := range slices.Sorted(maps.Keys(bodies)) {
		changes = append(changes, r.Change("orders", id, &store.Header{Ts: far, Etag: uint64(len(changes) + 1)},
			[]byte(bodies[id])))
	}
	r.Write("orders", changes...)
	r.makeIndexes()
}
