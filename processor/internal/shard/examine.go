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

// storeTimeout bounds the questions about a stored shard. The search for leftovers has no bound:
// it passes by the keys of all programs that use the Redis.
const storeTimeout = 30 * time.Second

// examiner finds out whether the log can continue the stored state of a shard.
//
// It reads Redis, the log, the stream of events, the checkpoint and the snapshots, which judge compares with
// each other: each of them may have lost its end without the others. It writes nothing, so that a refusal
// leaves everything as it was. The owner examines before it claims a shard, and again behind its fences.
type examiner struct{ *Parts }

// limited asks some questions to NATS within the limit of an examination. The reading of the tail has none.
func (e examiner) limited(ctx context.Context, questions func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, e.Bounds.Examine)
	defer cancel()
	return questions(ctx)
}

// known is what the owner knows of the shard by itself.
type known struct {
	EverTaken bool   // this process has taken the shard over before
	Committed uint64 // the offset of its last commit, if it has
	Damage    error  // the damage that a step has found
}

// State loads the stored state, and finds out its damage. It returns an error if it cannot
// tell, and a Refusal if somebody else has stored what is there.
func (e examiner) State(ctx context.Context, known known) (f *facts, err error) {
	f = &facts{Shard: e.Shard, LogID: e.Log.ID()}
	f.State, err = e.load(ctx)
	switch {
	case err != nil:
	case f.State.Version == "":
		err = e.checkLeftovers(ctx, known.EverTaken)
	case e.Log.Is(f.State.Log, f.State.Offset):
		err = e.verifyAll(ctx, f.State)
	case e.Log.Continues(f.State.Log):
		err = e.beyond(ctx, f)
	}
	if err == nil {
		err = known.Damage // which the sizes may not show
	}
	if errors.Is(known.Damage, errOtherMirror) && f.State.Version != "" {
		f.State.Stamp, f.State.Events, f.State.Log = store.Stamp{}, "", e.Log.ID()
	}
	if errors.Is(err, store.ErrDamaged) {
		f.Damage, err = err, nil
	}
	if errors.Is(err, store.ErrForeign) && !known.EverTaken {
		err = streams.Refuse(store.ErrForeign, "", "%w", err)
	}
	if f.State.Version == "" {
		f.State.Log = e.Log.ID()
	}
	f.Elsewhere = f.State.Version != "" && !e.Log.Is(f.State.Log, f.State.Offset)
	return f, err
}

// beyond judges a state of a log that this one continues, at an offset behind the place from which on it does. A
// follower applies what is stored after its promotion, until it notices that: the stamp shows that it was this
// log. A former first region has applied what no other region has: then the state is damaged.
func (e examiner) beyond(ctx context.Context, f *facts) error {
	of, seen := f.State.Log, f.State.Stamp
	f.State.Log = e.Log.ID()
	if !e.Log.Is(of, seen.Seq) {
		at, found, err := e.Log.Stamp(ctx, seen.Seq)
		if err != nil {
			return err
		}
		if found && at == seen.At {
			return e.verifyAll(ctx, f.State)
		}
	}
	f.State.Stamp, f.State.Events = store.Stamp{}, ""
	return fmt.Errorf("%w: it was applied up to %d, and the log of then was continued without its end",
		store.ErrDamaged, f.State.Offset)
}

// checkLeftovers refuses keys of a shard without a state at the start, because
// their owner is not known. Later they are the rest of a damaged shard. It names only keys that
// are there also after it has read once more that there is no state: a person may remove them.
func (e examiner) checkLeftovers(ctx context.Context, everTaken bool) error {
	before, err := e.Store.Leftovers(ctx)
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
	keys, err := e.Store.Leftovers(ctx)
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
	return fmt.Errorf("%w: there are %d keys without the state that belongs to them (%s): remove them, and lapse "+
		"rebuilds what was there from the log; or use another prefix",
		store.ErrForeign, len(keys), some)
}

// load loads the stored state.
func (e examiner) load(ctx context.Context) (store.State, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	return e.Store.Load(ctx)
}

// verifyAll verifies every collection that is stored, and the configurations.
func (e examiner) verifyAll(ctx context.Context, s store.State) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if len(s.Collections) == 0 {
		return e.Store.Verify(ctx, s.Version, nil)
	}
	for some := range slices.Chunk(s.Collections, verifyAtOnce) {
		var indexes []store.IndexOf
		for _, name := range some {
			for _, x := range s.Configs[name].Indexes {
				indexes = append(indexes, store.IndexOf{Collection: name, Slot: x.Slot})
			}
		}
		if err := e.Store.Verify(ctx, s.Version, some, indexes...); err != nil {
			return err
		}
	}
	return nil
}

// Examine compares what is stored with the log, the stream of events, the checkpoint and the snapshots, and decides
// from where the shard goes on: see judge. It reads the tail of the stream of events, which takes as long as it
// takes. After an error nothing is known, and the examination has to be made again.
func (e examiner) Examine(ctx context.Context, f *facts) (v verdict, err error) {
	if err := e.ask(ctx, f); err != nil {
		return v, err
	}
	first, err := e.try(ctx, f, f.stored(), 0)
	if err != nil {
		return v, err
	}
	var snapshots []trial
	var unread error
	if e.Desk != nil && wantsSnapshot(f, &first) {
		if snapshots, unread, err = e.trySnapshots(ctx, f, &first); err != nil {
			return v, err
		}
	}
	var again *trial
	if goesBack(&first, snapshots) {
		t, err := e.try(ctx, f, f.beginning(), 0)
		if err != nil {
			return v, err
		}
		again = &t
	}
	return judge(f, first, snapshots, unread, again), nil
}

// Again examines the source that a verdict has chosen once more, now that the owner has a fence in the stream of
// events.
func (e examiner) Again(ctx context.Context, v verdict, fence uint64) (verdict, error) {
	f := *v.facts
	v.facts = &f
	if err := e.ask(ctx, v.facts); err != nil {
		return v, err
	}
	from := v.source
	if !from.Stored && from.Snapshot == nil {
		from = f.beginning()
	}
	var err error
	v.trial, err = e.try(ctx, v.facts, from, fence)
	return v, err
}

// ask reads the checkpoint, and what the log and the stream of events have.
func (e examiner) ask(ctx context.Context, f *facts) error {
	f.Log, f.Gaps, f.Stamps, f.Holds = nil, nil, map[uint64]stamp{}, map[events.Place]bool{}
	return e.limited(ctx, func(ctx context.Context) (err error) {
		// The checkpoint comes before the end of the log: another owner may still move both on.
		if f.Checkpoint, err = e.Checkpoints.Load(ctx); err != nil {
			return err
		}
		return e.Link.Query(ctx, func(ctx context.Context) (err error) {
			f.Events, err = e.Publisher.Info(ctx)
			return err
		})
	})
}

// trySnapshots tries snapshots, the newest first, up to one that decides.
func (e examiner) trySnapshots(ctx context.Context, f *facts, first *trial) (all []trial, unread, err error) {
	snapshots := e.Desk.Store()
	generations, unread := snapshots.Generations(ctx)
	if unread != nil && !damaged(unread) {
		return nil, nil, unread
	}
	for _, m := range generations {
		t := trial{source: ofSnapshot(m)}
		if f.formerly(m.Offset, m.Last) {
			t.Unfit = errors.New("it is from before the shard was begun anew")
		} else if t, err = e.try(ctx, f, ofSnapshot(m), 0); err != nil {
			return nil, nil, err
		}
		if t.fits() && (f.State.Version != "" || first.Refusal != nil) {
			if err := snapshots.Verify(ctx, m); err != nil && !damaged(err) {
				return nil, nil, err
			} else if err != nil {
				t.Unfit = err
			}
		}
		if all = append(all, t); t.decides() {
			break
		}
	}
	return all, unread, nil
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

// try reads what tells whether the shard can go on from a source, and judges it. What the log does not allow needs
// no look at the stream of events, and what that has lost none at its tail. fence is the sequence of the owner's
// fence in the stream of events; 0 before it has one.
func (e examiner) try(ctx context.Context, f *facts, from source, fence uint64) (t trial, err error) {
	t.source = from
	err = e.limited(ctx, func(ctx context.Context) error {
		if err := e.askLog(ctx, f, from); err != nil {
			return err
		}
		if t.Refusal = judgeLog(f, from); t.Refusal != nil {
			if t.gap() {
				return e.Log.TellNeighbours(ctx, t.Refusal)
			}
			return nil
		}
		if err := e.askPlaces(ctx, f, from); err != nil {
			return err
		}
		t = recall(f, from)
		if from.Snapshot != nil {
			if t.Unfit = f.lost(t.Missed); t.Unfit == nil {
				t.Unfit = reachesBack(f, &t)
			}
		}
		return nil
	})
	if err != nil || !t.fits() {
		return t, err
	}
	upTo, behind := max(f.Events.State.LastSeq, fence), tailFrom(f, &t)
	if err := e.Link.Ask(ctx, func(ctx context.Context) error {
		return e.Tail.Cover(ctx, behind, upTo)
	}); err != nil {
		return t, err
	}
	return t, e.limited(ctx, func(ctx context.Context) error {
		named, err := e.askNamed(ctx, f, &t)
		if err == nil {
			t.Refusal = judgeNamed(f, named)
		}
		return err
	})
}

// askLog asks what the log has, as far as a source needs it.
func (e examiner) askLog(ctx context.Context, f *facts, from source) error {
	if err := e.askUpTo(ctx, f, f.needs(from)); err != nil {
		return err
	}
	for _, seen := range f.stamps(from) {
		if err := e.askStamp(ctx, f, seen.Seq); err != nil {
			return err
		}
	}
	return nil
}

// askUpTo asks for the state of the log, which is known to have had messages up to a sequence.
func (e examiner) askUpTo(ctx context.Context, f *facts, seq uint64) (err error) {
	if f.Log != nil && f.Log.State.LastSeq >= seq {
		return nil
	}
	if f.Log, err = e.Log.InfoUpTo(ctx, seq, e.Ticker); err == nil {
		f.Gaps, err = e.Log.Gaps(ctx, f.Log)
	}
	return err
}

// askStamp asks for the stamp of a message of the log.
func (e examiner) askStamp(ctx context.Context, f *facts, seq uint64) error {
	if _, asked := f.Stamps[seq]; asked {
		return nil
	}
	at, found, err := e.Log.Stamp(ctx, seq)
	if err == nil {
		f.Stamps[seq] = stamp{at, found}
	}
	return err
}

// askPlaces asks whether the stream of events has what is remembered of it.
func (e examiner) askPlaces(ctx context.Context, f *facts, from source) error {
	places, err := f.places(from)
	if err != nil {
		return err
	}
	for _, place := range places {
		if _, asked := f.Holds[place]; asked || place.Seq == 0 {
			continue
		}
		if err := e.Link.Query(ctx, func(ctx context.Context) error {
			holds, err := e.Publisher.Holds(ctx, e.Limits.Log, place)
			if err == nil {
				f.Holds[place] = holds
			}
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}

// askNamed asks for the stamps of messages that outputs in the tail name. A message up to the one of the
// checkpoint, whose stamp was compared, cannot be another one: its output was published since. Outputs from
// before the shard was begun anew do not count.
func (e examiner) askNamed(ctx context.Context, f *facts, t *trial) ([]events.Named, error) {
	all := e.Tail.Named(t.Known.ParsedStamp().Seq, t.Known.Anew)
	if len(all) == 0 {
		return nil, nil
	}
	if err := e.askUpTo(ctx, f, all[len(all)-1].Seq); err != nil {
		return nil, err
	}
	// The mirror of the events may be ahead of that of the log.
	if last := f.Log.State.LastSeq; f.Log.Config.Mirror != nil {
		all = slices.DeleteFunc(all, func(n events.Named) bool { return n.Seq > last })
	}
	some := toCompare(all)
	for _, n := range some {
		if n.Seq > f.Log.State.LastSeq {
			break // which is the verdict
		}
		if err := e.askStamp(ctx, f, n.Seq); err != nil {
			return nil, err
		}
	}
	return some, nil
}
