package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// storeTimeout bounds the questions about a stored partition. The search for leftovers has no bound:
// it passes by the keys of all programs that use the Redis.
const storeTimeout = 30 * time.Second

// examiner finds out whether the log can continue the stored state of a partition.
//
// It reads Redis, the log, the stream of events, the checkpoint and the snapshots, and compares them with
// each other: each of them may have lost its end without the others. It writes nothing, so that a refusal
// leaves everything as it was. The owner examines before it claims a partition, and again behind its fences.
type examiner struct {
	partition   int
	store       Store
	log         *streams.Log
	events      *Events
	checkpoints *Checkpoints
	snapshots   *snapshot.Store // nil if there are none
	ticks       streams.Appender
}

// newExaminer makes the examiner of a partition.
func newExaminer(partition int, store Store, log *streams.Log, events *Events, checkpoints *Checkpoints, snapshots *snapshot.Store, ticks streams.Appender) *examiner {
	return &examiner{partition: partition, store: store, log: log, events: events, checkpoints: checkpoints, snapshots: snapshots, ticks: ticks}
}

// known is what the owner knows of the partition by itself.
type known struct {
	EverTaken bool   // this process has taken the partition over before
	Committed uint64 // the offset of its last commit, if it has
	Damage    error  // the damage that a step has found
}

// found is what an examination has found.
type found struct {
	State      store.State
	Damage     error // why the state is not whole; nil if it is
	Checkpoint Checkpoint
	Last       uint64 // sequence of the log, or less
	Lost       error  // why outputs have to be published again that the stream of events had; nil if it has them

	lost      []events.Place // that the stream of events does not have any more
	given     []events.Place // those of them that a person has given up
	held      uint64         // the greatest sequence of a place that the stream has
	watermark int64          // the log time that Redis or the checkpoint remembers

	Snapshot *snapshot.Manifest // to be loaded in place of what is stored; nil if none is
	Old      error              // why the log cannot continue what is stored, where there is a Snapshot
	Unfit    error              // why snapshots that there are cannot be used
}

// rebuilds reports whether what is stored cannot be continued, whatever the log has.
func (f *found) rebuilds() bool { return f.State.Version == "" || f.Damage != nil }

// State loads the stored state, and finds out its damage. It returns an error if it cannot
// tell. A search for leftovers takes as long as it takes.
func (e *examiner) State(ctx context.Context, known known) (f *found, err error) {
	f = &found{}
	f.State, err = e.load(ctx)
	switch {
	case err != nil:
	case f.State.Version == "":
		err = e.checkLeftovers(ctx, known.EverTaken)
	case e.log.Is(f.State.Log, f.State.Offset):
		err = e.verifyAll(ctx, f.State)
	case e.log.Continues(f.State.Log):
		err = e.beyond(ctx, f)
	}
	if err == nil {
		err = known.Damage // which the sizes may not show
	}
	if errors.Is(err, store.ErrDamaged) {
		f.Damage, err = err, nil
	}
	if f.State.Version == "" {
		f.State.Log = e.log.ID()
	}
	return f, err
}

// beyond judges a state of a log that this one continues, at an offset behind the place from which on it does. A
// follower applies what is stored after its promotion, until it notices that: the stamp shows that it was this
// log. A former first region has applied what no other region has: then the state is damaged.
func (e *examiner) beyond(ctx context.Context, f *found) error {
	of, seen := f.State.Log, f.State.Stamp
	f.State.Log = e.log.ID()
	if !e.log.Is(of, seen.Seq) {
		at, found, err := e.log.Stamp(ctx, seen.Seq)
		if err != nil {
			return err
		}
		if found && at == seen.At {
			return e.verifyAll(ctx, f.State)
		}
	}
	f.State.Stamp, f.State.Events = store.Stamp{}, ""
	return fmt.Errorf("%w: it was applied up to %d, and the log of then was continued without its end", store.ErrDamaged, f.State.Offset)
}

// Streams judges whether the log is the one from which the stored state was computed, and has
// the messages that come next; where a snapshot was chosen, whether it has those that come after
// that. It judges likewise whether the stream of events has what was published: see Events. It also
// reads the checkpoint. fence is the sequence of the owner's fence in the stream of events; 0 before
// it has one.
func (e *examiner) Streams(ctx context.Context, f *found, fence uint64) error {
	if err := e.events.limited(ctx, func(ctx context.Context) error { return e.judgeLog(ctx, f) }); err != nil {
		return err
	}
	return e.judgeEvents(ctx, f, fence)
}

// judgeLog judges the log.
func (e *examiner) judgeLog(ctx context.Context, f *found) error {
	// The checkpoint comes before the end of the log: another owner may still move both on.
	var err error
	if f.Checkpoint, err = e.checkpoints.Load(ctx); err != nil {
		return err
	}
	f.watermark = max(f.State.Watermark, f.Checkpoint.Watermark)
	if f.State.Version != "" && !e.log.Is(f.State.Log, f.State.Offset) {
		return e.impasse(f, fmt.Errorf("%w: Redis holds documents of the log that was created at %s, and the log here was created at %s: restore that log",
			streams.ErrLogChanged, streams.FormatID(f.State.Log), streams.FormatID(e.log.ID())))
	}
	offset := f.State.Offset
	stamps := []store.Stamp{f.State.Stamp, f.Checkpoint.ParsedStamp()}
	switch {
	case f.Snapshot != nil:
		offset = f.Snapshot.Offset
		stamps = append(stamps, f.Snapshot.Stamp)
	case f.rebuilds():
		offset = f.Checkpoint.Origin
	}
	info, err := e.log.InfoUpTo(ctx, max(offset, f.Checkpoint.Seq), e.ticks)
	if err != nil {
		return err
	}
	f.Last = info.State.LastSeq
	err = streams.CheckOffset(info, e.log.ID(), offset)
	if err == nil && f.Checkpoint.Seq > f.Last {
		err = fmt.Errorf("%w: the log ends at sequence %d, and everything up to %d was published: it was restored from an older copy, or lost its end: restore the log",
			streams.ErrLogBehind, f.Last, f.Checkpoint.Seq)
	}
	if f.Damage != nil && f.Snapshot == nil && errors.Is(err, streams.ErrLogTruncated) {
		err = fmt.Errorf("%w: %w; it cannot be rebuilt, as the log begins at sequence %d: what is left of it is kept as it is: restore Redis from a backup, or the log",
			streams.ErrRefused, f.Damage, info.State.FirstSeq)
	}
	if err != nil {
		return e.impasse(f, err)
	}
	if err := e.log.CheckGaps(ctx, info, offset); err != nil {
		return err
	}
	for _, seen := range stamps {
		if err := e.log.CheckStamp(ctx, seen, "lapse has applied", e.ticks); errors.Is(err, streams.ErrLogChanged) || errors.Is(err, streams.ErrLogBehind) {
			return e.impasse(f, err)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// impasse names an error by the log and the stored state.
func (e *examiner) impasse(f *found, why error) error {
	return streams.NewImpasse(why, begun(f.State.Version), e.log.ID(), e.partition, f.State.Log, f.State.Offset, f.State.Stamp, f.Checkpoint.Seq, f.Damage != nil)
}

// checkLeftovers refuses keys of a partition without a state at the start, because
// their owner is not known. Later they are the rest of a damaged partition. It names only keys that
// are there also after it has read once more that there is no state: a person may remove them.
func (e *examiner) checkLeftovers(ctx context.Context, everTaken bool) error {
	before, err := e.store.Leftovers(ctx)
	if err != nil || len(before) == 0 {
		return err
	}
	again, err := e.load(ctx)
	if again.Version != "" {
		return fmt.Errorf("%w: another process has just made its state", store.ErrFenced)
	}
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		return err
	}
	keys, err := e.store.Leftovers(ctx)
	if err != nil {
		return err
	}
	if keys = slices.DeleteFunc(keys, func(k string) bool { return !slices.Contains(before, k) }); len(keys) == 0 {
		return fmt.Errorf("%w: another process is just removing what is left of it", store.ErrFenced)
	}
	slices.Sort(keys)
	some := strings.Join(keys[:min(3, len(keys))], ", ")
	if everTaken {
		return fmt.Errorf("%w: its state is gone, and %d keys are left (%s)", store.ErrDamaged, len(keys), some)
	}
	return fmt.Errorf("%w: there are %d keys without the state that belongs to them (%s): remove them, and lapse rebuilds what was there from the log; or use another prefix",
		store.ErrForeign, len(keys), some)
}

// load loads the stored state.
func (e *examiner) load(ctx context.Context) (store.State, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return e.store.Load(ctx)
}

// verifyAll verifies every collection that is stored, and the configurations.
func (e *examiner) verifyAll(ctx context.Context, s store.State) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if len(s.Collections) == 0 {
		return e.store.Verify(ctx, s.Version, nil)
	}
	for some := range slices.Chunk(s.Collections, verifyAtOnce) {
		if err := e.store.Verify(ctx, s.Version, some); err != nil {
			return err
		}
	}
	return nil
}

// Rebuild is the offset below which the partition lacks documents that it had before; 0 if
// it lacks none. A partition without a state lacks all that is in the log.
func (f *found) Rebuild(known known) uint64 {
	if f.State.Version == "" {
		return f.Last
	}
	had := max(f.State.Rebuild, f.Checkpoint.Seq)
	if known.EverTaken {
		had = max(had, known.Committed)
	}
	if had <= f.State.Offset {
		return 0
	}
	return had
}
