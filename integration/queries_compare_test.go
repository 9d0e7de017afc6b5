package integration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/patch"
	"github.com/seed18712806/lapse/integration/simulation/conditions"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// candidate is a document of the model that a query may return.
type candidate struct {
	id string
	oracle.Live
	values map[string][]conditions.Value // by pointer, as far as a query needed them
}

func newCandidate(id string, live oracle.Live) *candidate {
	return &candidate{id: id, Live: live, values: map[string][]conditions.Value{}}
}

func (c *candidate) at(pointer string) []conditions.Value {
	values, known := c.values[pointer]
	if !known {
		values = conditions.At(c.Body, pointer)
		c.values[pointer] = values
	}
	return values
}

// liveAt reports whether the document can be read at an instant.
func (c *candidate) liveAt(at wire.Time) bool { return c.ExpiresAt == nil || *c.ExpiresAt > at }

// plain is a query as the model answers it.
type plain struct {
	query
	conditions map[string]conditions.Condition // by pointer
	pointer    string                          // of the order; "" if it is by none
	descending bool
}

func newPlain(q query) (plain, error) {
	p := plain{query: q, conditions: map[string]conditions.Condition{}}
	for pointer, text := range q.where {
		c, err := conditions.Parse(json.RawMessage(text))
		if err != nil {
			return p, err
		}
		p.conditions[pointer] = c
	}
	p.pointer, p.descending = strings.CutPrefix(q.order, "-")
	if !strings.HasPrefix(p.pointer, "/") {
		p.pointer = ""
	}
	return p, nil
}

// holds reports whether the query selects a document, by what does not depend on the time.
func (p plain) holds(c *candidate) bool {
	for pointer, condition := range p.conditions {
		if !slices.ContainsFunc(c.at(pointer), condition) {
			return false
		}
	}
	if p.pointer != "" {
		_, there := p.place(c)
		return there
	}
	return p.order != string(wire.ByDeadline) || c.ExpiresAt != nil && (p.until == nil || *c.ExpiresAt <= *p.until)
}

// place is the value at which a document stands in the order of a pointer.
func (p plain) place(c *candidate) (place conditions.Value, there bool) {
	condition := p.conditions[p.pointer]
	for _, v := range c.at(p.pointer) {
		if v == conditions.LeftOut || condition != nil && !condition(v) {
			continue
		}
		if place, there = v, true; !p.descending {
			break // the least one
		}
	}
	return place, there
}

// compare compares two documents by the order of the query. It is 0 if that is none.
func (p plain) compare(a, b *candidate) int {
	switch {
	case p.pointer != "":
		x, _ := p.place(a)
		y, _ := p.place(b)
		is := conditions.Compare(x, a.id, y, b.id)
		if p.descending {
			return -is
		}
		return is
	case p.order == string(wire.ByDeadline):
		return cmp.Or(cmp.Compare(*a.ExpiresAt, *b.ExpiresAt), strings.Compare(a.id, b.id))
	case p.order != "":
		return strings.Compare(a.id, b.id)
	}
	return 0
}

// reply is what a query returned over all its pages.
type reply struct {
	documents  []sink.Document
	count      int64
	from, upTo wire.Time // when it was asked, and when it had come
}

// judge compares the answer of a query with the candidates. changed has the versions of the documents that were
// written meanwhile, by id: those are not among the candidates.
func (p plain) judge(got reply, all map[string]*candidate, changed map[string][]*candidate) error {
	must, may := 0, 0 // documents that the query must and may count
	returned := map[string]int{}
	var last *candidate
	for _, d := range got.documents {
		if returned[d.ID]++; returned[d.ID] > 1 && changed[d.ID] == nil {
			return fmt.Errorf("%q comes twice", d.ID)
		}
		c, err := p.version(d, got, all, changed)
		if err != nil {
			return err
		}
		if last != nil && p.compare(last, c) > 0 {
			return fmt.Errorf("%q %s comes after %q %s", c.id, c.Body, last.id, last.Body)
		}
		last = c
	}
	for id, c := range all {
		if !p.holds(c) || !c.liveAt(got.from) {
			continue
		}
		may++
		// A limit of within counts from the first page on.
		later := p.within != 0 && *c.ExpiresAt > got.from+wire.Time(p.within.Milliseconds())
		if later || !c.liveAt(got.upTo) {
			continue
		}
		must++
		if returned[id] == 0 && !p.count {
			return fmt.Errorf("%q %s is missing", id, c.Body)
		}
	}
	for _, versions := range changed {
		may += len(versions)
	}
	if p.count && (got.count < int64(must) || got.count > int64(may)) {
		return fmt.Errorf("the count is %d, want %d to %d", got.count, must, may)
	}
	return nil
}

// version finds the version of a document that a query returned.
func (p plain) version(
	d sink.Document, got reply, all map[string]*candidate, changed map[string][]*candidate,
) (*candidate, error) {
	versions := changed[d.ID]
	if c := all[d.ID]; c != nil {
		if d.Etag != c.Etag || !sameTime(d.ExpiresAt, c.ExpiresAt) {
			return nil, fmt.Errorf("%q is version %s until %v, want %s until %v",
				d.ID, d.Etag, d.ExpiresAt, c.Etag, c.ExpiresAt)
		}
		versions = []*candidate{c}
	}
	for _, v := range versions {
		if string(v.Body) != string(d.Body) && !(v.Merged && patch.Same(v.Body, d.Body)) {
			continue
		}
		c := newCandidate(d.ID, oracle.Live{Document: v.Document, ExpiresAt: d.ExpiresAt})
		if !p.holds(c) {
			return nil, fmt.Errorf("%q %s is returned, for which the query does not hold", d.ID, d.Body)
		}
		if !c.liveAt(got.from) {
			return nil, fmt.Errorf("%q is returned at %s, and expired at %s", d.ID, got.from, c.ExpiresAt)
		}
		if p.within != 0 && *d.ExpiresAt > got.upTo+wire.Time(p.within.Milliseconds()) {
			return nil, fmt.Errorf("%q is returned, which expires at %s", d.ID, d.ExpiresAt)
		}
		return c, nil
	}
	return nil, fmt.Errorf("%q %s is returned, which never was such a document", d.ID, d.Body)
}

func sameTime(a, b *wire.Time) bool { return (a == nil) == (b == nil) && (a == nil || *a == *b) }
