package oracle

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Message is one stored message of the log or of the events.
type Message struct {
	Seq     uint64
	Subject string // as stored
	Header  nats.Header
	Data    []byte
	At      wire.Time // its stamp, cut to milliseconds
}

// ReadEvents reads the stream of events like [Read], without the fences in it, which
// say nothing.
func ReadEvents(ctx context.Context, js jetstream.JetStream, prefix wire.Prefix, from uint64) ([]Message, error) {
	all, err := Read(ctx, js, prefix.EventsStream(), from)
	return slices.DeleteFunc(all, func(m Message) bool {
		return strings.HasPrefix(m.Subject, string(prefix)+".fence.")
	}), err
}

// Read reads a stream from a sequence, or its first if that comes later, to its
// end of the moment.
func Read(ctx context.Context, js jetstream.JetStream, stream string, from uint64) ([]Message, error) {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	info, err := s.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", stream, err)
	}
	state := info.State
	if state.LastSeq < from {
		return nil, nil
	}
	from = max(from, state.FirstSeq)
	consumer, err := s.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from,
	})
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	iterator, err := consumer.Messages()
	if err != nil {
		return nil, fmt.Errorf("read stream %s: %w", stream, err)
	}
	defer iterator.Stop()
	all := make([]Message, 0, state.LastSeq-from+1)
	for {
		msg, err := iterator.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", stream, err)
		}
		meta, err := msg.Metadata()
		if err != nil {
			return nil, fmt.Errorf("read stream %s: %w", stream, err)
		}
		all = append(all, Message{
			Seq: meta.Sequence.Stream, Subject: msg.Subject(), Header: msg.Headers(), Data: msg.Data(),
			At: wire.Time(meta.Timestamp.UnixMilli()),
		})
		if meta.Sequence.Stream >= state.LastSeq || meta.NumPending == 0 {
			return all, nil
		}
	}
}
