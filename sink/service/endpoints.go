package service

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/wire"
)

// endpoint is one verb of the service.
type endpoint struct {
	verb      string
	arguments string // the tokens after the verb in the subject, the collection first; "" if there are none
	handle    func(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error)
}

var endpoints = []endpoint{
	{"get", "<collection>.<id>", get},
	{"list", "<collection>", list},
	{"query", "<collection>", query},
	{"count", "<collection>", count},
	{"forecast", "<collection>", forecast},
	{"config", "<collection>", config},
	{"collections", "", collections},
	{"settled", "<collection>", settled},
}

// arguments are the tokens after the verb in the subject of a request: the name of the
// collection, and those that the endpoint has besides.
func (s *Service) arguments(subject string, e endpoint) ([]string, error) {
	if e.arguments == "" {
		return nil, nil
	}
	tokens := strings.Split(strings.TrimPrefix(subject, s.opts.Prefix.Read(e.verb, "")), ".")
	if n := strings.Count(e.arguments, ".") + 1; len(tokens) != n {
		return nil, wire.InvalidRequest("the subject has %d tokens after %q: use %s, "+
			"and in an id write every byte but A-Z a-z 0-9 _ - ~ : @ + = , as %%XX (a dot is %%2E)", len(tokens), e.verb,
			s.usage(e))
	}
	return tokens, wire.CheckCollection(tokens[0])
}

func get(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	id, err := wire.UnescapeID(args[1])
	if err != nil {
		return nil, err
	}
	renew := false
	f, err := wire.ParseFields(body, "renew")
	if err == nil {
		_, err = f.Read("renew", &renew)
	}
	if err != nil {
		return nil, err
	}
	var doc sink.Document
	if renew {
		doc, err = Renewed(ctx, s.reader, args[0], id)
	} else {
		doc, err = s.reader.Get(ctx, args[0], id)
	}
	if err != nil {
		return nil, err
	}
	header := nats.Header{wire.HeaderEtag: {doc.Etag.String()}, wire.HeaderTs: {doc.Ts.String()}}
	if doc.ExpiresAt != nil {
		header[wire.HeaderExpiresAt] = []string{doc.ExpiresAt.String()}
	}
	if doc.Target != "" {
		header[wire.HeaderTarget] = []string{doc.Target}
	}
	return &nats.Msg{Header: header, Data: doc.Body}, nil
}

func list(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	f, err := wire.ParseFields(body, wire.ListFields...)
	if err != nil {
		return nil, err
	}
	opts, err := wire.ParseList(f)
	if err != nil {
		return nil, err
	}
	return s.page(&opts.Limit, &opts.MaxBytes, func() ([]byte, int, error) {
		page, err := s.reader.List(ctx, args[0], opts)
		return EncodePage(page), len(page.Documents), err
	})
}

// page answers with a page that the server's maximum payload has room for. read reads one of up to some documents, and
// bytes of them.
func (s *Service) page(documents, bytes *int, read func() (reply []byte, n int, err error)) (*nats.Msg, error) {
	most := int(s.nc.MaxPayload())
	*bytes = most - most/8 // leaves room for the JSON around the documents, unless they are tiny
	for {
		reply, n, err := read()
		if err != nil {
			return nil, err
		}
		if len(reply) <= most || n <= 1 {
			return &nats.Msg{Data: reply}, nil
		}
		// The JSON around the documents, or escapes in their ids, took more than that room. A
		// continuation is only valid for its page, so a shorter page has to be read.
		*documents = max(1, n*most/len(reply))
	}
}

func count(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	if _, err := wire.ParseFields(body); err != nil {
		return nil, err
	}
	reply, err := s.reader.Count(ctx, args[0])
	if err != nil {
		return nil, err
	}
	return encode(reply)
}

func forecast(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	f, err := wire.ParseFields(body, wire.ForecastFields...)
	if err != nil {
		return nil, err
	}
	opts, err := wire.ParseForecast(f)
	if err != nil {
		return nil, err
	}
	reply, err := s.reader.Forecast(ctx, args[0], opts)
	if err != nil {
		return nil, err
	}
	return encode(reply)
}

func config(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	if _, err := wire.ParseFields(body); err != nil {
		return nil, err
	}
	reply, err := s.reader.Config(ctx, args[0])
	if err != nil {
		return nil, err
	}
	return encode(reply)
}

func settled(ctx context.Context, s *Service, _ []string, body []byte) (*nats.Msg, error) {
	if _, err := wire.ParseFields(body); err != nil {
		return nil, err
	}
	if s.opts.Settled == nil {
		return nil, fmt.Errorf("%w: this process cannot tell", sink.ErrUnavailable)
	}
	reply, err := s.opts.Settled(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", sink.ErrUnavailable, err)
	}
	return encode(reply)
}

func collections(ctx context.Context, s *Service, _ []string, body []byte) (*nats.Msg, error) {
	f, err := wire.ParseFields(body, "limit", "continuation")
	if err != nil {
		return nil, err
	}
	var opts sink.CollectionsOptions
	if opts.Limit, opts.Continuation, err = wire.ParsePage(f); err != nil {
		return nil, err
	}
	for {
		reply, err := s.reader.Collections(ctx, opts)
		if err != nil {
			return nil, err
		}
		msg, err := encode(reply)
		n, most := len(reply.Collections), int(s.nc.MaxPayload())
		if err != nil || len(msg.Data) <= most || n <= 1 {
			return msg, err
		}
		opts.Limit = max(1, n*most/len(msg.Data)-1) // a shorter page has another continuation, so read it
	}
}

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
