package events

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
)

const (
	// fewRepeats is the most messages of one subject that are published one after the other.
	// More go as an atomic batch, which takes as long as 15 to 50 round trips, because the
	// server stages a batch in files of its own.
	fewRepeats = 16
	// maxBatch is the most messages that the server accepts in a batch.
	maxBatch = 1000
	// openBatches limits how many batches a Publisher has open. The server accepts 50 for each
	// stream, and other processes may publish to the same one.
	openBatches = 16
)

// Headers of atomic batches (ADR-50), and the errors that are handled.
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"

	codeAtomicDisabled = 10174
	codeAtomicRepeated = 10201 // the stream knows the id of a message
)

// inAtomicBatches publishes messages as atomic batches, one after the other.
func (p *Publisher) inAtomicBatches(ctx context.Context, fence Fence, messages []Message) error {
	for some := range slices.Chunk(messages, maxBatch) {
		if err := p.inAtomicBatch(ctx, fence, some); err != nil {
			return err
		}
	}
	return nil
}

// inAtomicBatch publishes messages as an atomic batch: the stream stores all of them in their
// order, or none. If it refuses the batch, inAtomicBatch publishes the messages in waves, which
// shows which message the stream refuses, and why.
func (p *Publisher) inAtomicBatch(ctx context.Context, fence Fence, messages []Message) error {
	for len(messages) > fewRepeats {
		err := p.atomic(ctx, fence, messages)
		switch code := codeOf(err); {
		case err == nil || errors.Is(err, ErrFenced):
			return err
		case code == codeAtomicRepeated:
			rest, err := p.Unpublished(ctx, messages)
			if err != nil {
				return err
			}
			if len(rest) == len(messages) {
				// The stream knows an id, but the message with that id is gone. Published alone,
				// the message is acknowledged as a duplicate.
				return p.inWaves(ctx, fence, messages)
			}
			messages = rest
		case refusal(err) || errors.Is(err, nats.ErrMaxPayload):
			if code == codeAtomicDisabled {
				p.takesAtomic.Store(false)
			}
			return p.inWaves(ctx, fence, messages)
		default:
			if errors.Is(err, errNoBatch) {
				p.takesAtomic.Store(false)
			}
			return err
		}
	}
	return p.inWaves(ctx, fence, messages)
}

// atomic publishes up to maxBatch messages as one atomic batch. Only the first message
// carries the fence, which the server checks when it commits the batch.
func (p *Publisher) atomic(ctx context.Context, fence Fence, messages []Message) error {
	if err := p.open.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("publish to %s: %w", messages[0].msg.Subject, context.Cause(ctx))
	}
	defer p.open.Release(1)
	id := rand.Text()
	for i, m := range messages {
		joinBatch(m.msg, id, i+1, i == len(messages)-1)
		if i == 0 {
			fence.guard(m.msg)
		} else {
			unguard(m.msg)
		}
	}
	if err := p.fit(ctx, messages); err != nil {
		return err
	}
	return p.acks.atomic(ctx, messages, id)
}

// joinBatch sets the headers of a message of an atomic batch.
func joinBatch(m *nats.Msg, id string, sequence int, last bool) {
	m.Header[headerBatchID] = []string{id}
	m.Header[headerBatchSequence] = []string{strconv.Itoa(sequence)}
	delete(m.Header, headerBatchCommit)
	if last {
		m.Header[headerBatchCommit] = []string{"1"}
	}
}

// leaveBatch removes the headers of an atomic batch.
func leaveBatch(m *nats.Msg) {
	if m.Header[headerBatchID] != nil {
		delete(m.Header, headerBatchID)
		delete(m.Header, headerBatchSequence)
		delete(m.Header, headerBatchCommit)
	}
}
