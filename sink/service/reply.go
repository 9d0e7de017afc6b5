package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

func encode(reply any) (*nats.Msg, error) {
	data, err := json.Marshal(reply)
	if err != nil {
		return nil, fmt.Errorf("encode the reply: %w", err)
	}
	return &nats.Msg{Data: data}, nil
}

// EncodePage writes a page as a reply.
func EncodePage(page sink.Page) []byte {
	return wire.ListReply{Documents: documents(page.Documents), Continuation: page.Continuation}.Encode()
}

// documents are those of a page.
func documents(found []sink.Document) []wire.Document {
	all := make([]wire.Document, len(found))
	for i, doc := range found {
		all[i] = wire.Document{
			ID: doc.ID, Etag: doc.Etag, Ts: doc.Ts, ExpiresAt: doc.ExpiresAt, Target: doc.Target, Created: doc.Created,
			Deadline: doc.Deadline,
			NotAfter: doc.NotAfter, Traceparent: doc.Trace, Document: doc.Body,
		}
		if doc.Clock != doc.Ts {
			all[i].Clock = doc.Clock
		}
	}
	return all
}

// failure is the answer to a request that failed.
type failure struct {
	code   int
	text   string
	reason string // for programs; "" if there is none
}

func (f *failure) Error() string { return f.text }

func (f *failure) message(subject string) *nats.Msg {
	m := &nats.Msg{Subject: subject, Header: nats.Header{
		micro.ErrorCodeHeader: {strconv.Itoa(f.code)},
		micro.ErrorHeader:     {f.text},
	}}
	if f.reason != "" {
		m.Header[wire.HeaderReason] = []string{f.reason}
	}
	return m
}

func tooLarge(reply *nats.Msg, most int64) error {
	return &failure{code: wire.StatusTooLarge, text: fmt.Sprintf("the answer is %d bytes long, and the NATS server's "+
		"maximum payload is %d: raise max_payload, or read Redis directly", len(reply.Data), most)}
}

// failureOf is the answer for an error.
func (s *Service) failureOf(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	code, text := StatusOf(err)
	if code >= wire.StatusInternal && s.ctx.Err() != nil {
		text, code = "this process is stopping: try again", wire.StatusUnavailable
	}
	return &failure{code, text, ReasonOf(err)}
}

// StatusOf is the code and the sentence with which lapse answers an error of a [Reader], or of [ParseQuery].
func StatusOf(err error) (code int, text string) {
	var f *failure
	switch {
	case errors.As(err, &f):
		return f.code, f.text
	case errors.Is(err, wire.ErrInvalidName), errors.Is(err, sink.ErrInvalidRequest):
		return wire.StatusBadRequest, err.Error()
	case errors.Is(err, sink.ErrNotFound):
		return wire.StatusNotFound, err.Error()
	case errors.Is(err, sink.ErrUnavailable), errors.Is(err, sink.ErrForeign):
		return wire.StatusUnavailable, err.Error()
	case isTimeout(err):
		return wire.StatusUnavailable, "Redis did not answer in time: try again"
	case isRedisDown(err):
		return wire.StatusUnavailable, "Redis is not available: " + err.Error()
	default:
		return wire.StatusInternal, err.Error()
	}
}

// ReasonOf is the reason of an error of a [Reader] for programs; "" if there is none.
func ReasonOf(err error) string {
	switch {
	case errors.Is(err, sink.ErrNoCollection):
		return wire.ReasonNoCollection
	case errors.Is(err, sink.ErrNoIndex):
		return wire.ReasonNoIndex
	case errors.Is(err, sink.ErrIndexMade):
		return wire.ReasonIndexMade
	}
	return ""
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

// isRedisDown reports whether the cause of an error is that Redis cannot be reached or is not
// up, and not the request.
func isRedisDown(err error) bool {
	var network *net.OpError
	var system *os.SyscallError // what go-redis leaves of a net.OpError when a connection breaks in its handshake
	return errors.As(err, &network) || errors.As(err, &system) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, redis.ErrClosed) || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted) ||
		redis.IsLoadingError(err) || redis.IsClusterDownError(err) || redis.IsTryAgainError(err) ||
		redis.IsMasterDownError(err) || redis.IsMaxClientsError(err) ||
		redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK") // a slot moves
}
