package service

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Sliding is a Reader whose Get renews the clock of a document that is to slide: it appends a touch to
// the log, on the condition that the document is still the version that was read. So it brings nothing
// back, and moves nothing that somebody else has written. It does not wait for the log: if the touch is
// lost with the connection, the next read appends it. Renew waits.
type Sliding struct {
	Reader
	NATS   *nats.Conn
	Prefix wire.Prefix
	Slides prometheus.Counter // of [SlidesTotal]; none if nil
}

// slideKey is known to this process alone.
var slideKey = []byte(rand.Text())

// slideID is the message id of a touch that renews a deadline of a version. By it the log takes one from this process,
// however often that reads the version before the touch is applied. Nobody else can compute it: a client that knew it
// could use it up with a write of its own, and the document of another client would expire.
func slideID(doc sink.Document) string {
	h := hmac.New(sha256.New, slideKey)
	h.Write([]byte(doc.Etag.String()))
	if doc.ExpiresAt != nil {
		h.Write([]byte("/" + doc.ExpiresAt.String())) // a renewal leaves the etag
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:18])
}

// touch is the message that renews the clock of a document that was read.
func (s Sliding) touch(collection, id string, doc sink.Document) *nats.Msg {
	etag := doc.Etag.String()
	return &nats.Msg{
		Subject: s.Prefix.Write(wire.Touch, collection, id),
		Header: nats.Header{
			wire.HeaderIfMatch: {etag}, wire.HeaderSlide: {"true"},
			jetstream.MsgIDHeader: {slideID(doc)},
		},
	}
}

// count counts a touch.
func (s Sliding) count() {
	if s.Slides != nil {
		s.Slides.Inc()
	}
}

// Get reads one document.
func (s Sliding) Get(ctx context.Context, collection, id string) (sink.Document, error) {
	doc, err := s.Reader.Get(ctx, collection, id)
	if err != nil || !doc.Slides {
		return doc, err
	}
	if s.NATS.PublishMsg(s.touch(collection, id, doc)) == nil {
		s.count()
	}
	return doc, nil
}

// renewWithin limits how long Renew waits, and renewPoll how long between two reads.
const (
	renewWithin = 5 * time.Second
	renewPoll   = 50 * time.Millisecond
)

// Renew is a Get that waits until the renewal is applied, if the document is to slide, and returns it with its new
// deadline. Its error is a sink.ErrUnavailable if that takes too long: then the renewal may still come.
func (s Sliding) Renew(ctx context.Context, collection, id string) (sink.Document, error) {
	doc, err := s.Reader.Get(ctx, collection, id)
	if err != nil || !doc.Slides {
		return doc, err
	}
	ctx, cancel := context.WithTimeout(ctx, renewWithin)
	defer cancel()
	reply, err := s.NATS.RequestMsgWithContext(ctx, s.touch(collection, id, doc))
	if err != nil {
		return doc, fmt.Errorf("%w: the log did not take the renewal (%w): try again, or read without renew",
			sink.ErrUnavailable, err)
	}
	var answer struct { // an error has the stream too
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	if json.Unmarshal(reply.Data, &answer) != nil || answer.Stream == "" || answer.Error != nil {
		return doc, fmt.Errorf("%w: the log did not take the renewal (%s): try again, or read without renew",
			sink.ErrUnavailable, reply.Data)
	}
	s.count()
	for pause := time.Millisecond; ; pause = min(2*pause, renewPoll) {
		next, err := s.Reader.Get(ctx, collection, id)
		switch {
		case err != nil && ctx.Err() == nil:
			return next, err
		case err == nil && (!next.Slides || next.Etag != doc.Etag || *next.ExpiresAt != *doc.ExpiresAt):
			return next, nil
		}
		select {
		case <-ctx.Done():
			return doc, fmt.Errorf("%w: the renewal is in the log, and is not applied yet: read again", sink.ErrUnavailable)
		case <-time.After(pause):
		}
	}
}

// Renewer is a Reader that can wait for the renewal of a document that is to slide, such as a [Sliding].
type Renewer interface {
	Renew(ctx context.Context, collection, id string) (sink.Document, error)
}

// Renewed reads one document; if the Reader is a [Renewer], after its renewal.
func Renewed(ctx context.Context, r Reader, collection, id string) (sink.Document, error) {
	if renewer, ok := r.(Renewer); ok {
		return renewer.Renew(ctx, collection, id)
	}
	return r.Get(ctx, collection, id)
}
