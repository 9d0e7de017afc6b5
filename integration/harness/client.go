package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/integration/oracle/stored"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// Client is a user of lapse: it publishes messages and waits for outcomes. The
// goroutines of one test may share it.
type Client struct {
	NC     *nats.Conn
	JS     jetstream.JetStream
	Prefix wire.Prefix

	t testing.TB
}

// NewClient connects a client until the test ends. An empty prefix is wire.DefaultPrefix.
func NewClient(t testing.TB, url string, prefix wire.Prefix) *Client {
	t.Helper()
	if prefix == "" {
		prefix = wire.DefaultPrefix
	}
	nc := Connect(t, url)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(Limit))
	if err != nil {
		t.Fatal(err)
	}
	return &Client{NC: nc, JS: js, Prefix: prefix, t: t}
}

// Header makes a header from pairs of a name and a value.
func Header(pairs ...string) nats.Header {
	h := nats.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// Send publishes one message to the log, waits for the acknowledgement, and returns the
// message's sequence.
func (c *Client) Send(subject, body string, header nats.Header) uint64 {
	c.t.Helper()
	ack, err := c.TrySend(c.t.Context(), Limit, subject, body, header)
	if err != nil {
		c.t.Fatalf("publish to %s: %v", subject, err)
	}
	return ack.Sequence
}

// TrySend is Send with a limit, and returns the acknowledgement or the error. After an error the
// log may hold the message or not.
func (c *Client) TrySend(ctx context.Context, limit time.Duration, subject, body string,
	header nats.Header) (*jetstream.PubAck, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// While a cluster elects a leader, nothing responds and nothing is stored.
	return c.JS.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte(body), Header: header},
		jetstream.WithRetryWait(100*time.Millisecond), jetstream.WithRetryAttempts(int(Limit/(100*time.Millisecond))))
}

// SendLater publishes one message and does not wait for the acknowledgement; Flush and Stored do.
func (c *Client) SendLater(subject, body string) jetstream.PubAckFuture {
	c.t.Helper()
	ack, err := c.JS.PublishMsgAsync(&nats.Msg{Subject: subject, Data: []byte(body)}, jetstream.WithStallWait(Limit))
	if err != nil {
		c.t.Fatalf("publish to %s: %v", subject, err)
	}
	return ack
}

// Stored waits until the server has acknowledged a message of SendLater, and returns its sequence.
func (c *Client) Stored(ack jetstream.PubAckFuture) uint64 {
	c.t.Helper()
	select {
	case ok := <-ack.Ok():
		return ok.Sequence
	case err := <-ack.Err():
		c.t.Fatalf("publish to %s: %v", ack.Msg().Subject, err)
	case <-time.After(Limit):
		c.t.Fatalf("publish to %s: the server does not acknowledge it", ack.Msg().Subject)
	}
	return 0
}

// Flush waits until the server has acknowledged every message of SendLater.
func (c *Client) Flush() {
	c.t.Helper()
	select {
	case <-c.JS.PublishAsyncComplete():
	case <-time.After(Limit):
		c.t.Fatal("the server does not acknowledge all messages")
	}
}

// Write publishes a write and returns its sequence.
func (c *Client) Write(op wire.Op, collection, id, body string) uint64 {
	c.t.Helper()
	return c.Send(c.Prefix.Write(op, collection, id), body, nil)
}

// Configure publishes a configuration and fails the test unless its outcome is 200.
func (c *Client) Configure(collection, config string) wire.Outcome {
	c.t.Helper()
	return c.want(wire.StatusOK, c.Prefix.Config(collection), config, nil)
}

// Drop drops a collection and fails the test unless the outcome is 204.
func (c *Client) Drop(collection string) wire.Outcome {
	c.t.Helper()
	return c.want(wire.StatusNoContent, c.Prefix.Drop(collection), "", nil)
}

// Want publishes a write and fails the test unless its outcome has the status.
func (c *Client) Want(status int, op wire.Op, collection, id, body string, header ...string) wire.Outcome {
	c.t.Helper()
	return c.want(status, c.Prefix.Write(op, collection, id), body, Header(header...))
}

func (c *Client) want(status int, subject, body string, header nats.Header) wire.Outcome {
	c.t.Helper()
	o, _ := c.Do(subject, body, header)
	if o.Status != status {
		c.t.Fatalf("%s %s: outcome %+v, want status %d", subject, body, o, status)
	}
	return o
}

// Do publishes one message to the log, waits for its outcome, and returns that and the
// message's sequence.
func (c *Client) Do(subject, body string, header nats.Header) (wire.Outcome, uint64) {
	c.t.Helper()
	inbox := c.NC.NewInbox()
	sub, err := c.NC.SubscribeSync(inbox)
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	h := nats.Header{wire.HeaderReplyTo: {inbox}}
	for k, v := range header {
		h[k] = append(h[k], v...)
	}
	seq := c.Send(subject, body, h)
	msg, err := sub.NextMsg(Limit)
	if err != nil {
		c.t.Fatalf("wait for the outcome of %s: %v", subject, err)
	}
	var o wire.Outcome
	if err := json.Unmarshal(msg.Data, &o); err != nil {
		c.t.Fatalf("outcome %s: %v", msg.Data, err)
	}
	return o, seq
}

// Found reports whether the read service finds a document. It waits until the service
// answers.
func (c *Client) Found(collection, id string) (found bool) {
	c.t.Helper()
	service := readers.ByService(c.NC, c.Prefix)
	Until(c.t, Limit, "the read service answers", func(ctx context.Context) error {
		_, err := service.Get(ctx, collection, id)
		found = err == nil
		if errors.Is(err, sink.ErrNotFound) {
			return nil
		}
		return err
	})
	return found
}

// Events returns all events of the events stream, in order.
func (c *Client) Events() []oracle.Message {
	c.t.Helper()
	return c.read(c.Prefix.EventsStream(), func(ctx context.Context) ([]oracle.Message, error) {
		return stored.Events(ctx, c.JS, c.Prefix, 1)
	})
}

// Log returns all messages of the log, in order.
func (c *Client) Log() []oracle.Message {
	c.t.Helper()
	return c.Stream(c.Prefix.LogStream())
}

// Stream returns all messages of a stream, in order.
func (c *Client) Stream(name string) []oracle.Message {
	c.t.Helper()
	return c.read(name, func(ctx context.Context) ([]oracle.Message, error) {
		return stored.Read(ctx, c.JS, name, 1)
	})
}

func (c *Client) read(name string, read func(context.Context) ([]oracle.Message, error)) (all []oracle.Message) {
	c.t.Helper()
	Until(c.t, Limit, name+" is read", func(ctx context.Context) (err error) {
		all, err = read(ctx)
		return err
	})
	return all
}

// ExpiryOf waits for the expiry event of a document's version.
func (c *Client) ExpiryOf(collection, id string, etag wire.Etag, limit time.Duration) {
	c.t.Helper()
	subject, next := c.Prefix.Expired(collection, id), uint64(1)
	Until(c.t, limit, fmt.Sprintf("version %s has its event on %s", etag, subject), func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // a leader that is lost does not answer
		defer cancel()
		stream, err := c.JS.Stream(ctx, c.Prefix.EventsStream())
		if err != nil {
			return err
		}
		for {
			raw, err := stream.GetMsg(ctx, next, jetstream.WithGetMsgSubject(c.Prefix.Stored(subject)))
			if err != nil {
				return err
			}
			next = raw.Sequence + 1
			var e wire.Event
			if err := json.Unmarshal(raw.Data, &e); err != nil {
				return err
			}
			if e.ID == id && e.Etag == etag {
				return nil
			}
		}
	})
}
