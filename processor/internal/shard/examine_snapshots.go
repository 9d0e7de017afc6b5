package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
)

// Choose chooses the snapshot to be loaded, where what is stored cannot be continued, or outputs were
// lost that it does not bring back: the newest one that is whole, that the log continues, and of whose
// outputs the stream of events has lost none. why is the answer of Streams about what is stored.
//
//   - E1: A snapshot is chosen only after it was verified, unless nothing is stored and the log
//     reaches back: then a load that fails costs nothing.
//   - E2: If none can be used, the log from its beginning is, and if it does not reach back, why is
//     the refusal, with what is wrong with each snapshot.
//   - E3: A snapshot of this log that has seen another end of it refuses the log, as the checkpoint
//     does.
//   - E9: Where nothing keeps a snapshot, or the log, from being used but messages that the log has lost,
//     these are the refusal, before all others: whoever goes on without them gives up nothing else.
//   - E10: Where outputs were lost, those behind a snapshot must all be in the stream, or be lost:
//     what its limits have removed meanwhile would be published again.
//   - E8: Where nothing keeps a snapshot from being used but lost outputs, these are the refusal:
//     whoever gives them up does not lose the documents.
//
// After an error that is no refusal nothing is known, and Choose has to be tried again.
func (e *examiner) Choose(ctx context.Context, f *found, why error) error {
	var gap error // messages that the log has lost, without which it could be used
	if errors.Is(why, streams.ErrLogGap) {
		gap = why
	}
	old := gap != nil || errors.Is(why, streams.ErrLogTruncated) || errors.Is(why, streams.ErrRefused)
	lost := why == nil && f.Lost != nil
	if lost && e.snapshots == nil {
		return e.again(ctx, f)
	}
	if e.snapshots == nil || !old && (why != nil || !f.rebuilds() && !lost) {
		return why
	}
	all, err := e.snapshots.Generations(ctx)
	if err != nil && !damaged(err) {
		return err
	}
	unfit := []error{err}
	var without error // why a snapshot cannot be used that could be without the lost outputs
	for _, m := range all {
		f.Snapshot = m
		err := e.Streams(ctx, f, 0)
		if err == nil && f.Lost != nil {
			err = e.reachesBack(ctx, f)
		}
		if err == nil && (f.State.Version != "" || why != nil) {
			err = e.snapshots.Verify(ctx, m)
		}
		if err == nil {
			f.Old, f.Unfit = errors.Unwrap(why), errors.Join(unfit...)
			return nil
		}
		f.Snapshot = nil
		if errors.Is(err, streams.ErrLogTruncated) {
			err = errors.Unwrap(err) // without what a person can do: it is one reason among others
		} else if errors.Is(err, streams.ErrLogGap) {
			gap = cmp.Or(gap, err)
		} else if errors.Is(err, events.ErrLost) {
			without = cmp.Or(without, err)
		} else if !damaged(err) {
			return err
		}
		unfit = append(unfit, fmt.Errorf("the snapshot of generation %d, at sequence %d: %w", m.Generation, m.Offset, err))
	}
	f.Unfit = errors.Join(unfit...)
	switch {
	case gap != nil:
		return gap
	case lost:
		return e.again(ctx, f)
	case why == nil:
		return nil
	case without != nil:
		return e.gone(ctx, f, without, errors.Unwrap(why))
	case f.Unfit == nil:
		return e.impasse(f, fmt.Errorf("%w; and the partition has no snapshot", errors.Unwrap(why)))
	default:
		return e.impasse(f, fmt.Errorf("%w; and no snapshot can be used: %w", errors.Unwrap(why), f.Unfit))
	}
}

// damaged reports whether an error, or each of several, says that a snapshot is damaged.
func damaged(err error) bool {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err == snapshot.ErrDamaged || errors.Unwrap(err) != nil && damaged(errors.Unwrap(err))
	}
	all := true
	for _, one := range several.Unwrap() {
		if one == snapshot.ErrDamaged {
			return true // the others are its reason
		}
		all = all && damaged(one)
	}
	return all
}

// LastOutput is where the stream of events has the last output of the partition, as far as that is
// remembered and was not lost.
func (f *found) LastOutput() events.Place {
	places := []events.Place{f.Checkpoint.Last}
	if f.Snapshot != nil {
		places = append(places, f.Snapshot.Last)
	}
	if stored, err := events.ParsePlace(f.State.Events); err == nil && f.Lost == nil {
		places = append(places, stored)
	}
	return slices.MaxFunc(places, func(a, b events.Place) int { return cmp.Compare(a.Seq, b.Seq) })
}

// Published is the position up to which all outputs are published: that of the checkpoint, or of
// the snapshot.
func (f *found) Published() Checkpoint {
	c := f.Checkpoint
	if m := f.Snapshot; m != nil && m.Published > c.Seq {
		c.Log, c.Seq, c.Watermark, c.From, c.Last = m.Log, m.Published, m.PublishedTime, m.From, m.Last
	}
	return c
}
