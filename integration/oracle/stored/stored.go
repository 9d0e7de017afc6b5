// Package stored reads whole streams, for tests.
package stored

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Message is a stored message of the log or of the events stream.
type Message struct {
	Seq     uint64
	Subject string
	Header  nats.Header
	Data    []byte
	At      wire.Time // its stamp, cut to milliseconds
}

// Published is the subject on which a message of the events stream was published: that stream stores
// a number in place of the id, or of the second token of a target that has two.
func (m Message) Published() string {
	tokens := strings.Split(m.Subject, ".")
	if len(tokens) != 4 {
		return m.Subject
	}
	if tokens[1] == "due" {
		return tokens[0] + ".due." + m.Header.Get("Lapse-Target")
	}
	token := m.Header.Get("ce-subject")
	if tokens[1] == "rejected" {
		original := m.Header.Get(wire.HeaderSubject)
		token = original[strings.LastIndexByte(original, '.')+1:]
	}
	return strings.Join(append(tokens[:3], token), ".")
}

// Events reads the events stream like [Read], but leaves out the fences in it.
func Events(ctx context.Context, js jetstream.JetStream, prefix wire.Prefix, from uint64) ([]Message, error) {
	all, err := Read(ctx, js, prefix.EventsStream(), from)
	return slices.DeleteFunc(all, func(m Message) bool {
		return strings.HasPrefix(m.Subject, string(prefix)+".fence.")
	}), err
}

// answer is how long one request to JetStream may take, on a busy machine. A cluster can lose it.
const answer = 30 * time.Second

// wait is how long Read waits for a message. The consumer may be on a replica that does not catch
// up. The caller reads again, and gets another consumer.
const wait = 10 * time.Second

// beat is how often the server has to show that it has the request for messages. In a cluster the
// request for a new consumer can be lost: it comes to a server that does not know yet where the
// consumer is. Without beats the client makes another consumer.
const beat = time.Second

// Read reads a stream up to its current end. It begins at a sequence, or at the stream's
// first one if that is later.
func Read(ctx context.Context, js jetstream.JetStream, stream string, from uint64) (all []Message, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("read stream %s: %w", stream, err)
		}
	}()
	asking, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	s, err := js.Stream(asking, stream)
	if err != nil {
		return nil, err
	}
	state := s.CachedInfo().State
	if state.LastSeq < from || state.Msgs == 0 {
		return nil, nil
	}
	consumer, err := s.OrderedConsumer(asking, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: max(from, state.FirstSeq),
		MaxResetAttempts:  1,
		InactiveThreshold: 2 * time.Second, // the streams of lapse limit the number of consumers
	})
	if err != nil {
		return nil, err
	}
	if consumer.CachedInfo().NumPending == 0 && state.NumDeleted > 0 {
		return nil, nil // what the stream had from there on was deleted
	}
	iterator, err := consumer.Messages(jetstream.PullHeartbeat(beat))
	if err != nil {
		return nil, err
	}
	defer iterator.Stop()
	for {
		msg, err := iterator.Next(jetstream.NextMaxWait(wait))
		if err != nil {
			return nil, cmp.Or(ctx.Err(), err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, err
		}
		all = append(all, Message{
			Seq: meta.Sequence.Stream, Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(),
			At: wire.Time(meta.Timestamp.UnixMilli()),
		})
		// A consumer on a replica that lags has nothing pending before the end. So that counts
		// only where the last messages of the stream may be deleted.
		if meta.Sequence.Stream >= state.LastSeq || meta.NumPending == 0 && state.NumDeleted > 0 {
			return all, nil
		}
	}
}

// Info asks for a stream once.
func Info(ctx context.Context, js jetstream.JetStream, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// Behind reports whether a log had messages after a sequence at an instant, or may have had. A
// server that was split off from its cluster, and a leader that is new, tell an older end of a
// stream than others have seen. The acknowledgement of a tick has the true one.
func Behind(ctx context.Context, js jetstream.JetStream, log wire.Log, seq uint64, at wire.Time) bool {
	publishing, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	tick, err := js.Publish(publishing, log.Tick(), nil)
	if err != nil {
		return true
	}
	more, err := Read(ctx, js, log.Stream(), seq+1)
	if err != nil || len(more) == 0 || more[len(more)-1].Seq < tick.Sequence {
		return true // this answer was an older one, too
	}
	return more[0].At < at
}

// Lateness is how late each expiry event is: its stamp less its expiredAt.
func Lateness(events []Message) (all []time.Duration) {
	for _, e := range events {
		var at wire.Time
		if at.UnmarshalText([]byte(e.Header.Get("ce-time"))) == nil {
			all = append(all, time.Duration(e.At-at)*time.Millisecond)
		}
	}
	return all
}
