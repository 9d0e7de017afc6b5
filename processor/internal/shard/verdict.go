package shard

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// facts are what the servers hold of a shard, and what they remember of each other. An examiner reads them. The
// functions of this file decide by them alone, and ask nobody.
type facts struct {
	Shard      int
	LogID      string      // identity of the log here
	State      store.State // as it is stored
	Damage     error       // why the state is not whole; nil if it is
	Elsewhere  bool        // the state was computed from another log
	Checkpoint Checkpoint  // as it is stored

	Log    *jetstream.StreamInfo
	Gaps   []streams.Gap
	Stamps map[uint64]stamp // of messages of the log

	Events *jetstream.StreamInfo
	Holds  map[events.Place]bool // whether the stream of events has not lost what it had there

	Given []events.Place // outputs that a person gives up now
}

// stamp is the stamp of a message, if the log has that.
type stamp struct {
	at    int64
	found bool
}

// source is from where a shard can go on: from what is stored, from a snapshot, or else from the beginning of the log.
type source struct {
	Stored   bool
	Snapshot *snapshot.Manifest
	Offset   uint64
}

// trial is how one source fits what the servers hold. See recall.
type trial struct {
	source
	Refusal *streams.Refusal // why the shard cannot go on from there; nil if the log allows it
	Unfit   error            // why the snapshot cannot be used, though the log allows it

	Output events.Place   // of the last output before the state, as far as that counts
	Known  Checkpoint     // the checkpoint; without its position if the stream has lost its last output
	Lost   []events.Place // that the stream of events has lost, and the state or the checkpoint remembers
	Missed []events.Place // and those that the snapshot remembers
}

// fits reports whether the shard can go on from the source.
func (t *trial) fits() bool { return t.Refusal == nil && t.Unfit == nil }

// verdict is what an examination has decided: to go on from a source, or to refuse.
type verdict struct {
	*facts
	trial         // from where the owner goes on. If its Refusal is set, the owner does not, nor does any other
	Why     error // why what is stored is not gone on from; nil if it is
	Skipped error // why snapshots that there are cannot be used

	Gone []events.Place // what the stream of events has lost, where the refusal is about that
}

// formerly reports whether what had applied the log up to an offset, and had its last output at a place, is from before
// a person has begun the shard anew.
func (f *facts) formerly(offset uint64, at events.Place) bool {
	return offset < f.Checkpoint.Origin || at.Seq < f.Checkpoint.Anew
}

// former reports whether what is stored is from before that.
func (f *facts) former() bool {
	at, err := events.ParsePlace(f.State.Events)
	return err == nil && f.State.Version != "" && f.formerly(f.State.Offset, at)
}

// continues reports whether what is stored is whole, so that only the streams can keep the owner from going on.
func (f *facts) continues() bool { return f.State.Version != "" && f.Damage == nil && !f.former() }

// stored is the source that comes first: what is stored, or where there is nothing of use the beginning of the log.
func (f *facts) stored() source {
	if f.continues() {
		return source{Stored: true, Offset: f.State.Offset}
	}
	return f.beginning()
}

func (f *facts) beginning() source { return source{Offset: f.Checkpoint.Origin} }

// ofSnapshot is the source of a snapshot.
func ofSnapshot(m *snapshot.Manifest) source { return source{Snapshot: m, Offset: m.Offset} }

// stamps are the stamps that somebody has seen, and that the log must have.
func (f *facts) stamps(from source) (seen []store.Stamp) {
	if !f.former() {
		seen = append(seen, f.State.Stamp)
	}
	seen = append(seen, f.Checkpoint.ParsedStamp())
	if from.Snapshot != nil {
		seen = append(seen, from.Snapshot.Stamp)
	}
	return slices.DeleteFunc(seen, func(s store.Stamp) bool { return s.Seq == 0 })
}

// needs is the sequence up to which the log must have messages, so that the shard can go on from a source.
func (f *facts) needs(from source) (seq uint64) {
	seq = max(from.Offset, f.Checkpoint.Seq)
	for _, s := range f.stamps(from) {
		seq = max(seq, s.Seq)
	}
	return seq
}

// judgeLog judges whether the log is the one from which the stored state was computed, and has the messages that
// come after a source. It returns nil if so.
func judgeLog(f *facts, from source) *streams.Refusal {
	if f.Elsewhere && !f.former() {
		return f.refuse(streams.Refuse(streams.ErrLogChanged, "restore that log",
			"Redis holds documents of the log that was created at %s, and the log here was created at %s",
			streams.FormatID(f.State.Log), streams.FormatID(f.LogID)))
	}
	r, last := streams.JudgeOffset(f.Log, f.LogID, from.Offset), f.Log.State.LastSeq
	switch {
	case r != nil && r.Kind == streams.ErrLogTruncated && f.Damage != nil && from.Snapshot == nil:
		r = streams.Refuse(streams.ErrRefused, "restore Redis from a backup, or the log",
			"%w; it cannot be rebuilt, as the log begins at sequence %d: what is left of it is kept as it is", f.Damage,
			f.Log.State.FirstSeq)
	case r == nil && f.Checkpoint.Seq > last:
		r = streams.Refuse(streams.ErrLogBehind, "restore the log",
			"the log ends at sequence %d, and everything up to %d was published: it was restored from an older "+
				"copy, or lost its end", last, f.Checkpoint.Seq)
	}
	if r == nil {
		r = streams.JudgeGaps(f.Gaps, from.Offset)
	}
	for _, seen := range f.stamps(from) {
		if r == nil {
			has := f.Stamps[seen.Seq]
			r = streams.JudgeStamp(last, has.at, has.found, seen, "lapse has applied")
		}
	}
	return f.refuse(r)
}

// refuse completes a refusal with what a person can give up.
func (f *facts) refuse(r *streams.Refusal) *streams.Refusal {
	if r == nil || r.Accept != "" {
		return r
	}
	switch r.Kind {
	case streams.ErrLogBehind, streams.ErrLogChanged:
		r.Accept = streams.LostLogEnd
	case streams.ErrLogTruncated:
		r.Accept = streams.LostLogBeginning
	case streams.ErrRefused:
		r.Accept = streams.LostDocuments
	}
	r.Removes = r.Accept != "" && f.State.Version != ""
	return r
}

// wantsSnapshot reports whether a snapshot is to be used, if there is one: what is stored cannot be continued, or
// outputs were lost that it does not bring back.
func wantsSnapshot(f *facts, first *trial) bool {
	if r := first.Refusal; r != nil {
		return r.Kind == streams.ErrLogGap || r.Kind == streams.ErrLogTruncated || r.Kind == streams.ErrRefused
	}
	return !first.Stored || len(first.Lost) > 0
}

// goesBack reports whether outputs were lost that only a rebuild from the beginning of the log can bring back: none of
// the snapshots that were tried fits, and none refuses the log.
func goesBack(first *trial, snapshots []trial) bool {
	settles := func(t trial) bool { return t.decides() || t.gap() }
	return first.Refusal == nil && len(first.Lost) > 0 && !slices.ContainsFunc(snapshots, settles)
}

// decides reports whether no older snapshot is tried after this one: it fits, or refuses the log.
func (t *trial) decides() bool {
	return t.fits() || t.Refusal != nil && t.Refusal.Kind != streams.ErrLogTruncated &&
		t.Refusal.Kind != streams.ErrLogGap
}

func (t *trial) gap() bool { return t.Refusal != nil && t.Refusal.Kind == streams.ErrLogGap }

// judge decides from where the shard goes on: from what is stored; where that cannot be continued, or outputs
// were lost that it does not bring back, from the newest snapshot that is whole, that the log continues, and of whose
// outputs the stream of events has lost none; else from the beginning of the log. first is the trial of what is
// stored, or of the beginning of the log; snapshots are those that were tried, the newest first, and unread is why
// some cannot be read; again is the trial of the beginning of the log, where outputs were lost and no snapshot fits.
//
//   - verified: A snapshot is chosen only after it was verified, unless nothing is stored and the log
//     reaches back: then a load that fails costs nothing.
//   - from the beginning: If none can be used, the log from its beginning is, and if it does not reach back, that is
//     the refusal, with what is wrong with each snapshot.
//   - another end: A snapshot of this log that has seen another end of it refuses the log, as the checkpoint does.
//   - lost outputs: Where nothing keeps a snapshot from being used but lost outputs, these are the refusal:
//     whoever gives them up does not lose the documents.
//   - lost messages: Where nothing keeps a snapshot, or the log, from being used but messages that the log has lost,
//     these are the refusal, before all others: whoever goes on without them gives up nothing else.
func judge(f *facts, first trial, snapshots []trial, unread error, again *trial) verdict {
	v := verdict{facts: f, trial: first, Why: f.whyNot(&first)}
	if !wantsSnapshot(f, &first) {
		return v
	}
	var gap *streams.Refusal // messages that the log has lost, without which it could be used
	if first.gap() {
		gap = first.Refusal
	}
	var without *trial // a snapshot that could be used without lost outputs
	skipped := []error{unread}
	for i := range snapshots {
		t := &snapshots[i]
		if t.decides() {
			v.trial, v.Skipped = *t, errors.Join(skipped...)
			return v
		}
		why := t.Unfit
		if t.Refusal != nil {
			why = t.Refusal.What()
		}
		if t.gap() {
			gap = cmp.Or(gap, t.Refusal)
		}
		if errors.Is(t.Unfit, events.ErrLost) {
			without = cmp.Or(without, t)
		}
		skipped = append(skipped, fmt.Errorf("the snapshot of generation %d, at sequence %d: %w", t.Snapshot.Generation,
			t.Offset, why))
	}
	v.Skipped = errors.Join(skipped...)
	switch {
	case gap != nil:
		v.Refusal = gap
	case again != nil:
		v.trial = *again
		if lacks := cannotGoBack(f, again); lacks != nil {
			v.Gone = lostOf(first, snapshots)
			v.Refusal = f.gone(f.lost(first.Lost), v.Gone, errors.Join(lacks, v.Skipped))
		}
	case first.Refusal == nil:
	case without != nil:
		v.Gone = lostOf(first, snapshots)
		v.Refusal = f.gone(without.Unfit, v.Gone, errors.Join(first.Refusal.What(), v.Skipped))
	case v.Skipped == nil:
		v.Refusal = first.Refusal.Because("and the shard has no snapshot")
	default:
		v.Refusal = first.Refusal.Because("and no snapshot can be used: " + v.Skipped.Error())
	}
	return v
}

// whyNot is why what is stored is not gone on from; nil if it is, or if nothing is stored.
func (f *facts) whyNot(first *trial) error {
	switch {
	case f.Damage != nil:
		return f.Damage
	case f.former():
		return errBegunAnew
	case first.Refusal != nil:
		return first.Refusal.What()
	}
	return f.lost(first.Lost)
}

// errBegunAnew is why a shard is rebuilt after BeginAnew.
var errBegunAnew = errors.New("a person has decided to begin it anew from the log")

// cannotGoBack is why the log from its beginning does not bring lost outputs back; nil if it does.
func cannotGoBack(f *facts, again *trial) error {
	switch r := again.Refusal; {
	case r != nil && (r.Kind == streams.ErrLogTruncated || r.Kind == streams.ErrRefused):
		return fmt.Errorf("the log begins at sequence %d", f.Log.State.FirstSeq)
	case r == nil && again.Known.Seq == 0 && f.Events.State.FirstSeq > 1:
		// Nothing tells which of the outputs that the stream does not have its limits have removed.
		return fmt.Errorf("no snapshot is from before, and the stream has removed what it had before sequence %d",
			f.Events.State.FirstSeq)
	}
	return nil
}

// fromBeginning reports whether the shard goes on from the beginning of the log.
func (v *verdict) fromBeginning() bool { return !v.source.Stored && v.Snapshot == nil }

// changed returns an error unless the verdict stands that was made before the owner had its fences: it is a Refusal if
// the log is refused now. What the owner would mend otherwise is examined anew.
func (v *verdict) changed(before *verdict) error {
	if r := v.Refusal; r != nil && (r.Kind == streams.ErrLogTruncated || r.Kind == streams.ErrRefused) {
		return fmt.Errorf("truncated since the examination, which is made anew: %v", r.What())
	} else if r != nil {
		return r
	}
	if v.Unfit != nil {
		return fmt.Errorf("the snapshot cannot be used since the examination, which is made anew: %w", v.Unfit)
	}
	// A checkpoint may have been stored meanwhile that is of no use.
	if lost := v.lost(v.Lost); lost != nil && (len(before.Lost) == 0 || v.Known.Seq < before.Known.Seq) {
		return fmt.Errorf("lost since the examination, which is made anew: %w", lost)
	}
	return nil
}

// Rebuild is the offset below which the shard lacks documents that it had before; 0 if
// it lacks none. A shard without a state lacks all that is in the log, which ends at last.
func (v *verdict) Rebuild(known known, last uint64) uint64 {
	if v.State.Version == "" {
		return last
	}
	had := max(v.State.Rebuild, v.Known.Seq)
	if known.EverTaken {
		had = max(had, known.Committed)
	}
	if had <= v.State.Offset {
		return 0
	}
	return had
}
