package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/simulation/conditions"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/embedded"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// mostMoments is for how many pages of a query Redis is kept. More pages are of the last moment.
const mostMoments = 6

// query is a query in pages, and what Redis held at each.
type query struct {
	plan.Step
	collection string
	where      conditions.Where
	order      string // a pointer, perhaps behind a -, deadline, id, or "" for none
	limit      int
	count      bool
	scan       bool
	pace       time.Duration
	moments    []keptState
	options    sink.QueryOptions
	answered   bool
}

// orderNone is the order of a step query that names none.
const orderNone = "none"

// ask begins a query.
func (w *World) ask(s plan.Step) {
	limit, more, _ := strings.Cut(s.Args[1], "+")
	q := &query{Step: s, collection: s.Args[0], count: more == "count", scan: more == "scan", pace: s.Duration(2),
		order: s.Args[3]}
	if q.order == orderNone {
		q.order = ""
	}
	q.limit, _ = strconv.Atoi(limit)
	w.queries = append(w.queries, q)
	q.keep(w, w.present())
}

// keep keeps what Redis holds now, for the next page.
func (q *query) keep(w *World, at *site) {
	q.moments = append(q.moments, keptState{at.redis.Save(), w.redisClock()})
	if q.pace > 0 && !q.scan && len(q.moments) < mostMoments { // the place of a scan is that of one server
		w.queue.Add(time.Now().Add(q.pace), func() { q.keep(w, at) })
	}
}

// checkQueries asks the queries of a history with the real Reader, each page of what Redis held when the page was
// asked for.
// It counts those with an answer to all pages, and the others.
func checkQueries(queries []*query, counts map[string]int) error {
	if len(queries) == 0 {
		return nil
	}
	server := embedded.New(nil)
	defer server.Close()
	client := redis.NewClient(&redis.Options{Dialer: server.Dial, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	for i, q := range queries {
		err := q.parse()
		if err == nil {
			err = q.check(server, client, wire.Prefix(fmt.Sprint("query", i)))
		}
		counts[map[bool]string{true: "query answered", false: "query refused"}[q.answered]]++
		if err != nil {
			return fmt.Errorf("H21: %s at %s: %w", q.Step, q.At, err)
		}
	}
	return nil
}

// parse reads the conditions and the order.
func (q *query) parse() (err error) {
	if q.where, err = conditions.ParseWhere(q.Args[4]); err != nil {
		return err
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal([]byte(q.Args[4]), &raw); err != nil {
		return err
	}
	members := map[string][]byte{}
	for pointer, condition := range raw {
		members[pointer] = condition
	}
	q.options = sink.QueryOptions{Limit: q.limit, Count: q.count, Scan: q.scan}
	if q.options.Where, err = entries.ParseWhere(members); err == nil {
		q.options.Order, err = entries.ParseOrder(q.order)
	}
	return err
}

// check asks for all pages, and compares them with what Redis held.
func (q *query) check(server *embedded.Server, client *redis.Client, to wire.Prefix) error {
	a := answers{query: q, got: map[string]int{}}
	for {
		m := q.moments[min(len(a.pages), len(q.moments)-1)]
		model := redismodel.New(redismodel.Options{Now: func() time.Time { return m.at }})
		model.Restore(m.Snapshot)
		server.SetTime(m.at)
		if err := client.FlushAll(context.Background()).Err(); err != nil {
			return err
		}
		_, copied, err := copyTo(store.New(client, to, 0, 1), model)
		if err == nil && copied {
			err = loseEntries(client, to, model)
		}
		if err != nil {
			return fmt.Errorf("copy Redis for a query: %w", err)
		}
		if !copied {
			return nil // a reader gets an error
		}
		reader, err := sink.NewReader(client, sink.ReaderOptions{Prefix: to, Shards: 1})
		if err != nil {
			return err
		}
		page, err := reader.Query(context.Background(), q.collection, q.options)
		if err != nil {
			return a.refused(model, err)
		}
		if err := a.add(model, page); err != nil {
			return fmt.Errorf("page %d at %s: %w", len(a.pages), wire.Time(m.at.UnixMilli()), err)
		}
		if q.options.Continuation = page.Continuation; page.Continuation == "" {
			q.answered = true
			return a.complete()
		}
		if len(a.pages) > mostPages {
			return fmt.Errorf("it has not ended after %d pages", len(a.pages))
		}
	}
}

// mostPages is more than any query of a history has.
const mostPages = 3000

// serves reports whether lapse is to answer the query: whether an index serves it, or none has to.
func (q *query) serves(model *redismodel.Server) (serves, perhaps bool) {
	state, _ := model.State()
	damaged := false // an index that a condition names: lapse may refuse until it is mended
	by := func(pointer string) (declared, ready bool) {
		for _, x := range model.Configs()[q.collection].Indexes {
			if x.Pointer == pointer {
				of := store.IndexOf{Collection: q.collection, Slot: x.Slot}
				made := !slices.Contains(state.Making[q.collection].Slots, x.Slot)
				whole := model.Verify(context.Background(), state.Version, nil, of) == nil
				damaged = damaged || !whole
				return true, made && whole
			}
		}
		return false, false
	}
	pointer := strings.TrimPrefix(q.order, "-")
	switch {
	case strings.HasPrefix(pointer, "/"):
		declared, ready := by(pointer)
		return ready && !q.scan && !q.count, declared
	case pointer == string(wire.ByDeadline), q.scan: // no index has to serve it, but each may
		for pointer := range q.where {
			by(pointer)
		}
		if q.order == string(wire.ByDeadline) {
			return !q.count && !damaged, true
		}
		return q.order == "" && len(q.where) > 0 && !damaged, true
	}
	var any, all = false, true
	for pointer := range q.where {
		if pointer == "" {
			continue
		}
		declared, ready := by(pointer)
		any = any || ready
		perhaps = perhaps || declared
		all = all && (ready || !declared)
	}
	return any && all && q.order == "", perhaps
}

// answers are the pages of a query, and the documents that it was to find at each moment.
type answers struct {
	*query
	pages []moment
	got   map[string]int // by id
	count int64
	last  *place
}

// moment is what a query finds at a moment: documents by id.
type moment struct {
	matching map[string]redismodel.Document
	etag     uint64 // of the configuration
}

// place is where a document stands in the order of a query.
type place struct {
	value conditions.Value
	at    wire.Time
	id    string
	etag  uint64 // of the configuration
}

// find finds the documents that the query is to return.
func (q *query) find(model *redismodel.Server) moment {
	m := moment{matching: map[string]redismodel.Document{}, etag: model.Configs()[q.collection].Etag}
	for _, d := range model.Documents() {
		if d.Collection != q.collection {
			continue
		}
		if d, err := model.Get(q.collection, d.ID); err == nil && q.where.Hold([]byte(d.Body)) {
			if _, ok := q.place(d, 0); ok {
				m.matching[d.ID] = d
			}
		}
	}
	return m
}

// place is where a document stands in the order of the query; ok is false if it is left out.
func (q *query) place(d redismodel.Document, etag uint64) (p place, ok bool) {
	p = place{id: d.ID, etag: etag}
	pointer, descending := strings.CutPrefix(q.order, "-")
	switch {
	case strings.HasPrefix(pointer, "/"):
		p.value, ok = q.where.Place([]byte(d.Body), pointer, descending)
		return p, ok
	case pointer == string(wire.ByDeadline):
		if d.ExpiresAt == nil {
			return p, false
		}
		p.at = *d.ExpiresAt
	}
	return p, true
}

// follows reports whether a document may come after another one.
func (q *query) follows(p place, before *place) bool {
	switch {
	case before == nil || q.order == "":
		return true
	case q.order == string(wire.ByDeadline) && p.etag != before.etag: // deadlines have moved
		return true
	}
	order := conditions.Compare(p.value, "", before.value, "")
	if order == 0 && p.at != before.at {
		order = map[bool]int{false: -1, true: 1}[p.at > before.at]
	}
	if order == 0 {
		order = strings.Compare(p.id, before.id)
	}
	return order > 0 != strings.HasPrefix(q.order, "-") && order != 0
}

// add checks a page.
func (a *answers) add(model *redismodel.Server, page sink.QueryPage) error {
	if _, perhaps := a.serves(model); !perhaps {
		return errors.New("there is an answer, and no index for it")
	}
	if state, _ := model.State(); state.Version == "" {
		return errors.New("there is an answer, and no state")
	}
	m := a.find(model)
	a.pages = append(a.pages, m)
	counted := int64(0)
	if page.Count != nil {
		counted = *page.Count
	}
	a.count += counted
	if len(page.Documents) > a.limit || a.query.count != (page.Count != nil) || counted > int64(len(m.matching)) ||
		a.query.count && len(page.Documents) > 0 {
		return fmt.Errorf("it has %d documents and counts %d of %d", len(page.Documents), counted, len(m.matching))
	}
	seen := map[string]bool{}
	for _, d := range page.Documents {
		want, matches := m.matching[d.ID]
		switch {
		case !matches:
			return fmt.Errorf("%s/%s is not one of the %d live documents for which the conditions hold", d.ID, d.Etag,
				len(m.matching))
		case wire.Etag(want.Header.Etag) != d.Etag || want.Body != string(d.Body):
			return fmt.Errorf("%s/%s is %s, and a single read finds %d: %s", d.ID, d.Etag, d.Body, want.Header.Etag,
				want.Body)
		case seen[d.ID]:
			return fmt.Errorf("%s is there twice", d.ID)
		}
		seen[d.ID] = true
		a.got[d.ID]++
		p, _ := a.place(want, m.etag)
		if !a.follows(p, a.last) {
			return fmt.Errorf("%s at %q comes after %s at %q", d.ID, p.value, a.last.id, a.last.value)
		}
		a.last = &p
	}
	return nil
}

// refused checks an error in place of a page.
func (a *answers) refused(model *redismodel.Server, err error) error {
	_, configured := model.Configs()[a.collection]
	serves, _ := a.serves(model)
	switch {
	case !configured && errors.Is(err, sink.ErrNotFound):
		return nil
	case len(a.pages) > 0 && a.pages[len(a.pages)-1].etag != model.Configs()[a.collection].Etag:
		return nil
	case !serves && (errors.Is(err, sink.ErrInvalidRequest) || errors.Is(err, sink.ErrUnavailable)):
		return nil
	}
	return fmt.Errorf("page %d: %w", len(a.pages), err)
}

// complete checks all pages together: a document that was there at each of them, and has not changed, was returned
// once.
func (a *answers) complete() error {
	var always int64
	ever := map[string]bool{}
	for id := range a.pages[0].matching {
		if !a.unchanged(id) {
			continue
		}
		if always++; !a.query.count && a.got[id] != 1 {
			return fmt.Errorf("%s is returned %d times in %d pages, and it was there all the time", id, a.got[id],
				len(a.pages))
		}
	}
	for _, m := range a.pages {
		for id := range m.matching {
			ever[id] = true
		}
	}
	if still := len(a.moments) == 1; a.query.count && (a.count < always || still && a.count > int64(len(ever))) {
		return fmt.Errorf("%d documents are counted, and there were %d all the time and %d in all", a.count, always,
			len(ever))
	}
	return nil
}

// unchanged reports whether a document was at one place at each page.
func (a *answers) unchanged(id string) bool {
	first := a.pages[0].matching[id]
	at, _ := a.place(first, 0)
	for _, m := range a.pages {
		d, there := m.matching[id]
		if p, _ := a.place(d, 0); !there || d.Body != first.Body || p != at {
			return false
		}
	}
	return true
}

// copyEntries adds the entries of the property indexes to what is copied, and how far they are made. Entries that are
// lost
// are others there, for loseEntries.
func copyEntries(all []store.CollectionChanges, model *redismodel.Server) {
	state, _ := model.State()
	for i := range all {
		c := &all[i]
		for _, x := range model.Configs()[c.Collection].Indexes {
			of := store.IndexOf{Collection: c.Collection, Slot: x.Slot}
			add := slices.Clone(model.Entries()[of])
			for n := range model.LostEntries(of) {
				add = append(add, lostEntry(n))
			}
			c.Indexes = append(c.Indexes, store.IndexChanges{Slot: x.Slot, Add: add})
		}
		if m, some := state.Making[c.Collection]; some {
			c.Making = &m
		}
	}
}

// lostEntry is an entry in place of the n-th that is lost.
func lostEntry(n int) string { return fmt.Sprint("\xff", n) }

// loseEntries loses the entries that the model has lost.
func loseEntries(client *redis.Client, to wire.Prefix, model *redismodel.Server) error {
	ctx := context.Background()
	for collection, config := range model.Configs() {
		for _, x := range config.Indexes {
			lost := model.LostEntries(store.IndexOf{Collection: collection, Slot: x.Slot})
			if lost == 0 {
				continue
			}
			keys, err := client.Keys(ctx, fmt.Sprintf("%s:*:by%d:%s", to, x.Slot, collection)).Result()
			if err != nil {
				return err
			}
			for _, key := range keys {
				for n := range lost {
					if err := client.ZRem(ctx, key, lostEntry(n)).Err(); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}
