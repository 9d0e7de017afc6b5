package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
)

// A nats-server replaces the configuration of a stream as a whole, and under no condition. A process that changes one
// key of the metadata by what it has read would undo what another process has changed since: the gaps that are no loss,
// the limits, or the mark that another region is the first. So a process locks the stream in the bucket of checkpoints
// before it reads the configuration, and changes it before others may take the lock.

// lockFor is how long others respect a lock, by the clocks of the servers. A process that has died holds others up for
// as long, in all: they may come and go, as their requests have limits.
var lockFor = 10 * time.Second

// lockAgain is how often a process that waits looks whether the lock has ended.
const lockAgain = 20 * time.Millisecond

// lockKey is the key of the lock of a stream.
func lockKey(stream string) string { return "change." + stream }

// configChange returns what the configuration of a stream is to be; nil if it is so. info is what the stream is now.
type configChange func(ctx context.Context, info *jetstream.StreamInfo) (*jetstream.StreamConfig, error)

// changeStream changes the configuration of a stream, while no other process does. It calls change again once it has
// the lock, and whenever nobody knows whether the server has made the change. bucket is that of the checkpoints.
func changeStream(ctx context.Context, js jetstream.JetStream, bucket string, stream jetstream.Stream,
	change configChange) error {
	info, err := stream.Info(ctx)
	if err != nil {
		return err
	}
	if c, err := change(ctx, info); c == nil || err != nil {
		return err
	}
	for {
		late, err := changeLocked(ctx, js, bucket, stream, change)
		if !late || ctx.Err() != nil {
			return err
		}
	}
}

// changeLocked is one attempt of changeStream. late reports that it has taken so long that others may take the lock.
func changeLocked(ctx context.Context, js jetstream.JetStream, bucket string, stream jetstream.Stream,
	change configChange) (late bool, err error) {
	name := stream.CachedInfo().Config.Name
	lock, err := lockStream(ctx, js, bucket, stream)
	if err != nil {
		return false, fmt.Errorf("lock stream %s: %w", name, err)
	}
	defer func() { lock.release(context.WithoutCancel(ctx)) }()
	limited, cancel := context.WithDeadline(ctx, lock.began.Add(lockFor/2))
	defer cancel()
	info, err := stream.Info(limited)
	if err != nil {
		return limited.Err() != nil, err
	}
	c, err := change(limited, info)
	if c == nil || err != nil {
		return limited.Err() != nil, err
	}
	if _, err = js.UpdateStream(limited, *c); err == nil {
		_, err = stream.Info(limited) // others read what is cached
	}
	return limited.Err() != nil, err
}

// lock is that of a stream, which this process has.
type lock struct {
	js      jetstream.JetStream
	subject string
	seq     uint64    // in the bucket; 0 if that has none
	began   time.Time // before the process had the lock
}

// lockStream waits until no other process changes a stream. Where there is no bucket of checkpoints yet, no process has
// begun to work, and lockStream locks nothing; nor where the bucket takes nothing, as on a full disk: a limit that
// makes room must not wait for room.
func lockStream(ctx context.Context, js jetstream.JetStream, bucket string, stream jetstream.Stream) (c lock,
	err error) {
	c = lock{js: js, subject: "$KV." + bucket + "." + lockKey(stream.CachedInfo().Config.Name)}
	for {
		c.began = time.Now()
		m, err := events.GetMessage(ctx, js.Conn(), "KV_"+bucket, map[string]any{"last_by_subj": c.subject})
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return c, nil
		}
		if err != nil {
			return c, err
		}
		last, free := uint64(0), true
		if m != nil {
			last, free = m.Seq, len(m.Data) == 0
		}
		if !free {
			info, err := stream.Info(ctx)
			if err != nil {
				return c, err
			}
			free = info.TimeStamp.Sub(m.Time) > lockFor
		}
		if free {
			ack, err := js.PublishMsg(ctx, c.message("locked", last))
			if err == nil {
				c.seq = ack.Sequence
				return c, nil
			}
			if !isWrongLastSeq(err) {
				if refusal := (*jetstream.APIError)(nil); errors.As(err, &refusal) {
					return c, nil // the bucket takes nothing
				}
				return c, err
			}
		}
		if !backoff.Wait(ctx, lockAgain) {
			return c, context.Cause(ctx)
		}
	}
}

// message is an entry for a lock, in place of the entry with a sequence. An empty one ends the lock.
func (c *lock) message(text string, inPlaceOf uint64) *nats.Msg {
	return &nats.Msg{Subject: c.subject, Data: []byte(text),
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(inPlaceOf, 10)}}}
}

// release ends a lock, unless another process has taken it. If it fails, others wait until they no longer respect it.
func (c *lock) release(ctx context.Context) {
	if c.seq == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lockFor/2)
	defer cancel()
	for {
		_, err := c.js.PublishMsg(ctx, c.message("", c.seq))
		var refusal *jetstream.APIError
		if !errors.As(err, &refusal) || refusal.ErrorCode != inProcess || !backoff.Wait(ctx, lockAgain) {
			return
		}
	}
}
