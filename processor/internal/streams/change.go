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
// key of the metadata by what it has read would undo what another process has changed since: the rules of replies, the
// gaps that are no loss, the limits, or the mark that another region is the first. So a process claims the stream in
// the bucket of checkpoints before it reads the configuration, and changes it before others may take the claim.

// claimFor is how long a process that waits respects a claim. A process that has died holds others up for as long.
var claimFor = 10 * time.Second

// claimAgain is how often a process that waits looks whether the claim has ended.
const claimAgain = 20 * time.Millisecond

// claimKey is the key of the claim of a stream.
func claimKey(stream string) string { return "change." + stream }

// configChange returns what the configuration of a stream is to be; nil if it is so. info is what the stream is now.
type configChange func(ctx context.Context, info *jetstream.StreamInfo) (*jetstream.StreamConfig, error)

// changeStream changes the configuration of a stream, while no other process does. It calls change again once it has
// the claim, and whenever nobody knows whether the server has made the change. bucket is that of the checkpoints.
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
		late, err := changeClaimed(ctx, js, bucket, stream, change)
		if !late || ctx.Err() != nil {
			return err
		}
	}
}

// changeClaimed is one attempt of changeStream. late reports that it has taken so long that others may take the claim.
func changeClaimed(ctx context.Context, js jetstream.JetStream, bucket string, stream jetstream.Stream,
	change configChange) (late bool, err error) {
	name := stream.CachedInfo().Config.Name
	claimed, err := claim(ctx, js, bucket, name)
	if err != nil {
		return false, fmt.Errorf("claim stream %s: %w", name, err)
	}
	defer func() { claimed.release(context.WithoutCancel(ctx)) }()
	limited, cancel := context.WithDeadline(ctx, claimed.began.Add(claimFor/2))
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

// claimed is a claim of a stream.
type claimed struct {
	js      jetstream.JetStream
	subject string
	seq     uint64    // in the bucket; 0 if that has none
	began   time.Time // before the process had the claim
}

// claim waits until no other process changes a stream. Where there is no bucket of checkpoints yet, there is no process
// that has begun to work, and claim claims nothing; nor where the bucket takes nothing, as on a full disk: a limit that
// makes room must not wait for room.
func claim(ctx context.Context, js jetstream.JetStream, bucket string, stream string) (c claimed, err error) {
	c = claimed{js: js, subject: "$KV." + bucket + "." + claimKey(stream)}
	held, since := uint64(0), time.Time{}
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
		if last != held {
			held, since = last, c.began
		}
		if free || c.began.Sub(since) > claimFor {
			ack, err := js.PublishMsg(ctx, c.message("claimed", last))
			if err == nil {
				c.seq = ack.Sequence
				return c, nil
			}
			var refusal *jetstream.APIError
			switch {
			case !errors.As(err, &refusal):
				return c, err
			case refusal.ErrorCode != wrongLastSeq:
				return c, nil // the bucket takes nothing
			}
		}
		if !backoff.Wait(ctx, claimAgain) {
			return c, context.Cause(ctx)
		}
	}
}

// message is an entry for a claim, in place of the entry with a sequence. An empty one ends the claim.
func (c *claimed) message(text string, inPlaceOf uint64) *nats.Msg {
	return &nats.Msg{Subject: c.subject, Data: []byte(text),
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(inPlaceOf, 10)}}}
}

// release ends a claim, unless another process has taken it. If it fails, others wait until they no longer respect it.
func (c *claimed) release(ctx context.Context) {
	if c.seq == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, claimFor/2)
	defer cancel()
	_, _ = c.js.PublishMsg(ctx, c.message("", c.seq))
}
