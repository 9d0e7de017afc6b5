// Package readers reads documents in each of the ways that clients have.
package readers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Reads is one way to read documents. Get returns sink.ErrNotFound for a document that
// is expired or absent.
type Reads interface {
	Get(ctx context.Context, collection, id string) (sink.Document, error)
	// List returns a whole collection.
	List(ctx context.Context, collection string) ([]sink.Document, error)
	// Expiring returns the documents of a collection that will expire, by their deadlines and ids.
	Expiring(ctx context.Context, collection string) ([]sink.Document, error)
	Count(ctx context.Context, collection string) (wire.CountReply, error)
	Config(ctx context.Context, collection string) (wire.Config, error)
	String() string
}

// ByService reads through the read service on NATS.
func ByService(nc *nats.Conn, prefix wire.Prefix) Service { return Service{nc, prefix} }

// ByReader reads from Redis through a sink.Reader.
func ByReader(r *sink.Reader) Reads { return reader{r} }

type reader struct{ *sink.Reader }

func (reader) String() string { return "sink.Reader" }

// firstPage is small, so that a list needs continuations; later pages are larger.
const firstPage, firstExpiring, largestPage = 50, 2, 1000

func (r reader) List(ctx context.Context, collection string) ([]sink.Document, error) {
	return r.list(ctx, collection, firstPage, "")
}

func (r reader) Expiring(ctx context.Context, collection string) ([]sink.Document, error) {
	return r.list(ctx, collection, firstExpiring, wire.ByDeadline)
}

func (r reader) list(ctx context.Context, collection string, first int, order wire.Order) ([]sink.Document, error) {
	return pages(first, func(limit int, continuation string) ([]sink.Document, string, error) {
		page, err := r.Reader.List(ctx, collection, sink.ListOptions{Limit: limit, Continuation: continuation,
			Order: order})
		return page.Documents, page.Continuation, err
	})
}

// pages reads all pages of a list.
func pages(limit int, read func(limit int, continuation string) ([]sink.Document, string, error)) (all []sink.Document,
	err error) {
	continuation := ""
	for first := true; first || continuation != ""; first = false {
		var page []sink.Document
		if page, continuation, err = read(limit, continuation); err != nil {
			return nil, err
		}
		all = append(all, page...)
		limit = min(2*limit, largestPage)
	}
	return all, nil
}

// Service reads through the read service. The page of a list is one JSON text, so the bytes of
// a document may differ from those that were written.
type Service struct {
	nc     *nats.Conn
	prefix wire.Prefix
}

func (Service) String() string { return "the read service" }

func (s Service) request(ctx context.Context, subject string, request, reply any) (*nats.Msg, error) {
	data := []byte{}
	if request != nil {
		var err error
		if data, err = json.Marshal(request); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	msg, err := s.nc.RequestWithContext(ctx, subject, data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	switch code := msg.Header.Get("Nats-Service-Error-Code"); code {
	case "":
	case "404":
		return nil, sink.ErrNotFound
	default:
		return nil, fmt.Errorf("%s: error %s: %s", subject, code, msg.Header.Get("Nats-Service-Error"))
	}
	if reply != nil {
		if err := json.Unmarshal(msg.Data, reply); err != nil {
			return nil, fmt.Errorf("%s: reply %.200q: %w", subject, msg.Data, err)
		}
	}
	return msg, nil
}

func (s Service) Get(ctx context.Context, collection, id string) (sink.Document, error) {
	msg, err := s.request(ctx, s.prefix.ReadGet(collection, id), nil, nil)
	if err != nil {
		return sink.Document{}, err
	}
	d := sink.Document{ID: id, Body: msg.Data, Target: msg.Header.Get(wire.HeaderTarget)}
	if d.Etag, err = wire.ParseEtag(msg.Header.Get(wire.HeaderEtag)); err != nil {
		return d, err
	}
	if err := d.Ts.UnmarshalText([]byte(msg.Header.Get(wire.HeaderTs))); err != nil {
		return d, err
	}
	if text := msg.Header.Get(wire.HeaderExpiresAt); text != "" {
		d.ExpiresAt = new(wire.Time)
		if err := d.ExpiresAt.UnmarshalText([]byte(text)); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (s Service) List(ctx context.Context, collection string) ([]sink.Document, error) {
	return s.list(ctx, collection, firstPage, "")
}

func (s Service) Expiring(ctx context.Context, collection string) ([]sink.Document, error) {
	return s.list(ctx, collection, firstExpiring, wire.ByDeadline)
}

func (s Service) list(ctx context.Context, collection string, first int, order wire.Order) ([]sink.Document, error) {
	return pages(first, func(limit int, continuation string) (page []sink.Document, next string, err error) {
		var reply wire.ListReply
		_, err = s.request(ctx, s.prefix.Read("list", collection),
			wire.ListRequest{Limit: limit, Continuation: continuation, Order: order}, &reply)
		for _, d := range reply.Documents {
			page = append(page,
				sink.Document{ID: d.ID, Etag: d.Etag, Ts: d.Ts, ExpiresAt: d.ExpiresAt, Target: d.Target,
					Clock: cmp.Or(d.Clock, d.Ts), Created: d.Created, Deadline: d.Deadline, NotAfter: d.NotAfter,
					Body: d.Document})
		}
		return page, reply.Continuation, err
	})
}

func (s Service) Count(ctx context.Context, collection string) (reply wire.CountReply, err error) {
	_, err = s.request(ctx, s.prefix.Read("count", collection), nil, &reply)
	return reply, err
}

func (s Service) Config(ctx context.Context, collection string) (reply wire.Config, err error) {
	_, err = s.request(ctx, s.prefix.Read("config", collection), nil, &reply)
	return reply, err
}
