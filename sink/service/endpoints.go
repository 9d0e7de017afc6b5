package service

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
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

func get(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	id, err := wire.UnescapeID(args[1])
	if err != nil {
		return nil, err
	}
	var req wire.GetRequest
	if _, err := parseBody(body, &req, "renew"); err != nil {
		return nil, err
	}
	var doc sink.Document
	if req.Renew {
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
	var req struct {
		wire.ListRequest
		Until string `json:"until"`
	}
	f, err := parseBody(body, &req, "limit", "continuation", "order", "until", "within", "prefix")
	if err != nil {
		return nil, err
	}
	if err := f.check("limit", req.Limit, wire.MaxListLimit); err != nil {
		return nil, err
	}
	opts := sink.ListOptions{Limit: req.Limit, Continuation: req.Continuation, Order: req.Order, Prefix: req.Prefix}
	if opts.Until, opts.Within, err = f.span(req.Until, req.Within); err != nil {
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
	if _, err := parseBody(body, &struct{}{}); err != nil {
		return nil, err
	}
	reply, err := s.reader.Count(ctx, args[0])
	if err != nil {
		return nil, err
	}
	return encode(reply)
}

func forecast(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	var req wire.ForecastRequest
	f, err := parseBody(body, &req, "buckets", "within", "defaultTtl", "maxLife", "minTtl", "maxTtl")
	if err != nil {
		return nil, err
	}
	if err := f.check("buckets", req.Buckets, wire.MaxBuckets); err != nil {
		return nil, err
	}
	opts := sink.ForecastOptions{Buckets: req.Buckets, Least: req.MinTTL, Most: req.MaxTTL, MaxLife: req.MaxLife}
	if _, opts.Within, err = f.span("", req.Within); err != nil {
		return nil, err
	}
	if value, ok := f["defaultTtl"]; ok { // null means off; a default that is left out means the configured one
		d, err := ttlrules.ParseDefault(value)
		if err != nil {
			return nil, badRequest("%s", err)
		}
		opts.Default = &d
	}
	reply, err := s.reader.Forecast(ctx, args[0], opts)
	if err != nil {
		return nil, err
	}
	return encode(reply)
}

func config(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	if _, err := parseBody(body, &struct{}{}); err != nil {
		return nil, err
	}
	reply, err := s.reader.Config(ctx, args[0])
	if err != nil {
		return nil, err
	}
	return encode(reply)
}

func settled(ctx context.Context, s *Service, _ []string, body []byte) (*nats.Msg, error) {
	if _, err := parseBody(body, &struct{}{}); err != nil {
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
	var req wire.CollectionsRequest
	f, err := parseBody(body, &req, "limit", "continuation")
	if err != nil {
		return nil, err
	}
	if err := f.check("limit", req.Limit, wire.MaxListLimit); err != nil {
		return nil, err
	}
	opts := sink.CollectionsOptions{Limit: req.Limit, Continuation: req.Continuation}
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
