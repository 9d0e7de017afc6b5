package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// consumersKey is where the bucket of checkpoints has notedConsumers.
const consumersKey = "consumers"

// notedConsumers are the durable consumers of a mirror of the events that a person is asked to remove: NATS removes
// them with it.
type notedConsumers struct {
	Created   time.Time                  `json:"created"` // of that mirror
	Consumers []jetstream.ConsumerConfig `json:"consumers"`
}

// NoteConsumers notes the durable consumers of the mirror of the events. The mirror that ProvisionMirrors makes in its
// place gets them: each begins where it was, or behind the last message, same, that is known to be as in the first
// region. So an event may come to it twice, with the same ce-id, and none is passed over.
func (s *Streams) NoteConsumers(ctx context.Context, same uint64) error {
	note := notedConsumers{Created: s.Events.CachedInfo().Created}
	all := s.Events.ListConsumers(ctx)
	for info := range all.Info() {
		if c := info.Config; c.Durable != "" {
			c.DeliverPolicy, c.OptStartTime, c.OptStartSeq = jetstream.DeliverByStartSequencePolicy, nil,
				min(info.AckFloor.Stream, same)+1
			note.Consumers = append(note.Consumers, c)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("list the consumers of stream %s: %w", s.Events.CachedInfo().Config.Name, err)
	}
	value, err := json.Marshal(note)
	if err != nil {
		return err
	}
	have, _, err := s.Value(ctx, consumersKey)
	if err != nil || bytes.Equal(have, value) {
		return err
	}
	if _, err := s.Checkpoints.Put(ctx, consumersKey, value); err != nil {
		return fmt.Errorf("note the durable consumers of the mirror: %w", err)
	}
	return nil
}

// ForgetConsumers forgets what NoteConsumers has noted.
func (s *Streams) ForgetConsumers(ctx context.Context) error {
	have, _, err := s.Value(ctx, consumersKey)
	if err != nil || have == nil {
		return err
	}
	if err := s.Checkpoints.Delete(ctx, consumersKey); err != nil {
		return fmt.Errorf("forget the durable consumers of a former mirror: %w", err)
	}
	return nil
}

// restoreConsumers makes the noted consumers again, once another mirror has taken the place of theirs. The note is
// deleted last, so an attempt that is interrupted is repeated.
func restoreConsumers(ctx context.Context, js jetstream.JetStream, o Options) error {
	bucket, err := js.KeyValue(ctx, o.Prefix.CheckpointBucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil // there was no follower before
	}
	if err != nil {
		return fmt.Errorf("look up bucket %s: %w", o.Prefix.CheckpointBucket(), err)
	}
	entry, err := bucket.Get(ctx, consumersKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the durable consumers of the former mirror: %w", err)
	}
	var note notedConsumers
	if err := json.Unmarshal(entry.Value(), &note); err != nil {
		return fmt.Errorf("read the durable consumers of the former mirror: %w", err)
	}
	name := o.Prefix.EventsStream()
	mirror, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	if mirror.CachedInfo().Created.Equal(note.Created) {
		return nil // nobody has removed it
	}
	for _, c := range note.Consumers {
		_, err := js.CreateConsumer(ctx, name, c)
		var refusal *jetstream.APIError
		if errors.As(err, &refusal) && !RefusedForNow(err) && !errors.Is(err, jetstream.ErrStreamNotFound) {
			// Such as when its user has made it, with another beginning.
			o.Logger.Warn("a durable consumer of the former mirror was not made again", slog.String("stream", name),
				slog.String("consumer", c.Durable), slog.Any("error", err))
			continue
		}
		if err != nil {
			return fmt.Errorf("make the consumer %s of stream %s again: %w", c.Durable, name, err)
		}
	}
	if err := bucket.Delete(ctx, consumersKey, jetstream.LastRevision(entry.Revision())); err != nil {
		return fmt.Errorf("forget the durable consumers of the former mirror: %w", err)
	}
	return nil
}
