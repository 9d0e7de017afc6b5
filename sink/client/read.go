package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/sink/wire"
)

// Get reads a document. A document that does not exist or has expired is a [ReadError] with
// the code 404.
func (c *Client) Get(ctx context.Context, collection, id string) (wire.Document, error) {
	return c.get(ctx, collection, id, nil)
}

// GetRenewed is a Get that waits until the read has renewed the clock of a document that slides, if it is to: the
// document has the new deadline.
func (c *Client) GetRenewed(ctx context.Context, collection, id string) (wire.Document, error) {
	body, err := json.Marshal(wire.GetRequest{Renew: true})
	if err != nil {
		return wire.Document{}, err
	}
	return c.get(ctx, collection, id, body)
}

// get is Get with the body of the request.
func (c *Client) get(ctx context.Context, collection, id string, body []byte) (wire.Document, error) {
	msg, err := c.request(ctx, c.l.Prefix.ReadGet(collection, id), body)
	if err != nil {
		return wire.Document{}, err
	}
	doc := wire.Document{ID: id, Document: msg.Data, Target: msg.Header.Get(wire.HeaderTarget)}
	err = errors.Join(
		doc.Etag.UnmarshalText([]byte(msg.Header.Get(wire.HeaderEtag))),
		doc.Ts.UnmarshalText([]byte(msg.Header.Get(wire.HeaderTs))),
	)
	if text := msg.Header.Get(wire.HeaderExpiresAt); text != "" {
		doc.ExpiresAt = new(wire.Time)
		err = errors.Join(err, doc.ExpiresAt.UnmarshalText([]byte(text)))
	}
	if err != nil {
		return wire.Document{}, fmt.Errorf("the reply is not valid: %w", err)
	}
	return doc, nil
}

// List reads a page of a collection. To read all pages, repeat it with the continuation of
// the reply until there is none.
func (c *Client) List(ctx context.Context, collection string, req wire.ListRequest) (wire.ListReply, error) {
	return read[wire.ListReply](ctx, c, "list", collection, req)
}

// Query reads a page of the documents for which all conditions hold, or counts those of a page. To read all pages,
// repeat it with the continuation of the reply until there is none: a page may be empty and not be the last.
func (c *Client) Query(ctx context.Context, collection string, req wire.QueryRequest) (wire.QueryReply, error) {
	return read[wire.QueryReply](ctx, c, "query", collection, req)
}

// Count counts the documents of a collection.
func (c *Client) Count(ctx context.Context, collection string) (wire.CountReply, error) {
	return read[wire.CountReply](ctx, c, "count", collection, nil)
}

// Forecast counts the documents that will expire.
func (c *Client) Forecast(
	ctx context.Context, collection string, req wire.ForecastRequest,
) (wire.ForecastReply, error) {
	return read[wire.ForecastReply](ctx, c, "forecast", collection, req)
}

// Config reads a collection's configuration.
func (c *Client) Config(ctx context.Context, collection string) (wire.Config, error) {
	return read[wire.Config](ctx, c, "config", collection, nil)
}

// Collections reads a page of the list of collections.
func (c *Client) Collections(ctx context.Context, req wire.CollectionsRequest) (wire.CollectionsReply, error) {
	reply, err := read[wire.CollectionsReply](ctx, c, "collections", "", req)
	if err != nil {
		return reply, err
	}
	for _, one := range reply.Collections {
		if err := wire.CheckCollection(one.Name); err != nil {
			return wire.CollectionsReply{}, fmt.Errorf("the answer is not lapse's: %w", err)
		}
	}
	return reply, nil
}

func read[Reply any](ctx context.Context, c *Client, verb, collection string, req any) (reply Reply, err error) {
	var body []byte
	if req != nil {
		if body, err = json.Marshal(req); err != nil {
			return reply, err
		}
	}
	subject := c.l.Prefix.Read(verb, collection)
	if collection == "" {
		subject = c.l.Prefix.ReadCollections()
	}
	msg, err := c.request(ctx, subject, body)
	if err != nil {
		return reply, err
	}
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return reply, fmt.Errorf("the reply is not valid: %w", err)
	}
	return reply, nil
}

func (c *Client) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	msg, err := c.l.Request(ctx, subject, body)
	if err != nil {
		return nil, err
	}
	if code := msg.Header.Get(micro.ErrorCodeHeader); code != "" {
		n, err := strconv.Atoi(code)
		if err != nil {
			n = wire.StatusInternal
		}
		return nil, &ReadError{Code: n, Text: msg.Header.Get(micro.ErrorHeader), Kind: msg.Header.Get(wire.HeaderReason)}
	}
	return msg, nil
}

// connectedEvery is how often a message that waits for a connection looks for one.
const connectedEvery = 25 * time.Millisecond

// Send publishes a message. If there is no connection, it waits for one as long as ctx and
// the timeout allow: nothing is sent before.
func (l *connection) Send(ctx context.Context, msg *nats.Msg) error {
	within, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	for {
		err := l.NC.PublishMsg(msg)
		if err == nil || !l.isUnsent(err) || l.AwaitConnection(within) != nil {
			return err
		}
	}
}

// isUnsent reports whether a message was not sent because there was no connection. There may be one again by now.
func (l *connection) isUnsent(err error) bool {
	return errors.Is(err, nats.ErrReconnectBufExceeded) || l.IsLost() && !errors.Is(err, nats.ErrMaxPayload)
}

// AwaitConnection waits for a connection as long as ctx and the timeout allow.
func (l *connection) AwaitConnection(ctx context.Context) error {
	if !l.IsLost() {
		return nil
	}
	again := time.NewTicker(connectedEvery)
	defer again.Stop()
	end := time.NewTimer(l.Timeout)
	defer end.Stop()
	for l.IsLost() {
		if l.NC.IsClosed() {
			return l.Lost()
		}
		select {
		case <-again.C:
		case <-end.C:
			return l.Lost()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// askAttempts is how often a question is put to JetStream.
const askAttempts = 3

// Ask puts a question to JetStream, which changes nothing, and puts it again if no answer comes. In
// a cluster a question or its answer can be lost while the servers learn of a new connection or of
// a new leader. All attempts together take no longer than the timeout.
func (l *connection) Ask(ctx context.Context, ask func(context.Context) error) (err error) {
	for range askAttempts {
		attempt, cancel := context.WithTimeout(ctx, l.Timeout/askAttempts)
		err = ask(attempt)
		cancel()
		if err == nil || ctx.Err() != nil || !isTimeout(err) {
			return err
		}
	}
	return err
}

// Request sends a request and returns the reply. A request changes nothing, so it may be
// repeated after any error.
func (l *connection) Request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	within, cancel := l.Within(ctx, subject)
	defer cancel()
	err := l.AwaitConnection(within)
	var msg *nats.Msg
	if err == nil {
		msg, err = l.requestThere(within, subject, body)
	}
	switch {
	case err == nil:
		return msg, nil
	case denial(within) != nil:
		return nil, denial(within)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, ErrUnavailable):
		return nil, err
	case l.IsLost():
		return nil, l.Lost()
	case isTimeout(err):
		return nil, unavailable("no reply within %s: if lapse is only slow, use a longer timeout", l.Timeout)
	}
	return nil, fmt.Errorf("request %s: %w", subject, err)
}

// requestThere sends a request, and sends it again while nobody listens on its subject: lapse may be starting.
func (l *connection) requestThere(within context.Context, subject string, body []byte) (*nats.Msg, error) {
	for try := 0; ; try++ {
		msg, err := l.NC.RequestWithContext(within, subject, body)
		switch {
		case try > 0 && isTimeout(err):
			return nil, l.NoLapse(subject)
		case !errors.Is(err, nats.ErrNoResponders):
			return msg, err
		}
		if try == 0 {
			if err := l.Absent(within, subject); !errors.Is(err, errNoLapse) {
				return nil, err
			}
		}
		select {
		case <-time.After(connectedEvery):
		case <-within.Done():
			return nil, l.NoLapse(subject)
		}
	}
}
