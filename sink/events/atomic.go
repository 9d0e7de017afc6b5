package events

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

const (
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

	codeInProcess = 10164 // another message with the fence, or the fence itself, is in process
	// codeAtomicIncomplete: the leader of the stream changed, too many batches were open, or a
	// message of the batch was too large. The server tells these apart only in answers to the
	// messages before the last, which ask for none.
	codeAtomicIncomplete = 10176
	codeAtomicTooLarge   = 10199 // the server accepts only smaller batches
)

// inAtomicBatches publishes messages in their order, as atomic batches: the stream stores a
// batch as a whole, or refuses it as a whole. Nothing is sent again behind the same fence, unless
// the stream has refused all of it before it stored anything.
//
// A message alone is no batch, and carries the fence itself. So do all messages of a batch that
// the server calls incomplete each time, one after the other: one may be too large, or other
// processes may have too many batches open.
func (p *Publisher) inAtomicBatches(ctx context.Context, fence Fence, messages []Message) (seq uint64, err error) {
	alone := 0 // so many messages are published alone
	for tries := 1; len(messages) > 0; tries++ {
		some := messages[:1]
		if n := p.batchOf(messages); n > 1 && alone == 0 {
			some = messages[:n]
			seq, err = p.atomic(ctx, fence, some)
		} else {
			seq, err = p.alone(ctx, fence, messages[0])
		}
		switch code := codeOf(err); {
		case err == nil:
			messages, alone, tries = messages[len(some):], max(0, alone-1), 0
		case code == codeInProcess || code == codeAtomicIncomplete && tries < incompleteTries:
			if err := pause(ctx, tries, err); err != nil {
				return 0, err
			}
		case len(some) == 1:
			return 0, err
		case code == codeAtomicTooLarge:
			p.largest.Store(int64(len(some) / 2))
		case code == codeAtomicIncomplete || errors.Is(err, nats.ErrMaxPayload):
			alone = len(some)
		default: // the stream may have refused it when it had stored a part
			return 0, err
		}
	}
	return seq, nil
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
func (p *Publisher) atomic(ctx context.Context, fence Fence, messages []Message) (seq uint64, err error) {
	if err := p.open.Acquire(ctx, 1); err != nil {
		return 0, fmt.Errorf("publish to %s: %w", messages[0].msg.Subject, context.Cause(ctx))
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
		return 0, err
	}
	before, n := p.Last().Seq, len(messages)
	if seq, err = p.acks.atomic(ctx, fence, messages, id); err == nil {
		err = p.follows(before, seq-uint64(n)+1, Place{seq, messages[n-1].Key})
	}
	return seq, err
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
