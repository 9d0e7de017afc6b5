package client

import (
	"context"
	"encoding/json"
	"iter"

	"github.com/seed18712806/lapse/sink/wire"
)

// QueryOption selects documents of a query, or says how it goes: a condition that begins with [Where], [OrderBy],
// [OrderByID] and [Scan], and of those of a list [ByDeadline], [ExpiringUntil] and [ExpiringWithin].
type QueryOption interface {
	query(*query) error
}

// query is a request, and its conditions by pointer and member.
type query struct {
	wire.QueryRequest
	where map[string]map[string]json.RawMessage
}

// queryOption is an option of queries alone.
type queryOption func(*query) error

func (o queryOption) query(q *query) error { return o(q) }

// query is the option in a query.
func (o ListOption) query(q *query) error {
	list := wire.ListRequest{Order: q.Order, Until: q.Until, Within: q.Within}
	if o(&list); list.Prefix != "" {
		return invalid("a query selects by values, not by the ids: leave the option WithPrefix out, which is for List")
	}
	q.Order, q.Until, q.Within = list.Order, list.Until, list.Within
	return nil
}

// Values are those of a document at a JSON pointer: one, or the elements of an array. A condition holds for a document
// if it holds for one of them.
//
// A value is a string of up to 255 bytes, a number, a boolean, or nil for null. A comparison with a value of another
// type never holds. Several conditions of a query all have to hold. Two of them may be on the same pointer if they are
// the two ends of a range.
type Values struct {
	pointer string
}

// Where begins a condition on the values at a JSON pointer (RFC 6901), such as "/customer" or "/seat/row":
//
//	client.Where("/customer").Eq("c1")
func Where(pointer string) Values { return Values{pointer} }

// Eq is the condition that the value equals another one.
func (v Values) Eq(value any) QueryOption { return v.condition("eq", value) }

// In is the condition that the value equals one of 1 to 100.
func (v Values) In(values ...any) QueryOption { return v.condition("in", values) }

// Gt is the condition that the value is greater than a number or a string. Strings are compared by their bytes.
func (v Values) Gt(value any) QueryOption { return v.condition("gt", value) }

// Gte is the condition that the value is greater than a number or a string, or equals it.
func (v Values) Gte(value any) QueryOption { return v.condition("gte", value) }

// Lt is the condition that the value is less than a number or a string.
func (v Values) Lt(value any) QueryOption { return v.condition("lt", value) }

// Lte is the condition that the value is less than a number or a string, or equals it.
func (v Values) Lte(value any) QueryOption { return v.condition("lte", value) }

// Prefix is the condition that the value is a string that begins with a text.
func (v Values) Prefix(text string) QueryOption { return v.condition("prefix", text) }

// condition adds a member to the condition on the pointer. lapse refuses members that do not go together.
func (v Values) condition(member string, value any) QueryOption {
	return queryOption(func(q *query) error {
		text, err := json.Marshal(value)
		if err != nil {
			return invalid("the value of a condition on %s is not valid (%s): use a string, a number, a boolean or nil",
				wire.Quote(v.pointer), err)
		}
		if q.where == nil {
			q.where = make(map[string]map[string]json.RawMessage)
		}
		if q.where[v.pointer] == nil {
			q.where[v.pointer] = make(map[string]json.RawMessage)
		}
		if _, ok := q.where[v.pointer][member]; ok {
			return invalid("there are two conditions %s on %s: use one, or In for one of several values", member,
				wire.Quote(v.pointer))
		}
		q.where[v.pointer][member] = text
		return nil
	})
}

// OrderBy orders the documents by their values at a JSON pointer, which has to be indexed, and by their ids where these
// are the same; with - before the pointer, such as "-/price", from the greatest value to the least. A document without
// a value there is left out. Types come in the order null, boolean, number, string.
func OrderBy(pointer string) QueryOption { return order(wire.Order(pointer)) }

// OrderByID orders the documents by their ids. It needs an [Values.Eq] or [Values.In] on an indexed pointer.
func OrderByID() QueryOption { return order(wire.ByID) }

func order(by wire.Order) QueryOption {
	return queryOption(func(q *query) error { q.Order = by; return nil })
}

// Scan lets lapse examine all documents of the collection if no index serves the query.
func Scan() QueryOption {
	return queryOption(func(q *query) error { q.QueryRequest.Scan = true; return nil })
}

// newQuery completes a request by the options.
func newQuery(req wire.QueryRequest, options []QueryOption) (wire.QueryRequest, error) {
	q := query{QueryRequest: req}
	for _, o := range options {
		if err := o.query(&q); err != nil {
			return q.QueryRequest, err
		}
	}
	for pointer, members := range q.where {
		text, err := json.Marshal(members)
		if err != nil {
			return q.QueryRequest, err
		}
		if q.Where == nil {
			q.Where = make(map[string]json.RawMessage)
		}
		q.Where[pointer] = text
	}
	return q.QueryRequest, nil
}

// Query yields the live documents for which all conditions hold. What has expired is in the results of no query. It
// reads them page by page while you range over it. It yields each document that nobody writes meanwhile exactly once;
// one that is written comes as it was or as it is, and never in a state that it never had.
//
// An index has to serve the query: see [Config].Indexes. Otherwise the error is [ErrNoIndex], and while the index is
// being made [ErrIndexMade]. Errors come as those of [Collection.List] do.
func (o *Collection[T]) Query(ctx context.Context, options ...QueryOption) iter.Seq2[Document[T], error] {
	return func(yield func(Document[T], error) bool) {
		for page, err := range o.queryPages(ctx, wire.QueryRequest{Limit: wire.MaxListLimit}, options) {
			if err != nil {
				yield(Document[T]{}, err)
				return
			}
			for _, found := range page.Documents {
				doc, err := newDocument[T](found)
				if !yield(doc, o.wrap(found.ID, err)) {
					return
				}
			}
		}
	}
}

// QueryCount counts the documents of a [Collection.Query]. It adds up the counts of all pages, each of which is of what
// was live when lapse read it.
func (o *Collection[T]) QueryCount(ctx context.Context, options ...QueryOption) (n int64, err error) {
	for page, err := range o.queryPages(ctx, wire.QueryRequest{Count: true}, options) {
		switch {
		case err != nil:
			return 0, err
		case page.Count != nil:
			n += *page.Count
		}
	}
	return n, nil
}

// queryPages yields the pages of a request that the options complete. After an error it ends.
func (o *Collection[T]) queryPages(
	ctx context.Context, req wire.QueryRequest, options []QueryOption,
) iter.Seq2[wire.QueryReply, error] {
	return func(yield func(wire.QueryReply, error) bool) {
		req, err := newQuery(req, options)
		for {
			var page wire.QueryReply
			if err == nil {
				page, err = o.c.Query(ctx, o.name, req)
			}
			if !yield(page, o.wrap("", err)) || err != nil || page.Continuation == "" {
				return
			}
			req.Continuation = page.Continuation
		}
	}
}
