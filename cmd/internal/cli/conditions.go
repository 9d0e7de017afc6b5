package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

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
func countQuery(ctx context.Context, conn *client.Client, collection string, req wire.QueryRequest) (n counted, err error) {
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
