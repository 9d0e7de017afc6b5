package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Reasons to refuse a log. lapse keeps what is stored as it is.
var (
	// ErrLogTruncated: messages that were never applied are no longer in the log.
	ErrLogTruncated = errors.New("the log no longer reaches back far enough")
	// ErrLogBehind: the log ends before what was applied.
	ErrLogBehind = errors.New("the log ends before what was applied")
	// ErrLogChanged: what is stored was computed from another log, or from an end of
	// this one that it has lost.
	ErrLogChanged = errors.New("the log is another one")
	// ErrStreamGone: somebody has deleted a stream that lapse needs.
	ErrStreamGone = errors.New("a stream that lapse needs was deleted")
)

// Log is the log that this process reads. It tells whether that is the log from which the stored state was
// computed, and has the messages that come next. Where it is not, lapse refuses to go on, and keeps
// everything as it is until a person decides ([Loss]). It writes nothing but such a decision
// ([Log.PassGaps]).
type Log struct {
	Streams *Streams
	link    *Link
}

// NewLog makes the Log of provisioned streams.
func NewLog(s *Streams, l *Link) *Log { return &Log{Streams: s, link: l} }

// ID is the identity of the log: the instant of its creation.
func (l *Log) ID() string { return l.Streams.ID }

// Is reports whether what was computed from the log with an identity, up to an offset, was computed from this
// one: it may continue that since a promotion.
func (l *Log) Is(id string, offset uint64) bool {
	return id == l.ID() || slices.ContainsFunc(l.Streams.Former, func(f wire.Former) bool {
		return id == strconv.FormatInt(f.Identity, 10) && offset <= f.Last
	})
}

// Continues reports whether the log continues another one since a promotion.
func (l *Log) Continues(id string) bool {
	return slices.ContainsFunc(l.Streams.Former, func(f wire.Former) bool {
		return id == strconv.FormatInt(f.Identity,
			10)
	})
}

// Info asks for the state of the log.
func (l *Log) Info(ctx context.Context) (*jetstream.StreamInfo, error) {
	return query(ctx, l, "ask for the state of the log", func(ctx context.Context) (*jetstream.StreamInfo, error) {
		return l.Streams.Log.Info(ctx)
	})
}

// query asks the leader of the log, again while no answer comes.
func query[T any](ctx context.Context, l *Log, doing string, ask func(context.Context) (T, error)) (T, error) {
	var answer T
	err := l.link.Query(ctx, func(ctx context.Context) (err error) {
		answer, err = ask(ctx)
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s: %w", doing, Gone(err, l.name()))
	}
	return answer, err
}

// Value is that of [Streams.Value], asked for again while no answer comes.
func (l *Log) Value(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	err = l.link.Query(ctx, func(ctx context.Context) (err error) {
		value, revision, err = l.Streams.Value(ctx, key)
		return err
	})
	return value, revision, err
}

// Update stores a value in the bucket of checkpoints in place of the one at a revision; 0 if there is
// none.
func (l *Log) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	return l.Streams.Checkpoints.Update(ctx, key, value, revision)
}

// Appender appends a tick to the log, and returns its sequence.
type Appender interface {
	Barrier(ctx context.Context) (uint64, error)
}

// InfoUpTo is Info for a caller who knows that the log had messages up to a sequence. If a log
// with replicas seems to end before, the answer may be out of date. Then InfoUpTo appends a
// tick: a leader that has stored it has all messages that come before it.
func (l *Log) InfoUpTo(ctx context.Context, seq uint64, ticks Appender) (*jetstream.StreamInfo, error) {
	info, err := l.Info(ctx)
	if err != nil || info.State.LastSeq >= seq || info.Config.Replicas <= 1 {
		return info, err
	}
	last, err := ticks.Barrier(ctx)
	info.State.LastSeq = max(info.State.LastSeq, last)
	return info, err
}

func (l *Log) name() string { return l.Streams.Log.CachedInfo().Config.Name }

// Gone makes a refusal of the server's answer that there is no such stream.
func Gone(err error, stream string) error {
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return gone(stream)
	}
	return err
}

func gone(stream string) error {
	return Refuse(ErrStreamGone, "restore it from a backup, or start lapse again to see what it needs",
		"stream %s", stream)
}

// CheckOffset returns the refusal of JudgeOffset as an error.
func CheckOffset(info *jetstream.StreamInfo, id string, offset uint64) error {
	return JudgeOffset(info, id, offset).orNil()
}

// JudgeOffset judges whether a shard that has applied the log with an identity up to offset can go on with
// this log. It returns nil if it can.
func JudgeOffset(info *jetstream.StreamInfo, id string, offset uint64) *Refusal {
	r, restored, err := wire.ParseRestored(info.Config.Metadata)
	log, created := info.State, Identity(info)
	switch {
	case err != nil:
		return Refuse(ErrMismatch, "give it the value that lapse restore has set",
			"stream %s: %w", info.Config.Name, err)
	case created != id:
		return Refuse(ErrLogChanged, "restore that log",
			"the log was created at %s, and what is stored was computed from the log that was created at %s", FormatID(created),
			FormatID(id))
	case restored && r.Hides(offset):
		return Refuse(ErrLogBehind, "start with an empty Redis; lapse builds it from the log",
			"the log was restored from a backup that ends at sequence %d, and was applied up to %d before", r.End, offset)
	case log.FirstSeq > offset+1:
		return Refuse(ErrLogTruncated, "restore the log, and keep it longer (--log-max-age, --log-max-bytes)",
			"the log begins at sequence %d, and was applied up to %d", log.FirstSeq, offset)
	case log.LastSeq < offset:
		return Refuse(ErrLogBehind, "restore the log",
			"the log ends at sequence %d, and was applied up to %d: it was restored from an older copy, or lost its end",
			log.LastSeq, offset)
	}
	return nil
}

// CheckStamp refuses the log if it does not have the message whose stamp somebody (who) has seen: see JudgeStamp.
func (l *Log) CheckStamp(ctx context.Context, seen store.Stamp, who string, ticks Appender) error {
	if seen.Seq == 0 {
		return nil
	}
	at, found, err := l.Stamp(ctx, seen.Seq)
	last := seen.Seq
	if err == nil && !found { // the message was deleted, or the log has lost its end
		var info *jetstream.StreamInfo
		if info, err = l.InfoUpTo(ctx, seen.Seq, ticks); err == nil {
			last = info.State.LastSeq
			at, found, err = l.Stamp(ctx, seen.Seq) // the log may have grown again since
		}
	}
	if err != nil {
		return err
	}
	return JudgeStamp(last, at, found, seen, who).orNil()
}

// JudgeStamp compares the stamp of a message of a log that ends at a sequence with the stamp that somebody (who) has
// seen. A log that lost its end and has grown again has another stamp there. Where the message was deleted there is
// nothing to compare.
func JudgeStamp(last uint64, at int64, found bool, seen store.Stamp, who string) *Refusal {
	const restore = "restore the end that it has lost"
	switch {
	case !found && last < seen.Seq:
		return Refuse(ErrLogBehind, restore,
			"the log ends at sequence %d, and %s message %d: it has lost its end", last, who, seen.Seq)
	case found && at != seen.At:
		return Refuse(ErrLogChanged, restore,
			"message %d of the log was stored at %s, and %s one that was stored at %s: the log has lost its end, and grown "+
				"again",
			seen.Seq, nanoTime(at), who, nanoTime(seen.At))
	}
	return nil
}

// Stamp is the stamp of a message in the log; found is false if the message is not there.
func (l *Log) Stamp(ctx context.Context, seq uint64) (at int64, found bool, err error) {
	err = l.link.Query(ctx, func(ctx context.Context) (err error) {
		at, found, err = l.Streams.Stamp(ctx, seq)
		return err
	})
	if err != nil {
		err = fmt.Errorf("read message %d of the log: %w", seq, Gone(err, l.name()))
	}
	return at, found, err
}

// FormatID writes the identity of a log, which is the instant of its creation.
func FormatID(id string) string {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return strconv.Quote(id)
	}
	return nanoTime(n)
}

func nanoTime(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }
