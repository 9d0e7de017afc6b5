package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrLogGap: messages are missing from the middle of the log.
var ErrLogGap = errors.New("the log has lost messages from its middle")

// JudgeGaps refuses a log that has lost messages after a sequence: whoever applies it from there would go on
// without them. It returns nil if it has not.
func JudgeGaps(gaps []Gap, after uint64) *Refusal {
	for _, g := range gaps {
		if g.Last > after { // else it was applied, or a snapshot has it
			r := Refuse(ErrLogGap, "restore the log from a backup", "%s", Text(gaps))
			r.Accept, r.gaps, r.gap = LostLogMessages, gaps, g
			return r
		}
	}
	return nil
}

// CheckGaps returns the refusal of JudgeGaps as an error. info is what the leader of the log has just said.
func (l *Log) CheckGaps(ctx context.Context, info *jetstream.StreamInfo, after uint64) error {
	gaps, err := l.Gaps(ctx, info)
	if err != nil {
		return err
	}
	if r := JudgeGaps(gaps, after); r != nil {
		if err := l.TellNeighbours(ctx, r); err != nil {
			return err
		}
		return r
	}
	return nil
}

// CheckJump finds out why a reader of the log got no messages between two sequences. The leader of the log is
// asked: the server from which the reader has its messages may lack some alone.
func (l *Log) CheckJump(ctx context.Context, info *jetstream.StreamInfo, after, before uint64) error {
	var next uint64
	err := l.link.Query(ctx, func(ctx context.Context) (err error) {
		next, err = l.Streams.Next(ctx, after)
		return err
	})
	if err != nil {
		return fmt.Errorf("read the message of the log after %d: %w", after, Gone(err, l.name()))
	}
	if next != 0 && next < before {
		return fmt.Errorf("a NATS server has sent message %d of the log after message %d, and the leader of the log has message %d", before, after, next)
	}
	if knows, err := Knows(info, Gap{First: after + 1, Last: before - 1}); knows || err != nil {
		return err
	}
	return l.CheckGaps(ctx, info, after)
}

// PassGaps notes in the log that a person has decided to go on without the messages that an ErrLogGap
// names, and returns which these are.
func (l *Log) PassGaps(ctx context.Context, r *Refusal) (missing string, err error) {
	if err := l.Streams.NoteGaps(ctx, r.gaps); err != nil {
		return "", fmt.Errorf("note that lapse goes on without messages of the log: %w", err)
	}
	return Text(r.gaps), nil
}

// Gaps are the gaps of the log that are no known ones. info is what the leader of the log has just said.
func (l *Log) Gaps(ctx context.Context, info *jetstream.StreamInfo) (gaps []Gap, err error) {
	err = l.link.Query(ctx, func(ctx context.Context) (err error) {
		gaps, err = l.Streams.Gaps(ctx, info)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask which messages the log lacks: %w", Gone(err, l.name()))
	}
	return gaps, nil
}

// TellNeighbours adds to a refusal of JudgeGaps when the messages before and after the gap were stored, as far as
// they are there.
func (l *Log) TellNeighbours(ctx context.Context, r *Refusal) error {
	g := r.gap
	for _, n := range []struct {
		seq  uint64
		what string
	}{{g.First - 1, "before"}, {g.Last + 1, "behind"}} {
		at, found, err := l.Stamp(ctx, n.seq)
		if err != nil {
			return err
		}
		if found {
			r.Reason = fmt.Errorf("%w, message %d %s it was stored at %s", r.Reason, n.seq, n.what, nanoTime(at))
		}
	}
	return nil
}
