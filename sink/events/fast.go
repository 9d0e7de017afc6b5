package events

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/internal/puback"
)

// errNotBatch: the server answered a message of a batch like a message of its own.
var errNotBatch = errors.New("the server does not know batches, and may have stored the messages one by one: use " +
	"nats-server 2.14 or newer")

// inFastBatches publishes messages as fast batches: the stream stores them in their order,
// up to the first that it refuses, and none after that one. A message alone needs no batch.
//
// 256 rejections of one document take 6 ms in a fast batch. One after the other, or in
// atomic batches, they take 40 to 50 ms.
func (p *Publisher) inFastBatches(ctx context.Context, fence Fence, messages []Message) (seq uint64, err error) {
	for len(messages) > 0 {
		if len(messages) == 1 {
			return p.alone(ctx, fence, messages[0])
		}
		some := messages[:min(len(messages), maxPending)]
		for _, m := range some {
			leaveBatch(m.msg)
			fence.guard(m.msg)
		}
		if err := p.fit(ctx, some); err != nil {
			return 0, err
		}
		var stored int
		before := p.Last().Seq
		stored, seq, err = p.acks.fast(ctx, fence, some)
		if err == nil {
			err = p.follows(before, seq, Place{seq, some[len(some)-1].Key})
		}
		switch codeOf(err) {
		case 0:
			if err != nil {
				return 0, err
			}
			stored = len(some)
		case jetstream.JSErrCodeStreamMessageExceedsMaximum:
			if err := p.shrink(ctx, some[stored:stored+1]); err != nil {
				return 0, err
			}
		case puback.FastDisabled, puback.FastPattern:
			p.takesFast.Store(false)
			return p.inAtomicBatches(ctx, fence, messages)
		case puback.FastTooMany:
			return p.inAtomicBatches(ctx, fence, messages)
		default:
			return 0, err
		}
		messages = messages[stored:]
	}
	return seq, nil
}

// fast applies an answer to message i of a fast batch: a refusal, a report of progress, or the
// end of the batch.
func (g *group) fast(i int, answer puback.Answer, err error) (done bool, _ error) {
	switch {
	case err != nil:
		g.stored = i
		return true, err
	case answer.Type != "":
		return false, nil
	case answer.Batch != g.batch:
		return true, errNotBatch
	case answer.Count != len(g.messages):
		return true, fmt.Errorf("the stream stored %d messages of a batch of %d", answer.Count, len(g.messages))
	}
	g.seq = answer.Seq
	return true, nil
}
