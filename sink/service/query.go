package service

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// ParseQuery reads the body of a query: a [wire.QueryRequest]. Its error is about the request.
func ParseQuery(body []byte) (opts sink.QueryOptions, err error) {
	f, err := wire.ParseFields(body, "where", "order", "until", "within", "count", "scan", "limit", "continuation")
	if err != nil {
		return opts, err
	}
	return QueryOf(f)
}

// QueryOf reads the properties of a query.
func QueryOf(f wire.Fields) (opts sink.QueryOptions, err error) {
	if opts.Limit, opts.Continuation, err = wire.ParsePage(f); err != nil {
		return opts, err
	}
	var where map[string]json.RawMessage
	var order string
	var ordered bool
	if _, err = f.Read("where", &where); err == nil {
		ordered, err = f.Read("order", &order)
	}
	for name, into := range map[string]*bool{"count": &opts.Count, "scan": &opts.Scan} {
		if err == nil {
			_, err = f.Read(name, into)
		}
	}
	if err != nil {
		return opts, err
	}
	if len(where) > 0 {
		conditions := make(map[string][]byte, len(where))
		for pointer, condition := range where {
			conditions[pointer] = condition
		}
		opts.Where, err = entries.ParseWhere(conditions)
	}
	if err == nil && ordered {
		opts.Order, err = entries.ParseOrder(order)
	}
	if err != nil {
		return opts, wire.InvalidRequest("%s", err)
	}
	opts.Until, opts.Within, err = f.Span()
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
