package service

import (
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
)

// record records the answer to a request.
func (s *Service) record(e endpoint, req *nats.Msg, code int, began time.Time) {
	span := trace.Span{Kind: trace.Read, Parent: traceparent(req.Header), Subject: "read." + e.verb, Status: code, Began: began, Ended: time.Now()}
	if e.arguments != "" {
		span.Subject += "." + e.arguments
	}
	if args, err := s.arguments(req.Subject, e); err == nil && len(args) > 0 {
		span.Collection = args[0]
	}
	s.opts.Trace(span)
}

// traceparent is the one of a request, if that is valid. Clients write the name of the header in
// different cases.
func traceparent(h nats.Header) string {
	for name, values := range h {
		if strings.EqualFold(name, wire.HeaderTrace) && len(values) == 1 && wire.ValidTraceparent(values[0]) {
			return values[0]
		}
	}
	return ""
}
