package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// WatchOptions say what to follow.
type WatchOptions struct {
	Collection string    // all if empty
	ID         string    // all of the collection if empty
	Rejected   bool      // rejections too
	Since      time.Time // from then on; only what is new if zero
	// Watching, if set, is called once nothing new can be missed any more.
	Watching func(subjects []string)
}

// Notification is an expiry event or a rejection: one of the two is set.
type Notification struct {
	At       time.Time // when it was stored
	Expired  *wire.Event
	Rejected *Rejection
}

// Rejection is a message that was not applied.
type Rejection struct {
	Code      int    `json:"code"`
	Error     string `json:"error"`
	Subject   string `json:"subject"` // of the message
	Seq       uint64 `json:"seq"`     // of the message in the log
	Body      string `json:"body"`
	Truncated int    `json:"truncated,omitempty"` // the message's bytes, if Body is not all of them
}

// Watch calls f with each notification, in the order of the stream, none left
// out, until ctx is done (then it returns nil) or f fails.
func (c *Client) Watch(ctx context.Context, opts WatchOptions, f func(Notification) error) error {
	subjects := c.watched(opts)
	within, cancel := c.within(ctx)
	defer cancel()
	stream, err := c.js.Stream(within, c.opts.Prefix.EventsStream())
	switch {
	case ctx.Err() != nil:
		return nil
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return c.noLapse(subjects[0])
	case err != nil:
		return fmt.Errorf("look up the stream %s: %w", c.opts.Prefix.EventsStream(), err)
	}
	config := jetstream.OrderedConsumerConfig{FilterSubjects: subjects}
	if opts.Since.IsZero() {
		// Not DeliverNewPolicy: after a reconnect that would skip what came
		// meanwhile, if nothing had come before.
		config.DeliverPolicy = jetstream.DeliverByStartSequencePolicy
		config.OptStartSeq = stream.CachedInfo().State.LastSeq + 1
	} else {
		config.DeliverPolicy = jetstream.DeliverByStartTimePolicy
		config.OptStartTime = &opts.Since
	}
	consumer, err := stream.OrderedConsumer(within, config)
	if err != nil {
		return fmt.Errorf("consume %s: %w", c.opts.Prefix.EventsStream(), err)
	}
	messages, err := consumer.Messages()
	if err != nil {
		return fmt.Errorf("consume %s: %w", c.opts.Prefix.EventsStream(), err)
	}
	if opts.Watching != nil {
		opts.Watching(subjects)
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	received := make(chan jetstream.Msg)
	failed := make(chan error, 1)
	go func() {
		defer messages.Stop()
		for {
			msg, err := messages.Next(jetstream.NextContext(ctx))
			if err != nil {
				failed <- err
				return
			}
			select {
			case received <- msg:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case msg := <-received:
			n, err := c.notification(msg)
			if err == nil {
				err = f(n)
			}
			if err != nil {
				return err
			}
		case err := <-failed:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("follow %s: %w", c.opts.Prefix.EventsStream(), err)
		case <-ctx.Done():
			// The library may be waiting for the server to come back: not worth waiting for.
			return nil
		}
	}
}

// watched are the subjects to follow.
func (c *Client) watched(opts WatchOptions) []string {
	expired, rejected := string(c.opts.Prefix)+".expired.", string(c.opts.Prefix)+".rejected."
	var subjects []string
	switch {
	case opts.Collection == "":
		subjects = []string{expired + ">", rejected + ">"}
	case opts.ID == "":
		// A rejected configuration has no token after the collection.
		subjects = []string{expired + opts.Collection + ".>", rejected + opts.Collection, rejected + opts.Collection + ".>"}
	default:
		subjects = []string{c.opts.Prefix.Expired(opts.Collection, opts.ID), rejected + opts.Collection + "." + wire.EscapeID(opts.ID)}
	}
	if !opts.Rejected {
		subjects = subjects[:1]
	}
	return subjects
}

func (c *Client) notification(msg jetstream.Msg) (Notification, error) {
	meta, err := msg.Metadata()
	if err != nil {
		return Notification{}, fmt.Errorf("message on %s: %w", msg.Subject(), err)
	}
	n := Notification{At: meta.Timestamp}
	if !strings.HasPrefix(msg.Subject(), string(c.opts.Prefix)+".rejected.") {
		n.Expired = new(wire.Event)
		if err := json.Unmarshal(msg.Data(), n.Expired); err != nil {
			return Notification{}, fmt.Errorf("event %d on %s is not understood: %w", meta.Sequence.Stream, msg.Subject(), err)
		}
		return n, nil
	}
	header := msg.Headers()
	n.Rejected = &Rejection{
		Error:   header.Get(wire.HeaderError),
		Subject: header.Get(wire.HeaderSubject),
		Body:    string(msg.Data()),
	}
	var truncatedErr error
	if text := header.Get(wire.HeaderTruncated); text != "" {
		n.Rejected.Truncated, truncatedErr = strconv.Atoi(text)
	}
	var codeErr, seqErr error
	n.Rejected.Code, codeErr = strconv.Atoi(header.Get(wire.HeaderCode))
	n.Rejected.Seq, seqErr = strconv.ParseUint(header.Get(wire.HeaderSeq), 10, 64)
	if err := errors.Join(truncatedErr, codeErr, seqErr); err != nil {
		return Notification{}, fmt.Errorf("rejection %d on %s is not understood: %w", meta.Sequence.Stream, msg.Subject(), err)
	}
	return n, nil
}
