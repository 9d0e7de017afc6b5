package region

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

// A first region that loses power may lose the end of its log, and store other messages at the sequences of those
// that were mirrored. NATS does not notice: the mirror goes on behind what it has. But the last message that was
// mirrored before is among those that differ. So it is enough to compare the stamps of the messages at which the
// mirror has ended while the first region did not answer.
type compared struct {
	upTo  uint64   // the mirror was as the log of the first region, up to here
	highs []uint64 // where the mirror has ended while the first region did not answer
}

// mostHighs bounds these places. While nothing is mirrored there is one.
const mostHighs = 1000

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
		return streams.Refuse(streams.ErrLogBehind, "run lapse promote here, or restore the log there", "the log of the first region ends at sequence %d, and the mirror here at %d: the first region has lost its end, and this region has it",
			there.LastSeq, here.State.LastSeq)
	}
	f.shorter = time.Time{}
	first := max(there.FirstSeq, here.State.FirstSeq, 1)
	for _, seq := range append(f.compared.highs, f.compared.upTo, here.State.LastSeq) {
		if seq < first || seq > here.State.LastSeq {
			continue
		}
		if err := f.sameStamp(ctx, seq); err != nil {
			return err
		}
	}
	f.compared = compared{upTo: here.State.LastSeq}
	return nil
}

// unanswered notes that the first region did not answer.
func (f *Follower) unanswered(ctx context.Context) {
	here, err := f.Log.Info(ctx)
	if err != nil || len(f.compared.highs) == mostHighs {
		return
	}
	if last := here.State.LastSeq; !slices.Contains(f.compared.highs, last) {
		f.compared.highs = append(f.compared.highs, last)
	}
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
	return streams.Refuse(streams.ErrLogChanged, "run lapse promote here to go on with what this region has, or lapse demote to begin again as its follower", "message %d of the log was stored at %s in the first region, and the mirror here has one that was stored at %s: the first region has lost its end, and has grown again",
		seq, there.UTC().Format(time.RFC3339Nano), here.UTC().Format(time.RFC3339Nano))
}
