package service

import (
	"context"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Sliding is a Reader whose Get renews the clock of a document that is to slide: it appends a touch to
// the log, on the condition that the document is still the version that was read. So it brings nothing
// back, and moves nothing that somebody else has written. It does not wait for the log: if the touch is
// lost with the connection, the next read appends it.
type Sliding struct {
	Reader
	NATS   *nats.Conn
	Prefix wire.Prefix
	Slides prometheus.Counter // of [SlidesTotal]; none if nil
}

// Get reads one document.
func (s Sliding) Get(ctx context.Context, collection, id string) (sink.Document, error) {
	doc, err := s.Reader.Get(ctx, collection, id)
	if err != nil || !doc.Slides {
		return doc, err
	}
	etag := doc.Etag.String()
	err = s.NATS.PublishMsg(&nats.Msg{
		Subject: s.Prefix.Write(wire.Touch, collection, id),
		Header: nats.Header{
			wire.HeaderIfMatch: {etag}, wire.HeaderSlide: {"true"},
			// The log takes one touch of a version, however many processes read it at the same time.
			jetstream.MsgIDHeader: {"slide/" + etag},
		},
	})
	if err == nil && s.Slides != nil {
		s.Slides.Inc()
	}
	return doc, nil
}
