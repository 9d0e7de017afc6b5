package sink

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"

	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

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
		return s, from, invalid("the continuation is of another query: use where, order, count and scan of the page before, " +
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
