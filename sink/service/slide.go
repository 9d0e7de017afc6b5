package service

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"

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

// slideKey is known to this process alone.
var slideKey = []byte(rand.Text())

// slideID is the message id of a touch of a version. By it the log takes one from this process, however often that
// reads the version before the touch is applied. Nobody else can compute it: a client that knew it could use it up with
// a write of its own, and the document of another client would expire.
func slideID(etag string) string {
	h := hmac.New(sha256.New, slideKey)
	h.Write([]byte(etag))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
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
			jetstream.MsgIDHeader: {slideID(etag)},
		},
	})
	if err == nil && s.Slides != nil {
		s.Slides.Inc()
	}
	return doc, nil
}
