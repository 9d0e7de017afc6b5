package examine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/processor/internal/announce"
	"github.com/seed18712806/lapse/processor/internal/identity"
	"github.com/seed18712806/lapse/processor/internal/link"
	"github.com/seed18712806/lapse/sink/events"
)

// Events is what an examination asks of the stream of events.
type Events struct {
	Publisher *events.Publisher
	Tail      *events.Tail // which the caller of an Examiner holds
	Log       events.Log
	Link      *link.Link
}

// ends is the first sequence of the stream, and the last.
func (s *Events) ends(ctx context.Context) (first, last uint64, err error) {
	err = s.Link.Query(ctx, func(ctx context.Context) (err error) {
		first, last, err = s.Publisher.Ends(ctx)
		return err
	})
	return first, last, err
}

// holds reports whether the stream has not lost what it had at a place.
func (s *Events) holds(ctx context.Context, at events.Place) (holds bool, err error) {
	err = s.Link.Query(ctx, func(ctx context.Context) (err error) {
		holds, err = s.Publisher.Holds(ctx, s.Log, at)
		return err
	})
	return holds, err
}

// judgeEvents judges whether the stream of events has all that was published, and no output of a
// message that the log has lost. It reads the tail of the stream.
//
//   - E4: What Redis, the checkpoint and a snapshot remember of the stream has to be there. Where the
//     state or the checkpoint remembers more, outputs were lost, and Lost says so: then the partition
//     is rebuilt from a snapshot (or the log) of which nothing was lost, and publishes them again.
//   - E5: The tail begins where the outputs behind the checkpoint begin. If that place was lost, it
//     begins at the last output that the checkpoint remembers.
//   - E6: A message that an output names has to be in the log, and to be the one that was there then. Of
//     many, one in so many is compared.
func (e *Examiner) judgeEvents(ctx context.Context, f *Found, fence uint64) error {
	f.Lost = nil
	stored, err := events.ParsePlace(f.State.Events)
	if err != nil {
		return err
	}
	if err := e.holds(ctx, stored); errors.Is(err, events.ErrLost) {
		f.Lost = err
	} else if err != nil {
		return err
	}
	if err := e.holds(ctx, f.Checkpoint.Last); errors.Is(err, events.ErrLost) {
		f.Lost = err
		f.Checkpoint = announce.Checkpoint{Log: f.Checkpoint.Log, Origin: f.Checkpoint.Origin}
	} else if err != nil {
		return err
	}
	if f.Snapshot != nil {
		if err := e.holds(ctx, f.Snapshot.Last); err != nil {
			return err
		}
	}
	from, err := e.from(ctx, f)
	if err != nil {
		return err
	}
	_, last, err := e.events.ends(ctx)
	if err == nil {
		err = e.events.Link.Ask(ctx, func(ctx context.Context) error { return e.events.Tail.Cover(ctx, from, max(last, fence)) })
	}
	if err != nil {
		return err
	}
	return e.judgeNamed(ctx, f)
}

// holds returns events.ErrLost if the stream of events has lost what it had at a place.
func (e *Examiner) holds(ctx context.Context, at events.Place) error {
	holds, err := e.events.holds(ctx, at)
	if err == nil && !holds {
		err = fmt.Errorf("%w: it had an output of partition %d at sequence %d", events.ErrLost, e.partition, at.Seq)
	}
	return err
}

// from is the sequence behind which the stream stores the outputs that are caused after what is
// known to be published.
func (e *Examiner) from(ctx context.Context, f *Found) (uint64, error) {
	c := f.Published()
	holds, err := e.events.holds(ctx, c.From)
	if err != nil || holds {
		return c.From.Seq, err
	}
	return c.Last.Seq, nil
}

// judgeNamed compares the log with what the outputs in the tail name. A message up to the one of the
// checkpoint, whose stamp was compared, cannot be another one: its output was published since.
func (e *Examiner) judgeNamed(ctx context.Context, f *Found) error {
	all := e.events.Tail.Named(f.Checkpoint.ParsedStamp().Seq)
	if len(all) == 0 {
		return nil
	}
	named := all[len(all)-1]
	info, err := e.log.InfoUpTo(ctx, named.Seq, e.ticks)
	if err != nil {
		return err
	}
	if last := info.State.LastSeq; last < named.Seq {
		return e.impasse(f, fmt.Errorf("%w: the log ends at sequence %d, and message %d of the stream of events follows from message %d of the log: the log has lost its end: restore the end that it has lost",
			identity.ErrLogBehind, last, named.At, named.Seq))
	}
	every := (len(all) + mostNamed - 1) / mostNamed
	for i := len(all) - 1; i >= 0; i -= every {
		if err := e.judgeOne(ctx, f, all[i]); err != nil {
			return err
		}
	}
	return nil
}

// mostNamed bounds the questions about messages that outputs name. There are more of them only where many
// messages are rejected, or the checkpoint is old.
const mostNamed = 64

// judgeOne compares the log with a message that an output names. One that took its place was stored after
// the output was published.
func (e *Examiner) judgeOne(ctx context.Context, f *Found, named events.Named) error {
	at, found, err := e.log.Stamp(ctx, named.Seq)
	if err != nil || !found || named.Ts == 0 {
		return err
	}
	if at := time.Unix(0, at); at.UnixMilli() > named.Ts {
		return e.impasse(f, fmt.Errorf("%w: message %d of the log was stored at %s, and message %d of the stream of events follows from one that was stored by %s: the log has lost its end, and was written again since: restore the end that it has lost",
			identity.ErrLogChanged, named.Seq, at.UTC().Format(time.RFC3339Nano), named.At, time.UnixMilli(named.Ts).UTC().Format(time.RFC3339Nano)))
	}
	return nil
}

// again chooses the log from its beginning, where outputs were lost and no snapshot can be used.
func (e *Examiner) again(ctx context.Context, f *Found) error {
	lost := f.Lost
	impossible := func(why error) error { // whose kind does not count: what is stored can still be read
		return fmt.Errorf("%w, and they cannot be published again: %v: restore the stream of events from a backup", lost, errors.Join(why, f.Unfit))
	}
	if c := f.Checkpoint; c.Seq == 0 {
		// Nothing tells which of the outputs that the stream does not have its limits have removed.
		first, _, err := e.events.ends(ctx)
		if err != nil {
			return err
		}
		if first > 1 {
			return impossible(fmt.Errorf("no snapshot is from before, and the stream has removed what it had before sequence %d", first))
		}
	}
	f.Damage = lost
	if err := e.judgeLog(ctx, f); errors.Is(err, identity.ErrRefused) || errors.Is(err, identity.ErrLogTruncated) {
		return impossible(errors.Unwrap(err))
	} else if err != nil {
		return err
	}
	return e.judgeEvents(ctx, f, 0)
}
