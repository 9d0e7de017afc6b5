package region

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

// A first region that loses power may lose the end of its log, and store other messages at the sequences of those
// that were mirrored. NATS does not notice: the mirror goes on behind what it has. compared is what is known of
// that.
type compared struct {
	upTo    uint64 // the mirror is as the log of the first region was, up to here
	high    uint64 // sequence that the mirror may have had when the first region did not answer
	suspect bool   // it did not answer since, so its server may have lost messages
}

// mostCompared bounds the messages whose stamps are compared after the first region did not answer.
const mostCompared = 100_000

// diverges returns an error if the log here is not the one of the first region.
func (f *Follower) diverges(ctx context.Context, c *cut) error {
	here, err := f.Log.Info(ctx)
	if err != nil {
		return err
	}
	if here.Config.Mirror == nil {
		return streams.ErrPromotion // it may have grown by itself
	}
	if here.State.LastSeq > c.log.State.LastSeq { // it may have grown since the answer
		if c.log, err = f.Origin.Info(ctx, f.Names.Stream()); err != nil {
			return err
		}
	}
	there := c.log.State
	if there.LastSeq < here.State.LastSeq {
		if f.shorter.IsZero() {
			f.shorter = time.Now()
		}
		if c.log.Config.Replicas > 1 && time.Since(f.shorter) < believeShorter {
			return fmt.Errorf("the log of the first region seems to end at sequence %d, and the mirror here ends at %d: the answer may be out of date", there.LastSeq, here.State.LastSeq)
		}
		return fmt.Errorf("%w: the log of the first region ends at sequence %d, and the mirror here at %d: the first region has lost its end, and this region has it: run lapse promote here, or restore the log there",
			streams.ErrLogBehind, there.LastSeq, here.State.LastSeq)
	}
	f.shorter = time.Time{}
	first := max(there.FirstSeq, here.State.FirstSeq)
	upTo := here.State.LastSeq
	if f.compared.suspect {
		from := max(f.compared.upTo+1, first)
		to := min(max(f.compared.high, from), upTo)
		if to > from+mostCompared {
			from = to - mostCompared
		}
		if err := f.sameStamps(ctx, from, to); err != nil {
			return err
		}
	}
	for _, seq := range []uint64{f.compared.upTo, upTo} {
		if seq >= first {
			if err := f.sameStamp(ctx, seq); err != nil {
				return err
			}
		}
	}
	f.compared = compared{upTo: upTo}
	return nil
}

// unanswered notes that the first region did not answer.
func (f *Follower) unanswered(ctx context.Context) {
	if here, err := f.Log.Info(ctx); err == nil {
		f.compared.suspect, f.compared.high = true, here.State.LastSeq
	}
}

// sameStamps compares the stamps of messages of both logs.
func (f *Follower) sameStamps(ctx context.Context, from, to uint64) error {
	if from > to {
		return nil
	}
	here, err := stamps(ctx, f.JetStream, f.Names.Stream(), from, to)
	if err != nil {
		return err
	}
	there, err := stamps(ctx, f.Origin.JetStream(), f.Names.Stream(), from, to)
	if err != nil {
		return err
	}
	for seq, at := range there {
		if mine, ok := here[seq]; ok && !mine.Equal(at) {
			return differ(seq, at, mine)
		}
	}
	return nil
}

// sameStamp compares the stamp of one message.
func (f *Follower) sameStamp(ctx context.Context, seq uint64) error {
	here, found, err := f.Log.Stamp(ctx, seq)
	if err != nil || !found {
		return err
	}
	there, err := f.Origin.Get(ctx, f.Names.Stream(), map[string]any{"seq": seq})
	if err == nil && there != nil && there.Time.UnixNano() != here {
		err = differ(seq, there.Time, time.Unix(0, here))
	}
	return err
}

func differ(seq uint64, there, here time.Time) error {
	return fmt.Errorf("%w: message %d of the log was stored at %s in the first region, and the mirror here has one that was stored at %s: the first region has lost its end, and has grown again: run lapse promote here to go on with what this region has, or lapse demote to begin again as its follower",
		streams.ErrLogChanged, seq, there.UTC().Format(time.RFC3339Nano), here.UTC().Format(time.RFC3339Nano))
}

// stamps reads the stamps of messages of a stream.
func stamps(ctx context.Context, js jetstream.JetStream, stream string, from, to uint64) (map[uint64]time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	all := map[uint64]time.Time{}
	consumer, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: from, HeadersOnly: true,
	})
	if err != nil {
		return nil, fmt.Errorf("read the stamps of stream %s: %w", stream, err)
	}
	if info, err := consumer.Info(ctx); err != nil || info.NumPending == 0 {
		return all, err
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(int(min(to-from+1, 1000))))
	if err != nil {
		return nil, fmt.Errorf("read the stamps of stream %s: %w", stream, err)
	}
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	defer messages.Stop()
	for {
		m, err := messages.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil, fmt.Errorf("read the stamps of stream %s: %w", stream, context.Cause(ctx))
		}
		if err != nil {
			return nil, fmt.Errorf("read the stamps of stream %s: %w", stream, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, err
		}
		if meta.Sequence.Stream <= to {
			all[meta.Sequence.Stream] = meta.Timestamp
		}
		if meta.Sequence.Stream >= to || meta.NumPending == 0 {
			return all, nil
		}
	}
}
