package sink

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
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
		q := querier{shards: ps, collection: collection, selection: s, limit: limit, maxBytes: pageBytes(opts.MaxBytes),
			first: first, documents: []Document{}, taken: map[string]bool{}}
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

// longestQueryContinuation is more than that of the longest query needs, which JSON and base64 make longer.
const longestQueryContinuation = 4 * longestWhere

// queryPosition is the end of a page of a query, in a continuation: what the query selects, and the place.
type queryPosition struct {
	Where map[string]json.RawMessage `json:"w,omitempty"`
	Order string                     `json:"o,omitempty"`
	Count bool                       `json:"c,omitempty"`
	Scan  bool                       `json:"s,omitempty"`
	queryPlace
}

// queryPlace is where the next page begins. The place does not depend on how this page was made: the next one may be
// made in another way.
type queryPlace struct {
	// Member is the last entry that was examined: in the index of the order's pointer, or without an order in that of
	// Driver.
	Member memberText `json:"m,omitempty"`
	Driver string     `json:"d,omitempty"`
	ID     string     `json:"i,omitempty"` // in the order of ids

	Deadline *orderedPosition `json:"t,omitempty"` // in the order of deadlines
	Scanned  *listPosition    `json:"l,omitempty"` // where all documents are examined
}

// memberText is a member of an index, which JSON cannot have as it is.
type memberText string

// MarshalText implements [encoding.TextMarshaler].
func (m memberText) MarshalText() ([]byte, error) {
	return base64.RawURLEncoding.AppendEncode(nil, []byte(m)), nil
}

// UnmarshalText implements [encoding.TextUnmarshaler].
func (m *memberText) UnmarshalText(text []byte) error {
	member, err := base64.RawURLEncoding.AppendDecode(nil, text)
	*m = memberText(member)
	return err
}

// encode writes the continuation of a page that ends at a place.
func (s selection) encode(at queryPlace) string {
	pos := queryPosition{Where: s.texts, Order: s.order.String(), Count: s.count, Scan: s.scan, queryPlace: at}
	return encodeContinuation(pos)
}

// decodeQuery reads a continuation. The place is still to be checked.
func decodeQuery(continuation string) (s selection, at queryPlace, err error) {
	var pos queryPosition
	if len(continuation) > longestQueryContinuation || decodeContinuation(continuation, &pos) != nil {
		return s, at, errContinuation
	}
	texts := make(map[string][]byte, len(pos.Where))
	for pointer, text := range pos.Where {
		texts[pointer] = text
	}
	where, err := entries.ParseWhere(texts)
	if err != nil {
		return s, at, errContinuation
	}
	order, err := entries.ParseOrder(pos.Order)
	if err != nil {
		return s, at, errContinuation
	}
	if s, err = newSelection(where, order, pos.Count, pos.Scan); err != nil {
		return s, at, errContinuation
	}
	return s, pos.queryPlace, nil
}

// valid reports whether the place is one at which a page of the query ends.
func (at queryPlace) valid(s selection, shards int) bool {
	switch {
	case at.Deadline != nil:
		deadline := *at.Deadline
		at.Deadline = nil
		return s.order.ByDeadline && deadline.valid() && at == queryPlace{}
	case at.Scanned != nil:
		scanned := *at.Scanned
		at.Scanned = nil
		ofList := scanned.Prefix != "" || scanned.Ordered != nil
		return s.order == entries.Order{} && s.scan && !ofList && scanned.valid(shards) && at == queryPlace{}
	case at.ID != "":
		id := at.ID
		at.ID = ""
		return s.order.ByID && wire.CheckID(id) == nil && at == queryPlace{}
	}
	if s.order.ByDeadline || s.order.ByID || (at.Driver == "") != (s.order.Pointer != "") {
		return false
	}
	_, there := s.texts[at.Driver]
	v, id, err := entries.Parse(string(at.Member))
	return err == nil && v.Kind != entries.LeftOut && wire.CheckID(id) == nil && (at.Driver == "" || there)
}

// settle checks the options of a page, and completes them from its continuation. The place is still to be checked,
// unless it is the beginning.
func (o QueryOptions) settle() (s selection, from queryPlace, err error) {
	given, err := newSelection(o.Where, o.Order, o.Count, o.Scan)
	if err != nil {
		return s, from, err
	}
	if s = given; o.Continuation != "" {
		if s, from, err = decodeQuery(o.Continuation); err != nil {
			return s, from, err
		}
	}
	same := func(a, b json.RawMessage) bool { return bytes.Equal(a, b) }
	other := len(given.texts) > 0 && !maps.EqualFunc(given.texts, s.texts, same) ||
		given.order != entries.Order{} && given.order != s.order || given.count && !s.count || given.scan && !s.scan
	if other {
		return s, from, invalid("the continuation is of another query: use where, order, count and scan of the page " +
			"before, " +
			"or begin anew without a continuation")
	}
	if len(s.where) == 0 && s.order == (entries.Order{}) {
		return s, from, invalid("the query has no condition and no order: use one of them, or a list for all documents")
	}
	l := ListOptions{Continuation: o.Continuation, Until: o.Until, Within: o.Within}
	pos := listPosition{Ordered: from.Deadline}
	if s.order.ByDeadline {
		l.Order = wire.ByDeadline
	}
	if err = l.Check(); err == nil {
		err = settle(&l, &pos)
	}
	if err != nil {
		return s, from, err
	}
	from.Deadline = pos.Ordered
	return s, from, nil
}
