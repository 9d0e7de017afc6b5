package cli

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
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
		return pager{}, output.Usagef("an order, such as --by-deadline, and --id-prefix do not go together: leave out one of them")
	case len(s.Where) > 0 && s.IDPrefix != "":
		return pager{}, output.Usagef("--where and --id-prefix do not go together: leave out one of them")
	case s.Within != nil && *s.Within <= 0:
		return pager{}, output.Usagef("--within %s is not valid: use a duration over 0 such as 90s, 12h or 7d", time.Duration(*s.Within))
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
