package streams

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ErrLogGap: messages are missing from the middle of the log.
var ErrLogGap = errors.New("the log has lost messages from its middle")

// lacking is the ErrLogGap of some gaps.
type lacking struct {
	error
	gaps []Gap
}

func (l *lacking) Unwrap() error { return l.error }

// CheckGaps refuses a log that has lost messages after a sequence: whoever applies it from there would go on
// without them. info is what the leader of the log has just said. A person may decide to go on: see PassGaps.
func (l *Log) CheckGaps(ctx context.Context, info *jetstream.StreamInfo, after uint64) error {
	gaps, err := l.gaps(ctx, info)
	if err != nil {
		return err
	}
	for _, g := range gaps {
		if g.Last <= after {
			continue // it was applied, or a snapshot has it
		}
		near, err := l.neighbours(ctx, g)
		if err != nil {
			return err
		}
		why := &lacking{fmt.Errorf("%w: %s%s: restore the log from a backup", ErrLogGap, Text(gaps), near), gaps}
		return newImpasse(why, GiveUpMessages, []any{"gaps", l.ID(), gaps})
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
func (l *Log) PassGaps(ctx context.Context, why error) (missing string, err error) {
	var lost *lacking
	if !errors.As(why, &lost) {
		return "", nil
	}
	if err := l.Streams.NoteGaps(ctx, lost.gaps); err != nil {
		return "", fmt.Errorf("note that lapse goes on without messages of the log: %w", err)
	}
	return Text(lost.gaps), nil
}

func (l *Log) gaps(ctx context.Context, info *jetstream.StreamInfo) (gaps []Gap, err error) {
	err = l.link.Query(ctx, func(ctx context.Context) (err error) {
		gaps, err = l.Streams.Gaps(ctx, info)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ask which messages the log lacks: %w", Gone(err, l.name()))
	}
	return gaps, nil
}

// neighbours says when the messages before and after a gap were stored, as far as they are there.
func (l *Log) neighbours(ctx context.Context, g Gap) (text string, err error) {
	for _, n := range []struct {
		seq  uint64
		what string
	}{{g.First - 1, "before"}, {g.Last + 1, "behind"}} {
		at, found, err := l.Stamp(ctx, n.seq)
		if err != nil {
			return "", err
		}
		if found {
			text += fmt.Sprintf(", message %d %s it was stored at %s", n.seq, n.what, nanoTime(at))
		}
	}
	return text, nil
}
