package service

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// ParseQuery reads the body of a query: a [wire.QueryRequest]. Its error is about the request.
func ParseQuery(body []byte) (opts sink.QueryOptions, err error) {
	var req struct {
		wire.QueryRequest
		Until string `json:"until"`
	}
	f, err := parseBody(body, &req, "where", "order", "until", "within", "count", "scan", "limit", "continuation")
	if err != nil {
		return opts, err
	}
	if err := f.check("limit", req.Limit, wire.MaxListLimit); err != nil {
		return opts, err
	}
	opts = sink.QueryOptions{Limit: req.Limit, Continuation: req.Continuation, Count: req.Count, Scan: req.Scan}
	where := make(map[string][]byte, len(req.Where))
	for pointer, condition := range req.Where {
		where[pointer] = condition
	}
	if len(where) > 0 {
		if opts.Where, err = entries.ParseWhere(where); err != nil {
			return opts, badRequest("%s", err)
		}
	}
	if f.has("order") {
		if opts.Order, err = entries.ParseOrder(string(req.Order)); err != nil {
			return opts, badRequest("%s", err)
		}
	}
	opts.Until, opts.Within, err = f.span(req.Until, req.Within)
	return opts, err
}

func query(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	opts, err := ParseQuery(body)
	if err != nil {
		return nil, err
	}
	return s.page(&opts.Limit, &opts.MaxBytes, func() ([]byte, int, error) {
		page, err := s.reader.Query(ctx, args[0], opts)
		if err != nil {
			return nil, 0, err
		}
		return EncodeQuery(page), len(page.Documents), nil
	})
}

// EncodeQuery writes a page of a query as a reply.
func EncodeQuery(page sink.QueryPage) []byte {
	return wire.QueryReply{
		Documents: documents(page.Documents), Count: page.Count, Examined: page.Examined, Continuation: page.Continuation,
	}.Encode()
}
