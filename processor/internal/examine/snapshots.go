package examine

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed18712806/lapse/processor/internal/announce"
	"github.com/seed18712806/lapse/processor/internal/identity"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
)

// Choose chooses the snapshot to be loaded, where what is stored cannot be continued: the newest
// one that is whole and that the log continues. why is the answer of Log about what is stored.
//
//   - E1: A snapshot is chosen only after it was verified, unless nothing is stored and the log
//     reaches back: then a load that fails costs nothing.
//   - E2: If none can be used, the log from its beginning is, and if it does not reach back, why is
//     the refusal, with what is wrong with each snapshot.
//   - E3: A snapshot of this log that has seen another end of it refuses the log, as the checkpoint
//     does.
//
// After an error that is no refusal nothing is known, and Choose has to be tried again.
func (e *Examiner) Choose(ctx context.Context, f *Found, why error) error {
	old := errors.Is(why, identity.ErrLogTruncated) || errors.Is(why, identity.ErrRefused)
	if e.snapshots == nil || !old && (why != nil || !f.rebuilds()) {
		return why
	}
	all, err := e.snapshots.Generations(ctx, e.partition)
	if err != nil && !damaged(err) {
		return err
	}
	unfit := []error{err}
	for _, m := range all {
		f.Snapshot = m
		err := e.Log(ctx, f)
		if err == nil && (f.State.Version != "" || why != nil) {
			err = e.snapshots.Verify(ctx, m)
		}
		if err == nil {
			f.Old, f.Unfit = errors.Unwrap(why), errors.Join(unfit...)
			return nil
		}
		f.Snapshot = nil
		if errors.Is(err, identity.ErrLogTruncated) {
			err = errors.Unwrap(err) // without what a person can do: it is one reason among others
		} else if !damaged(err) {
			return err
		}
		unfit = append(unfit, fmt.Errorf("the snapshot of generation %d, at sequence %d: %w", m.Generation, m.Offset, err))
	}
	f.Unfit = errors.Join(unfit...)
	switch {
	case why == nil:
		return nil
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

// Published is the position up to which all outputs are published: that of the checkpoint, or of
// the snapshot.
func (f *Found) Published() announce.Checkpoint {
	c := f.Checkpoint
	if m := f.Snapshot; m != nil && m.Published > c.Seq {
		c.Log, c.Seq, c.Watermark = m.Log, m.Published, m.PublishedTime
	}
	return c
}
