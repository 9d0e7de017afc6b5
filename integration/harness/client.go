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
	"github.com/seed18712806/lapse/sink/wire"
)

// Client is a user of lapse: it publishes and waits for outcomes. It is safe
// for concurrent use by goroutines of one test.
type Client struct {
	NC     *nats.Conn
	JS     jetstream.JetStream
	Prefix wire.Prefix

	t testing.TB
}

// NewClient connects a client for as long as the test runs. prefix is
// wire.DefaultPrefix if empty.
func NewClient(t testing.TB, url string, prefix wire.Prefix) *Client {
	t.Helper()
	if prefix == "" {
		prefix = wire.DefaultPrefix
	}
	nc := Connect(t, url)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return &Client{NC: nc, JS: js, Prefix: prefix, t: t}
}

// Header makes a header of names and values in turn.
func Header(pairs ...string) nats.Header {
	h := nats.Header{}
	for i := 0; i+1 < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

// Send publishes one message to the log and returns its sequence there, once
// acknowledged.
func (c *Client) Send(subject, body string, header nats.Header) uint64 {
	c.t.Helper()
	seq, err := c.TrySend(c.t.Context(), subject, body, header)
	if err != nil {
		c.t.Fatalf("publish to %s: %v", subject, err)
	}
	return seq
}

// TrySend is Send, but returns the error: the message may have been stored or not.
func (c *Client) TrySend(ctx context.Context, subject, body string, header nats.Header) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ack, err := c.JS.PublishMsg(ctx, &nats.Msg{Subject: subject, Data: []byte(body), Header: header})
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// SendLater publishes one message without waiting; see Flush.
func (c *Client) SendLater(subject, body string) {
	c.t.Helper()
	_, err := c.JS.PublishMsgAsync(&nats.Msg{Subject: subject, Data: []byte(body)}, jetstream.WithStallWait(Limit))
	if err != nil {
		c.t.Fatalf("publish to %s: %v", subject, err)
	}
}

// Flush waits until all that SendLater has published is acknowledged.
func (c *Client) Flush() {
	c.t.Helper()
	select {
	case <-c.JS.PublishAsyncComplete():
	case <-time.After(Limit):
		c.t.Fatal("messages are not acknowledged")
	}
}

// Write publishes a write and returns its sequence.
func (c *Client) Write(op wire.Op, collection, id, body string) uint64 {
	c.t.Helper()
	return c.Send(c.Prefix.Write(op, collection, id), body, nil)
}

// Configure publishes a configuration and fails the test unless it is taken.
func (c *Client) Configure(collection, config string) wire.Outcome {
	c.t.Helper()
	return c.want(wire.StatusOK, c.Prefix.Config(collection), config, nil)
}

// Drop drops a collection and fails the test unless that is done.
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
	o := c.Do(subject, body, header)
	if o.Status != status {
		c.t.Fatalf("%s %s: outcome %+v, want status %d", subject, body, o, status)
	}
	return o
}

// Do publishes one message to the log and waits for its outcome.
func (c *Client) Do(subject, body string, header nats.Header) wire.Outcome {
	c.t.Helper()
	o, _ := c.DoSeq(subject, body, header)
	return o
}

// DoSeq is Do, and returns the message's sequence too.
func (c *Client) DoSeq(subject, body string, header nats.Header) (wire.Outcome, uint64) {
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

// Get reads a document through the read service: its body and headers, or
// found = false.
func (c *Client) Get(collection, id string) (msg *nats.Msg, found bool) {
	c.t.Helper()
	Until(c.t, Limit, "the read service answers", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		var err error
		msg, err = c.NC.RequestWithContext(ctx, c.Prefix.ReadGet(collection, id), nil)
		if err != nil {
			return err
		}
		switch code := msg.Header.Get("Nats-Service-Error-Code"); code {
		case "":
			found = true
		case "404":
			found = false
		default:
			return fmt.Errorf("error %s: %s", code, msg.Header.Get("Nats-Service-Error"))
		}
		return nil
	})
	return msg, found
}

// Read asks the read service and decodes its answer into reply, or returns the
// code and the text of its error.
func (c *Client) Read(verb, collection, request string, reply any) error {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	msg, err := c.NC.RequestWithContext(ctx, c.Prefix.Read(verb, collection), []byte(request))
	if err != nil {
		return err
	}
	if code := msg.Header.Get("Nats-Service-Error-Code"); code != "" {
		return errors.New(code + " " + msg.Header.Get("Nats-Service-Error"))
	}
	return json.Unmarshal(msg.Data, reply)
}

// Events is everything that the stream of events holds, in order.
func (c *Client) Events() []oracle.Message {
	c.t.Helper()
	return c.read(c.Prefix.EventsStream(), func(ctx context.Context) ([]oracle.Message, error) {
		return oracle.ReadEvents(ctx, c.JS, c.Prefix, 1)
	})
}

// Log is everything that the log holds, in order.
func (c *Client) Log() []oracle.Message {
	c.t.Helper()
	return c.read(c.Prefix.LogStream(), func(ctx context.Context) ([]oracle.Message, error) {
		return oracle.Read(ctx, c.JS, c.Prefix.LogStream(), 1)
	})
}

func (c *Client) read(name string, read func(context.Context) ([]oracle.Message, error)) []oracle.Message {
	c.t.Helper()
	var all []oracle.Message
	Until(c.t, Limit, name+" is read", func(ctx context.Context) error {
		var err error
		all, err = read(ctx)
		return err
	})
	return all
}

// ExpiryOf waits for the expiry event of a document's version and returns it.
func (c *Client) ExpiryOf(collection, id string, etag wire.Etag, limit time.Duration) oracle.Message {
	c.t.Helper()
	stream, err := c.JS.Stream(c.t.Context(), c.Prefix.EventsStream())
	if err != nil {
		c.t.Fatal(err)
	}
	var m oracle.Message
	subject := c.Prefix.Expired(collection, id)
	Until(c.t, limit, fmt.Sprintf("version %s has its event on %s", etag, subject), func(ctx context.Context) error {
		raw, err := stream.GetLastMsgForSubject(ctx, subject)
		if err != nil {
			return err
		}
		m = oracle.Message{Seq: raw.Sequence, Subject: raw.Subject, Header: raw.Header, Data: raw.Data, At: wire.Time(raw.Time.UnixMilli())}
		var e wire.Event
		if err := json.Unmarshal(m.Data, &e); err != nil {
			return err
		}
		if e.Etag != etag {
			return fmt.Errorf("the last event is of version %s", e.Etag)
		}
		return nil
	})
	return m
}
