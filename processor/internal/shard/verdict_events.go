package shard

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
)

// places are those in the stream of events that are remembered, where the shard is to go on from a source.
func (f *facts) places(from source) (all []events.Place, err error) {
	stored, err := events.ParsePlace(f.State.Events)
	if err != nil {
		return nil, err
	}
	all = []events.Place{stored, f.Checkpoint.Last, f.Checkpoint.From}
	if m := from.Snapshot; m != nil {
		all = append(all, m.Last, m.From)
	}
	return all, nil
}

// recall compares the stream of events with the places that are remembered:
//
//   - remembered: What Redis, the checkpoint and a snapshot remember of the stream has to be there. Where the
//     state or the checkpoint remembers more, outputs were lost: then the shard
//     is rebuilt from a snapshot (or the log) of which nothing was lost, and publishes them again.
//   - given up: What a person has given up (BeginAnew) is not looked for: what Redis and the checkpoint remembered when
//     the person decided, and what a state or a snapshot of before that remembers.
func recall(f *facts, from source) trial {
	t := trial{source: from, Known: f.Checkpoint}
	// keep leaves a place as it is if the stream has it; what was given up is not known from here on.
	keep := func(at *events.Place, given bool) (lost []events.Place) {
		if at.Seq == 0 || f.Holds[*at] {
			return nil
		}
		if !given && !slices.Contains(f.Given, *at) {
			return []events.Place{*at}
		}
		*at = events.Place{}
		return nil
	}
	c := &t.Known
	if stored, err := events.ParsePlace(f.State.Events); err == nil && !f.former() {
		t.Output = stored
		t.Lost = keep(&t.Output, f.State.Offset < c.GivenUp)
	}
	if lost := keep(&c.Last, false); lost != nil {
		t.Lost = append(t.Lost, lost...)
		*c = Checkpoint{Log: c.Log, Origin: c.Origin, GivenUp: c.GivenUp}
	}
	gives := len(f.Given) > 0
	if from.Snapshot != nil {
		m := *from.Snapshot
		before := m.Offset < c.GivenUp
		t.Missed = keep(&m.Last, before)
		if before || gives {
			keep(&m.From, true)
		}
		t.Snapshot = &m
	}
	if gives {
		keep(&c.From, true)
	}
	return t
}

// lost says which of the places that the stream of events has lost counts, the last one of them.
func (f *facts) lost(at []events.Place) error {
	if len(at) == 0 {
		return nil
	}
	return fmt.Errorf("%w: it had an output of shard %d at sequence %d", events.ErrLost, f.Shard, at[len(at)-1].Seq)
}

// Published is the position up to which all outputs are published: that of the checkpoint, or of the snapshot.
func (t *trial) Published() Checkpoint {
	c := t.Known
	if m := t.Snapshot; m != nil && m.Published > c.Seq {
		c.Log, c.Seq, c.Watermark, c.From, c.Last = m.Log, m.Published, m.PublishedTime, m.From, m.Last
	}
	return c
}

// LastOutput is where the stream of events has the last output of the shard, as far as that is
// remembered and was not lost.
func (t *trial) LastOutput() events.Place {
	places := []events.Place{t.Known.Last}
	if t.Snapshot != nil {
		places = append(places, t.Snapshot.Last)
	}
	if len(t.Lost) == 0 {
		places = append(places, t.Output)
	}
	return slices.MaxFunc(places, func(a, b events.Place) int { return cmp.Compare(a.Seq, b.Seq) })
}

// tailFrom is the sequence behind which the stream of events stores the outputs that are caused after what is known
// to be published.
//
//   - the tail: The tail begins where the outputs behind the checkpoint begin. If that place was lost, it begins at the
//     last output that the checkpoint remembers; where that was given up, at the beginning of the stream.
func tailFrom(f *facts, t *trial) uint64 {
	c := t.Published()
	if c.From.Seq == 0 || f.Holds[c.From] {
		return c.From.Seq
	}
	return c.Last.Seq
}

// mostNamed bounds the questions about messages that outputs name. There are more of them only where many
// messages are rejected, or the checkpoint is old.
const mostNamed = 64

// toCompare are the messages that the log is asked for, of those that outputs name: the last one, and of many one in
// so many.
func toCompare(all []events.Named) (some []events.Named) {
	every := (len(all) + mostNamed - 1) / mostNamed
	for i := len(all) - 1; i >= 0; i -= every {
		some = append(some, all[i])
	}
	return some
}

// judgeNamed compares the log with messages that outputs in the tail name, the last one first.
//
//   - named: A message that an output names has to be in the log, and to be the one that was there then. The
//     first output of a step names the last message from which the outputs of the step can follow. Of
//     many, one in so many is compared.
func judgeNamed(f *facts, all []events.Named) *streams.Refusal {
	const restore = "restore the end that it has lost"
	last := f.Log.State.LastSeq
	for _, n := range all {
		has := f.Stamps[n.Seq]
		switch {
		case n.Seq > last:
			return f.refuse(streams.Refuse(streams.ErrLogBehind, restore,
				"the log ends at sequence %d, and message %d of the stream of events follows from message %d of the "+
					"log: the log has lost its end",
				last, n.At, n.Seq))
		case has.found && (has.at < n.Since || n.By < has.at): // one that took its place has another stamp
			return f.refuse(streams.Refuse(streams.ErrLogChanged, restore,
				"message %d of the log was stored at %s, and message %d of the stream of events follows from one "+
					"that was stored by %s: the log has lost its end, and was written again since",
				n.Seq, formatTime(time.Unix(0, has.at)), n.At, formatTime(time.Unix(0, n.By))))
		}
	}
	return nil
}

// reachesBack returns events.ErrLost if the limits of the stream have removed messages behind the place
// from which outputs are published again. The outputs among them cannot be told from those that were lost.
//
//   - removed: Where outputs were lost, those behind a snapshot must all be in the stream, or be lost:
//     what its limits have removed meanwhile would be published again.
func reachesBack(f *facts, t *trial) error {
	first, behind := f.Events.State.FirstSeq, t.Published().From.Seq
	if len(t.Lost) > 0 && first > behind+1 {
		return fmt.Errorf("%w: the stream has removed what it had from sequence %d to %d, which is from after the "+
			"snapshot", events.ErrLost, behind+1, first-1)
	}
	return nil
}

// lostOf are all places that the stream of events was found to have lost.
func lostOf(first trial, snapshots []trial) []events.Place {
	all := slices.Clone(first.Lost)
	for _, t := range snapshots {
		all = append(append(all, t.Lost...), t.Missed...)
	}
	return all
}

// gone is the refusal where lost outputs cannot be published again. What is stored can still be read.
func (f *facts) gone(lost error, places []events.Place, why error) *streams.Refusal {
	r := streams.Refuse(events.ErrLost, "restore the stream of events from a backup",
		"%w: %s; they cannot be published again: %v", lost, f.missing(places), why)
	r.Accept = streams.LostEvents
	return r
}

// missing says which messages the stream of events has lost, and since when they were stored, as far as that is known.
func (f *facts) missing(lost []events.Place) string {
	to, held := uint64(0), uint64(0)
	for _, at := range lost {
		to = max(to, at.Seq)
	}
	for at, holds := range f.Holds {
		if holds {
			held = max(held, at.Seq)
		}
	}
	from, since := f.Events.State.LastSeq, ", stored since "+formatTime(f.Events.State.LastTime)
	switch {
	case f.Events.Created.UnixMilli() > max(f.State.Watermark, f.Checkpoint.Watermark):
		from, since = 0, ", as it was deleted and made anew at "+formatTime(f.Events.Created)
	case from >= to: // it has grown again since
		from, since = held, ", and it has stored others there since"
	}
	return fmt.Sprintf("it lacks all or some of the %d messages from sequence %d to %d%s", to-from, from+1, to, since)
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
