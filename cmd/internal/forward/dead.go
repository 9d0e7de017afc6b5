package forward

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// The headers of a dead letter, beside those of its event.
const (
	headerReason  = "Lapse-Dead-Reason"
	headerSubject = "Lapse-Dead-Subject" // of the event in its stream
	headerSeq     = "Lapse-Dead-Seq"     // of the event in its stream
)

// deadLetters are the dead letters of a consumer, in a stream of their own. The stream keeps them as long as
// the stream of events keeps events.
type deadLetters struct {
	js      jetstream.JetStream
	stream  jetstream.Stream
	subject string
	timeout time.Duration
}

// exchangeWithin limits an exchange with the stream.
const exchangeWithin = 5 * time.Second

// openDead looks the stream up, or creates it.
func openDead(ctx context.Context, c *client.Client, prefix wire.Prefix, durable string) (*deadLetters, error) {
	js, err := jetstream.New(c.Conn())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeWithin)
	defer cancel()
	stream, err := js.Stream(ctx, prefix.DeadStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		events, eventsErr := js.Stream(ctx, prefix.EventsStream())
		if eventsErr != nil {
			return nil, fmt.Errorf("look up the stream %s: %w", prefix.EventsStream(), eventsErr)
		}
		like := events.CachedInfo().Config
		stream, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name: prefix.DeadStream(), Description: "events that lapse forward has given up", Subjects: []string{prefix.Dead("*")},
			MaxAge: like.MaxAge, Replicas: like.Replicas, Storage: like.Storage,
		})
	}
	if err != nil {
		return nil, fmt.Errorf("look up or create the stream %s: %w", prefix.DeadStream(), err)
	}
	return &deadLetters{js, stream, prefix.Dead(durable), exchangeWithin}, nil
}

// store stores a dead letter. It is one message, however often the process does that within two minutes.
func (d *deadLetters) store(ctx context.Context, e event, subject string, seq uint64, why error) error {
	header := maps.Clone(e.header)
	for name := range header {
		if strings.HasPrefix(name, "Nats-") { // those are about its stream
			delete(header, name)
		}
	}
	header[headerReason], header[headerSubject], header[headerSeq] = []string{strings.Join(strings.Fields(why.Error()), " ")}, []string{subject}, []string{strconv.FormatUint(seq, 10)}
	ctx, cancel := context.WithTimeout(ctx, d.timeout)
	defer cancel()
	_, err := d.js.PublishMsg(ctx, &nats.Msg{Subject: d.subject, Header: header, Data: e.data}, jetstream.WithMsgID(d.subject+"/"+e.id()))
	return err
}

// Letter is a dead letter.
type Letter struct {
	Seq    uint64          `json:"seq"` // in the stream of dead letters
	ID     string          `json:"id"`  // the webhook-id
	At     time.Time       `json:"at"`  // when it was given up
	Reason string          `json:"reason"`
	Event  json.RawMessage `json:"event"` // as a CloudEvent

	event event
}

// each calls f with each dead letter, the oldest first, until f returns an error.
func (d *deadLetters) each(ctx context.Context, f func(Letter) error) error {
	for next := uint64(1); ; {
		within, cancel := context.WithTimeout(ctx, d.timeout)
		msg, err := d.stream.GetMsg(within, next, jetstream.WithGetMsgSubject(d.subject))
		cancel()
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the dead letters: %w", err)
		}
		l := Letter{Seq: msg.Sequence, At: msg.Time, Reason: msg.Header.Get(headerReason), event: event{msg.Header, msg.Data}}
		l.ID = l.event.id()
		if l.Event, err = l.event.structured(); err != nil {
			return err
		}
		if err := f(l); err != nil {
			return err
		}
		next = msg.Sequence + 1
	}
}

// ListDead calls f with each dead letter of a consumer, the oldest first.
func ListDead(ctx context.Context, c *client.Client, prefix wire.Prefix, durable string, f func(Letter) error) error {
	d, err := openDead(ctx, c, prefix, durable)
	if err != nil {
		return err
	}
	return d.each(ctx, f)
}

// Resend posts each dead letter once, and removes those that the receiver takes.
func Resend(ctx context.Context, c *client.Client, prefix wire.Prefix, opts Options) (sent, left int, err error) {
	f, err := open(ctx, c, prefix, opts)
	if err != nil {
		return 0, 0, err
	}
	defer f.http.CloseIdleConnections()
	err = f.dead.each(ctx, func(l Letter) error {
		v, err := f.try(ctx, l.event)
		switch {
		case err != nil:
			return err
		case errors.Is(v.why, ErrGone):
			return v.why
		case v.why != nil:
			left++
			return nil
		}
		sent++
		within, cancel := context.WithTimeout(ctx, f.dead.timeout)
		defer cancel()
		return f.dead.stream.DeleteMsg(within, l.Seq)
	})
	return sent, left, err
}
