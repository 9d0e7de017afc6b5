package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
)

// Events is what an examination asks of the stream of events.
type Events struct {
	Publisher *events.Publisher
	Tail      *events.Tail // which the caller of an Examiner holds
	Log       events.Source
	Link      *streams.Link
	Limit     time.Duration // of some questions to NATS, but not of the reading of the tail
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

// limited asks some questions within the limit.
func (s *Events) limited(ctx context.Context, questions func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.Limit)
	defer cancel()
	return questions(ctx)
}

// judgeEvents judges whether the stream of events has all that was published, and no output of a
// message that the log has lost. It reads the tail of the stream, which takes as long as it takes: where
// no place in the stream is known, the tail is all of it.
//
//   - E4: What Redis, the checkpoint and a snapshot remember of the stream has to be there. Where the
//     state or the checkpoint remembers more, outputs were lost, and Lost says so: then the partition
//     is rebuilt from a snapshot (or the log) of which nothing was lost, and publishes them again.
//   - E5: The tail begins where the outputs behind the checkpoint begin. If that place was lost, it
//     begins at the last output that the checkpoint remembers; where that was given up, at the
//     beginning of the stream.
//   - E6: A message that an output names has to be in the log, and to be the one that was there then. The
//     first output of a step names the last message from which the outputs of the step can follow. Of
//     many, one in so many is compared.
//   - E7: What a person has given up (BeginAnew) is not looked for: what Redis and the checkpoint remembered when
//     the person decided, and what a state or a snapshot of before that remembers.
func (e *examiner) judgeEvents(ctx context.Context, f *found, fence uint64) error {
	var from uint64
	err := e.events.limited(ctx, func(ctx context.Context) (err error) {
		if err = e.judgePlaces(ctx, f); err == nil {
			from, err = e.from(ctx, f)
		}
		return err
	})
	if err == nil {
		err = e.cover(ctx, from, fence)
	}
	if err != nil {
		return err
	}
	return e.events.limited(ctx, func(ctx context.Context) error { return e.judgeNamed(ctx, f) })
}

// cover reads what the stream of events has behind a sequence, up to the owner's fence at least.
func (e *examiner) cover(ctx context.Context, from, fence uint64) error {
	var upTo uint64
	err := e.events.limited(ctx, func(ctx context.Context) (err error) {
		_, upTo, err = e.events.ends(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return e.events.Link.Ask(ctx, func(ctx context.Context) error { return e.events.Tail.Cover(ctx, from, max(upTo, fence)) })
}

// judgePlaces compares the stream of events with the places that are remembered: see judgeEvents.
func (e *examiner) judgePlaces(ctx context.Context, f *found) error {
	f.Lost = nil
	stored, err := events.ParsePlace(f.State.Events)
	if err != nil {
		return err
	}
	c := &f.Checkpoint
	if err := e.holds(ctx, f, &stored, f.State.Offset < c.GivenUp); errors.Is(err, events.ErrLost) {
		f.Lost = err
	} else if err != nil {
		return err
	}
	f.State.Events = stored.String()
	if err := e.holds(ctx, f, &c.Last, false); errors.Is(err, events.ErrLost) {
		f.Lost = err
		*c = Checkpoint{Log: c.Log, Origin: c.Origin, GivenUp: c.GivenUp}
	} else if err != nil {
		return err
	}
	if m := f.Snapshot; m != nil {
		before := m.Offset < c.GivenUp
		if err := e.holds(ctx, f, &m.Last, before); err != nil {
			return err
		}
		if before || f.GivesUp() {
			if err := e.holds(ctx, f, &m.From, true); err != nil {
				return err
			}
		}
	}
	if f.GivesUp() {
		return e.holds(ctx, f, &c.From, true)
	}
	return nil
}

// holds returns events.ErrLost if the stream of events has lost what it had at a place, unless that
// was given up: then nothing is known of the place from here on.
func (e *examiner) holds(ctx context.Context, f *found, at *events.Place, given bool) error {
	holds, err := e.events.holds(ctx, *at)
	switch {
	case err != nil:
		return err
	case holds:
		f.held = max(f.held, at.Seq)
		return nil
	case given || slices.Contains(f.given, *at):
		*at = events.Place{}
		return nil
	case !slices.Contains(f.lost, *at):
		f.lost = append(f.lost, *at)
	}
	return fmt.Errorf("%w: it had an output of partition %d at sequence %d", events.ErrLost, e.partition, at.Seq)
}

// GiveUp notes that a person has given up the outputs that were found to be lost.
func (f *found) GiveUp() { f.given = f.lost }

// GivesUp reports whether a person has given up outputs that were lost.
func (f *found) GivesUp() bool { return len(f.given) > 0 }

// from is the sequence behind which the stream stores the outputs that are caused after what is
// known to be published.
func (e *examiner) from(ctx context.Context, f *found) (uint64, error) {
	c := f.Published()
	holds, err := e.events.holds(ctx, c.From)
	if err != nil || holds {
		return c.From.Seq, err
	}
	return c.Last.Seq, nil
}

// judgeNamed compares the log with what the outputs in the tail name. A message up to the one of the
// checkpoint, whose stamp was compared, cannot be another one: its output was published since. Outputs from
// before the partition was begun anew do not count.
func (e *examiner) judgeNamed(ctx context.Context, f *found) error {
	all := e.events.Tail.Named(f.Checkpoint.ParsedStamp().Seq, f.Checkpoint.Anew)
	if len(all) == 0 {
		return nil
	}
	named := all[len(all)-1]
	info, err := e.log.InfoUpTo(ctx, named.Seq, e.ticks)
	if err != nil {
		return err
	}
	last := info.State.LastSeq
	if info.Config.Mirror != nil { // the mirror of the events may be ahead of that of the log
		all = slices.DeleteFunc(all, func(n events.Named) bool { return n.Seq > last })
	} else if last < named.Seq {
		return e.impasse(f, fmt.Errorf("%w: the log ends at sequence %d, and message %d of the stream of events follows from message %d of the log: the log has lost its end: restore the end that it has lost",
			streams.ErrLogBehind, last, named.At, named.Seq))
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

// judgeOne compares the log with a message that an output names. One that took its place has another stamp.
func (e *examiner) judgeOne(ctx context.Context, f *found, named events.Named) error {
	at, found, err := e.log.Stamp(ctx, named.Seq)
	if err != nil || !found || named.Since <= at && at <= named.By {
		return err
	}
	return e.impasse(f, fmt.Errorf("%w: message %d of the log was stored at %s, and message %d of the stream of events follows from one that was stored by %s: the log has lost its end, and was written again since: restore the end that it has lost",
		streams.ErrLogChanged, named.Seq, formatTime(time.Unix(0, at)), named.At, formatTime(time.Unix(0, named.By))))
}

// again chooses the log from its beginning, where outputs were lost and no snapshot can be used.
func (e *examiner) again(ctx context.Context, f *found) error {
	lost, damage := f.Lost, f.Damage
	f.Damage = lost
	if err := e.events.limited(ctx, func(ctx context.Context) error { return e.judgeLog(ctx, f) }); errors.Is(err, streams.ErrRefused) || errors.Is(err, streams.ErrLogTruncated) {
		f.Damage = damage // what is stored is as it was
		info, err := e.log.Info(ctx)
		if err != nil {
			return err
		}
		return e.gone(ctx, f, lost, fmt.Errorf("the log begins at sequence %d", info.State.FirstSeq))
	} else if err != nil {
		return err
	}
	if err := e.judgeEvents(ctx, f, 0); err != nil || f.Checkpoint.Seq > 0 {
		return err
	}
	// Nothing tells which of the outputs that the stream does not have its limits have removed.
	first, _, err := e.events.ends(ctx)
	if err == nil && first > 1 {
		f.Damage = damage
		err = e.gone(ctx, f, lost, fmt.Errorf("no snapshot is from before, and the stream has removed what it had before sequence %d", first))
	}
	return err
}

// reachesBack returns events.ErrLost if the limits of the stream have removed messages behind the place
// from which outputs are published again. The outputs among them cannot be told from those that were lost.
func (e *examiner) reachesBack(ctx context.Context, f *found) error {
	first, _, err := e.events.ends(ctx)
	if err != nil {
		return err
	}
	if from := f.Published().From.Seq; first > from+1 {
		return fmt.Errorf("%w: the stream has removed what it had from sequence %d to %d, which is from after the snapshot", events.ErrLost, from+1, first-1)
	}
	return nil
}

// gone is the refusal where lost outputs cannot be published again. The kind of the reason does not
// count: what is stored can still be read.
func (e *examiner) gone(ctx context.Context, f *found, lost, why error) error {
	missing, err := e.missing(ctx, f)
	if err != nil {
		return err
	}
	return streams.NewLoss(fmt.Errorf("%w: %s; they cannot be published again: %v: restore the stream of events from a backup", lost, missing, errors.Join(why, f.Unfit)),
		e.log.ID(), e.partition, f.lost[0])
}

// missing says which messages the stream of events has lost, and since when they were stored, as far
// as that is known.
func (e *examiner) missing(ctx context.Context, f *found) (string, error) {
	var info *jetstream.StreamInfo
	if err := e.events.Link.Query(ctx, func(ctx context.Context) (err error) {
		info, err = e.events.Publisher.Info(ctx)
		return err
	}); err != nil {
		return "", err
	}
	to := uint64(0)
	for _, at := range f.lost {
		to = max(to, at.Seq)
	}
	from, since := info.State.LastSeq, ", stored since "+formatTime(info.State.LastTime)
	switch {
	case info.Created.UnixMilli() > f.watermark:
		from, since = 0, ", as it was deleted and made anew at "+formatTime(info.Created)
	case from >= to: // it has grown again since
		from, since = f.held, ", and it has stored others there since"
	}
	return fmt.Sprintf("it lacks all or some of the %d messages from sequence %d to %d%s", to-from, from+1, to, since), nil
}

func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
