package sink

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// QueryOptions ask for a page of a query.
type QueryOptions struct {
	Limit    int // as in ListOptions
	MaxBytes int // as in ListOptions
	// Continuation is that of the page before. What of the options below is left out is as it was for that page, and
	// nothing of it may be another.
	Continuation string
	Where        []entries.Condition
	Order        entries.Order
	Until        *wire.Time
	Within       time.Duration
	Count        bool // count the documents, and return none
	Scan         bool // examine all documents where no index serves the query
}

// Dear reports whether the query may examine many documents for the few that it returns, or for none.
func (o QueryOptions) Dear() bool {
	s, _, err := o.settle()
	return err == nil && s.dear()
}

// QueryPage is a page of a query. The last page has no continuation.
type QueryPage struct {
	Documents    []Document
	Count        *int64 // how many documents of this page there are, if they are counted; else nil
	Examined     int64  // entries or documents that were examined for this page
	Continuation string
}

// queryExamined is how many entries of an index, or documents, are examined for a page of a query.
const queryExamined = 1000

// Query reads the live documents of a collection for which all conditions hold, in pages.
//
// A document that exists, unchanged, from the first page to the last is in exactly one of them. One that changes
// meanwhile is returned as it was or as it is, and may be missing, or on two pages, if its place in the order changes.
// A page ends once it has examined 1,000 entries of an index, or documents. So it may have fewer documents than the
// limit, or none, and not be the last.
//
// In the order of a pointer, a document stands at its least value there (in the descending order at its greatest one),
// of those for which the condition on that pointer holds, if there is one. Documents without a value are left out.
func (r *Reader) Query(ctx context.Context, collection string, opts QueryOptions) (QueryPage, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return QueryPage{}, err
	}
	if err := wire.CheckLimit(opts.Limit); err != nil {
		return QueryPage{}, err
	}
	limit := cmp.Or(opts.Limit, wire.DefaultListLimit)
	s, from, err := opts.settle()
	if err != nil {
		return QueryPage{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return QueryPage{}, err
	}
	if opts.Continuation != "" && !from.valid(s, len(ps.keys)) {
		return QueryPage{}, errContinuation
	}
	if s.count {
		limit, opts.MaxBytes = queryExamined, 0
	}
	var page QueryPage
	err = ps.repeat(ctx, collection, func() (err error) {
		first, err := ps.view(ctx, 0, collection)
		if err != nil {
			return err
		}
		q := querier{shards: ps, collection: collection, selection: s, limit: limit, maxBytes: opts.MaxBytes, first: first,
			documents: []Document{}, taken: map[string]bool{}}
		page, err = q.page(ctx, from)
		return err
	})
	return page, err
}

// errReconfigured: a shard got another configuration while a page was made, or before the others. A place in an index
// means the same in all shards only while they agree.
var errReconfigured = errors.New("the configuration has changed")

// selection is which documents a query selects, and in which order.
type selection struct {
	where       []entries.Condition        // in the order of their pointers, one for each
	texts       map[string]json.RawMessage // of the conditions, as entries.Encode writes them
	order       entries.Order
	count, scan bool
}

// longestWhere is the most bytes that all conditions together have as JSON, because a continuation has them.
const longestWhere = 32 << 10

// newSelection checks what a query selects. Everything may be left out.
func newSelection(where []entries.Condition, order entries.Order, count, scan bool) (s selection, err error) {
	s = selection{texts: make(map[string]json.RawMessage, len(where)), count: count, scan: scan}
	parsed, bytes := make(map[string][]byte, len(where)), 0
	for _, c := range where {
		if s.texts[c.Pointer] != nil {
			return selection{}, invalid("there are two conditions on %s: use one", wire.Quote(c.Pointer))
		}
		text := c.Encode()
		s.texts[c.Pointer], parsed[c.Pointer] = text, text
		bytes += len(c.Pointer) + len(text)
	}
	if bytes > longestWhere {
		return selection{}, invalid("the conditions are %d bytes of JSON: use at most %d", bytes, longestWhere)
	}
	if s.where, err = entries.ParseWhere(parsed); err != nil {
		return selection{}, invalid("%s", err)
	}
	if s.order, err = entries.ParseOrder(order.String()); err != nil {
		return selection{}, invalid("%s", err)
	}
	return s, nil
}

// dear reports whether a page may examine more entries than it returns documents.
func (s selection) dear() bool {
	oneIndex := len(s.where) == 0 ||
		len(s.where) == 1 && !s.order.ByDeadline && (s.order.Pointer == "" || s.order.Pointer == s.where[0].Pointer)
	return s.scan || s.count || !oneIndex
}

// on is the condition on a pointer; one that holds for every value if the query has none.
func (s selection) on(pointer string) entries.Condition {
	for _, c := range s.where {
		if c.Pointer == pointer {
			return c
		}
	}
	return entries.Condition{Pointer: pointer}
}
