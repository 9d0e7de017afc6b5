package service

import (
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// endpoint is one verb of the service.
type endpoint struct {
	verb      string
	arguments string // the tokens that follow it in the subject, a collection first
	handle    func(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error)
}

var endpoints = []endpoint{
	{"get", "<collection>.<id>", get},
	{"list", "<collection>", list},
	{"count", "<collection>", count},
	{"forecast", "<collection>", forecast},
	{"config", "<collection>", config},
}

func get(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	id, err := wire.UnescapeID(args[1])
	if err != nil {
		return nil, err
	}
	if _, err := parseBody(body, &struct{}{}); err != nil {
		return nil, err
	}
	doc, err := s.reader.Get(ctx, args[0], id)
	if err != nil {
		return nil, err
	}
	header := nats.Header{wire.HeaderEtag: {doc.Etag.String()}, wire.HeaderTs: {doc.Ts.String()}}
	if doc.ExpiresAt != nil {
		header[wire.HeaderExpiresAt] = []string{doc.ExpiresAt.String()}
	}
	return &nats.Msg{Header: header, Data: doc.Body}, nil
}

func list(ctx context.Context, s *Service, args []string, body []byte) (*nats.Msg, error) {
	var req wire.ListRequest
	f, err := parseBody(body, &req, "limit", "continuation")
	if err != nil {
		return nil, err
	}
	if f.has("limit") && (req.Limit < 1 || req.Limit > wire.MaxListLimit) {
		return nil, badRequest("limit is %d: allowed is %s", req.Limit, describe("limit"))
	}
	most := s.nc.MaxPayload()
	opts := sink.ListOptions{
		Limit:        req.Limit,
		MaxBytes:     int(most - most/8), // leaves room for what is around the documents, unless they are tiny
		Continuation: req.Continuation,
	}
	for {
		page, err := s.reader.List(ctx, args[0], opts)
		if err != nil {
			return nil, err
		}
		reply, n := encodePage(page), len(page.Documents)
		if len(reply) <= int(most) || n <= 1 {
			return &nats.Msg{Data: reply}, nil
		}
		// What is around the documents, or escaping their ids, took more than
		// the room left for it. The continuation belongs to the page, so a
		// shorter one has to be read.
		opts.Limit = max(1, n*int(most)/len(reply))
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
	f, err := parseBody(body, &req, "buckets", "within")
	if err != nil {
		return nil, err
	}
	if f.has("buckets") && (req.Buckets < 1 || req.Buckets > wire.MaxBuckets) {
		return nil, badRequest("buckets is %d: allowed is %s", req.Buckets, describe("buckets"))
	}
	var within time.Duration
	if f.has("within") {
		if within, err = time.ParseDuration(req.Within); err != nil || within <= 0 {
			return nil, badRequest("within is %q: allowed is %s", abbreviate(req.Within), describe("within"))
		}
	}
	reply, err := s.reader.Forecast(ctx, args[0], req.Buckets, within)
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
