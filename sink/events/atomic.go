package events

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// fewRepeats is the most messages of one document that are published one after the other on
	// one replica. There an atomic batch takes as long as 15 to 50 round trips.
	fewRepeats = 16
	// maxBatch is the most messages that the server accepts in a batch.
	maxBatch = 1000
	// maxBatchBytes limits the bodies of a batch. If the servers do not store a batch in time,
	// the next attempt must get further.
	maxBatchBytes = 4 << 20
	// openBatches limits how many batches a Publisher has open. The server accepts 50 for each
	// stream, and other processes may publish to the same one.
	openBatches = 16
	// incompleteTries is how often a batch that the server calls incomplete is sent.
	incompleteTries = 4
)

// Headers of atomic batches (ADR-50), and the errors that are handled.
const (
	headerBatchID       = "Nats-Batch-Id"
	headerBatchSequence = "Nats-Batch-Sequence"
	headerBatchCommit   = "Nats-Batch-Commit"

	codeIDInProcess    = 10158 // a message with the same id is in process
	codeInProcess      = 10164 // another message with the fence, or the fence itself, is in process
	codeAtomicDisabled = 10174
	// codeAtomicIncomplete: the leader of the stream changed, too many batches were open, or a
	// message of the batch was too large. The server tells these apart only in answers to the
	// messages before the last, which ask for none.
	codeAtomicIncomplete = 10176
	codeAtomicTooLarge   = 10199 // the server accepts only smaller batches
	codeAtomicRepeated   = 10201 // the stream knows the id of a message
)

// inAtomicBatches publishes messages in their order, as atomic batches: the stream stores a
// batch as a whole, or refuses it as a whole. Nothing is sent again behind the same fence, unless
// the stream has refused all of it before it stored anything.
//
// A message alone is no batch, and carries the fence itself. So do all messages of a batch that
// the server calls incomplete each time, one after the other: one may be too large, or other
// processes may have too many batches open.
func (p *Publisher) inAtomicBatches(ctx context.Context, fence Fence, messages []Message) error {
	alone := 0 // so many messages are published alone
	for tries := 1; len(messages) > 0; tries++ {
		some, publish := messages[:1], p.wave
		if n := p.batchOf(messages); n > 1 && alone == 0 {
			some, publish = messages[:n], p.atomic
		}
		err := publish(ctx, fence, some)
		switch code := codeOf(err); {
		case err == nil:
			messages, alone, tries = messages[len(some):], max(0, alone-1), 0
		case code == codeInProcess || code == codeIDInProcess || code == codeAtomicIncomplete && tries < incompleteTries:
			if err := pause(ctx, tries, err); err != nil {
				return err
			}
		case len(some) == 1:
			return err
		case code == codeAtomicRepeated:
			rest, err := p.Unpublished(ctx, fence, some)
			if err != nil {
				return err
			}
			if len(rest) == len(some) {
				// The stream knows an id, but the message with that id is gone. Published alone,
				// the message is acknowledged as a duplicate.
				alone = len(some)
			}
			messages = slices.Concat(rest, messages[len(some):])
		case code == codeAtomicTooLarge:
			p.largest.Store(int64(len(some) / 2))
		case code == codeAtomicDisabled:
			p.largest.Store(1)
		case code == codeAtomicIncomplete || errors.Is(err, nats.ErrMaxPayload):
			alone = len(some)
		default: // the stream may have refused it when it had stored a part
			return err
		}
	}
	return nil
}

// batchOf is how many of the messages, from the first on, make the next batch.
func (p *Publisher) batchOf(messages []Message) int {
	n, bytes := 0, 0
	for n < min(len(messages), int(p.largest.Load())) && (n == 0 || bytes+len(messages[n].msg.Data) <= maxBatchBytes) {
		bytes += len(messages[n].msg.Data)
		n++
	}
	return n
}

// pause waits before the next attempt; err is why the last one failed.
func pause(ctx context.Context, tries int, err error) error {
	timer := time.NewTimer(time.Millisecond << min(tries-1, 6))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
}

// atomic publishes messages as one atomic batch. Only the first message carries the fence,
// which the server checks when it commits the batch.
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
	err := p.acks.atomic(ctx, messages, id)
	if errors.Is(err, errNoBatch) {
		p.largest.Store(1)
	}
	return err
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
