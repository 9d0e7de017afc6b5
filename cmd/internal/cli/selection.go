package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// Selection says which documents a list has, and in which order.
type Selection struct {
	Conditions
	Order      *QueryOrder `placeholder:"ORDER"`
	ByDeadline bool        `name:"by-deadline"`
	Within     *Period     `placeholder:"TIME"`
	Until      *wire.Time  `placeholder:"INSTANT"`
	IDPrefix   string      `name:"id-prefix" placeholder:"TEXT"`
}

// order is the order that the flags ask for.
func (s Selection) order() (wire.Order, error) {
	order := wire.Order(Text(s.Order))
	if s.ByDeadline && order != "" && order != wire.ByDeadline {
		return "", output.Usagef("--by-deadline and --order %s do not go together: leave out one of them", order)
	}
	if s.ByDeadline {
		order = wire.ByDeadline
	}
	return order, nil
}

// pager asks for the pages of a list, or of a query.
type pager struct {
	list    wire.ListRequest
	query   wire.QueryRequest
	queries bool // it is a query
}

// pager returns what reads the selected documents in pages.
func (s Selection) pager(limit int, continuation string) (pager, error) {
	order, err := s.order()
	if err != nil {
		return pager{}, err
	}
	switch {
	case order != wire.ByDeadline && (s.Within != nil || s.Until != nil):
		return pager{}, output.Usagef("--within and --until limit a list by deadline: add --by-deadline")
	case s.Within != nil && s.Until != nil:
		return pager{}, output.Usagef("--within and --until are both set: use one of them")
	case order != "" && s.IDPrefix != "":
		return pager{}, output.Usagef("an order, such as --by-deadline, and --id-prefix do not go together: leave out " +
			"one of them")
	case len(s.Where) > 0 && s.IDPrefix != "":
		return pager{}, output.Usagef("--where and --id-prefix do not go together: leave out one of them")
	case s.Within != nil && *s.Within <= 0:
		return pager{}, output.Usagef("--within %s is not valid: use a duration over 0 such as 90s, 12h or 7d",
			time.Duration(*s.Within))
	}
	within := ""
	if s.Within != nil {
		within = time.Duration(*s.Within).String()
	}
	query, err := s.Conditions.request()
	if err != nil {
		return pager{}, err
	}
	if len(s.Where) == 0 && (order == "" || order == wire.ByDeadline) {
		return pager{list: wire.ListRequest{
			Limit: limit, Continuation: continuation, Order: order, Until: s.Until, Within: within, Prefix: s.IDPrefix,
		}}, nil
	}
	query.Limit, query.Continuation, query.Order, query.Until, query.Within = limit, continuation, order, s.Until, within
	return pager{query: query, queries: true}, nil
}

// page is a page of a list or of a query.
type page struct {
	Documents    []wire.Document
	Continuation string
	Reply        any // as lapse sent it
	Examined     int64
}

// next reads the next page.
func (p *pager) next(ctx context.Context, conn *client.Client, collection string) (page, error) {
	if p.queries {
		reply, err := conn.Query(ctx, collection, p.query)
		p.query.Continuation = reply.Continuation
		return page{reply.Documents, reply.Continuation, reply, reply.Examined}, err
	}
	reply, err := conn.List(ctx, collection, p.list)
	p.list.Continuation = reply.Continuation
	return page{reply.Documents, reply.Continuation, reply, 0}, err
}

// first reads the first page. If there is nothing, it checks that the collection exists.
func (p *pager) first(ctx context.Context, conn *client.Client, collection string) (page, error) {
	found, err := p.next(ctx, conn, collection)
	return found, checkFound(ctx, conn, collection, len(found.Documents) > 0 || found.Continuation != "", err)
}

// checkFound returns the error of a read; or that there is no such collection, if that is why nothing was found, or why
// no index serves a query.
func checkFound(ctx context.Context, conn *client.Client, collection string, found bool, err error) error {
	if err == nil && !found || errors.Is(err, client.ErrNoIndex) {
		return cmp.Or(checkExists(ctx, conn, collection), err)
	}
	return err
}

// Pointer is a JSON pointer, which the user may also write as names with dots between them.
type Pointer string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *Pointer) UnmarshalText(text []byte) error {
	pointer, err := entries.PointerOf(string(text))
	*p = Pointer(pointer)
	return endless(err)
}

// QueryOrder is the order of a list. A nil pointer means that the user did not give it.
type QueryOrder wire.Order

// Decode implements [kong.MapperValue], because kong takes -price for flags.
func (o *QueryOrder) Decode(ctx *kong.DecodeContext) error {
	token := ctx.Scan.Pop()
	if token.IsEOL() {
		return errors.New("a value is missing")
	}
	order, err := entries.OrderOf(token.String())
	*o = QueryOrder(order)
	return endless(err)
}

// endless is a sentence without its full stop: the command line adds which help to read.
func endless(err error) error {
	if err == nil {
		return nil
	}
	return errors.New(strings.TrimSuffix(err.Error(), "."))
}

// Conditions are the flags of commands about the documents for which conditions hold.
type Conditions struct {
	Where []string `sep:"none" placeholder:"CONDITION"`
	Scan  bool
}

// request is the request for the first page of a query.
func (c Conditions) request() (req wire.QueryRequest, err error) {
	req.Scan = c.Scan
	if len(c.Where) == 0 {
		if c.Scan {
			err = output.Usagef("--scan is about the conditions of a query: add --where, or leave it out")
		}
		return req, err
	}
	where, err := entries.Merge(c.Where)
	if err != nil {
		return req, output.Usagef("--where: %w", err)
	}
	req.Where = make(map[string]json.RawMessage)
	for pointer, condition := range where {
		req.Where[pointer] = condition
	}
	return req, nil
}

// counted is how many documents a query has counted.
type counted struct {
	Count    int64 `json:"count"`
	Examined int64 `json:"examined"`
}

// countQuery counts the documents of a query, and adds up the pages. If there is none, it checks that the collection
// exists.
func countQuery(
	ctx context.Context, conn *client.Client, collection string, req wire.QueryRequest,
) (n counted, err error) {
	for req.Count = true; ; {
		page, err := conn.Query(ctx, collection, req)
		if err != nil {
			return n, checkFound(ctx, conn, collection, false, err)
		}
		if n.Examined += page.Examined; page.Count != nil {
			n.Count += *page.Count
		}
		if req.Continuation = page.Continuation; req.Continuation == "" {
			return n, checkFound(ctx, conn, collection, n.Count > 0, nil)
		}
	}
}
