package events

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/seed18712806/lapse/sink/internal/puback"
)

// reportEvery is after how many messages of a fast batch the stream reports its progress.
const reportEvery = 1000

// maxPending limits how many messages of all shards may wait for the stream's answer.
// Further ones are not sent yet.
const maxPending = 4096

// answerTimeout limits the wait for the answer of a stream with replicas: if its leader is lost, no
// answer comes.
const answerTimeout = 3 * time.Second

// acks publishes messages and collects the stream's answers. PublishMsgAsync of the client library
// does that too, but it makes a future and a timer, and decodes an answer, for each message. Here a
// group of messages shares them.
type acks struct {
	nc     *nats.Conn
	stream string
	inbox  string // begins the subjects of the answers
	sub    *nats.Subscription
	room   *semaphore.Weighted
	line   line
	limit  atomic.Int64 // of the wait for an answer, in nanoseconds; 0 if there is none

	mu      sync.Mutex
	last    uint64 // id of the last group
	waiting map[uint64]*group
	high    uint64 // the sequence in the last answer
	losses  int    // how often an answer had a sequence that was not greater than high
}

// group is a number of messages that are published together.
type group struct {
	messages []Message
	fence    Fence // behind which they are
	mode     mode
	batch    string     // id of the batch; "" if single
	stored   int        // if fastBatch: number of messages that are stored when it ends
	seq      uint64     // at which the last message is stored
	done     chan error // gets the result
}

// mode is how the messages of a group are published.
type mode int

const (
	single      mode = iota // one message
	atomicBatch             // the stream answers the last message, and stores all or none
	fastBatch               // the stream answers the last message, or the first that it refuses
)

func newAcks(nc *nats.Conn, stream string) (*acks, error) {
	a := &acks{nc: nc, line: lineOf(nc), stream: stream, inbox: nc.NewInbox() + ".",
		room: semaphore.NewWeighted(maxPending), waiting: make(map[uint64]*group)}
	var err error
	if a.sub, err = nc.Subscribe(a.inbox+">", a.answered); err != nil {
		return nil, err
	}
	return a, a.sub.SetPendingLimits(-1, -1)
}

// single publishes a message, and returns where it is stored.
func (a *acks) single(ctx context.Context, fence Fence, m Message) (seq uint64, err error) {
	g := &group{fence: fence, messages: []Message{m}, done: make(chan error, 1)}
	err = a.publish(ctx, g)
	return g.seq, err
}

// atomic publishes messages as an atomic batch, and returns where the last one is stored.
func (a *acks) atomic(ctx context.Context, fence Fence, messages []Message, id string) (seq uint64, err error) {
	g := &group{fence: fence, messages: messages, mode: atomicBatch, batch: id, done: make(chan error, 1)}
	err = a.publish(ctx, g)
	return g.seq, err
}

// fast publishes up to maxPending messages as a fast batch. It returns how many are stored, and where
// the last of them is. If the stream refuses a message, it has stored those before it, and none after.
func (a *acks) fast(ctx context.Context, fence Fence, messages []Message) (stored int, seq uint64, err error) {
	g := &group{fence: fence, messages: messages, mode: fastBatch, batch: rand.Text(), done: make(chan error, 1)}
	if err = a.publish(ctx, g); err == nil || refusal(err) {
		return g.stored, g.seq, err
	}
	return 0, 0, err
}

// publish publishes the messages of a group, and waits for the result.
func (a *acks) publish(ctx context.Context, g *group) error {
	n := int64(len(g.messages))
	first := g.messages[0].msg.Subject
	if err := a.room.Acquire(ctx, n); err != nil {
		return fmt.Errorf("publish to %s: %w", first, context.Cause(ctx))
	}
	defer a.room.Release(n)
	if limit := time.Duration(a.limit.Load()); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	a.mu.Lock()
	a.last++
	id := a.last
	a.waiting[id] = g
	a.mu.Unlock()
	defer a.forget(id)
	if err := a.send(g, a.inbox+strconv.FormatUint(id, 10)+"."); err != nil {
		return err
	}
	select {
	case err := <-g.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("publish to %s and %d more: %w", first, n-1, context.Cause(ctx))
	}
}

// send sends the messages of a group, on the connection on which their fence was stored or on none. inbox begins the
// subjects of the answers.
func (a *acks) send(g *group, inbox string) error {
	if g.fence.keepsOut() {
		if !a.line.Begin(g.fence.connection) {
			return errReconnected
		}
		defer a.line.End()
	}
	for i, m := range g.messages {
		m.msg.Reply = g.replyTo(inbox, i)
		if err := a.nc.PublishMsg(m.msg); err != nil {
			return fmt.Errorf("publish to %s: %w", m.msg.Subject, err)
		}
	}
	return nil
}

// replyTo is the subject of the answer to a message; "" if there is none.
func (g *group) replyTo(inbox string, i int) string {
	switch last := i == len(g.messages)-1; {
	case g.mode == atomicBatch && !last:
		return ""
	case g.mode != fastBatch:
		return inbox + strconv.Itoa(i)
	case last:
		return puback.FastReply(inbox+"fast", g.batch, reportEvery, i+1, puback.Commit)
	}
	return puback.FastReply(inbox+"fast", g.batch, reportEvery, i+1, puback.Add)
}

// forget ends the wait for a group. Its answers are ignored from then on.
func (a *acks) forget(id uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.waiting, id)
}

// answered handles an answer.
func (a *acks) answered(m *nats.Msg) {
	first, second, _ := strings.Cut(m.Subject[len(a.inbox):], ".")
	id, _ := strconv.ParseUint(first, 10, 64)
	i, err := strconv.Atoi(second)
	if err != nil {
		_, i = puback.FastMessage(second)
		i--
	}
	answer, err := puback.Read(m)
	if answer.Error != nil {
		err = answer.Error
	}
	a.settle(id, i, answer, err)
}

// settle applies the answer to a message of a group, or to the batch that it ends. When the
// group is done, publish gets the result.
func (a *acks) settle(id uint64, i int, answer puback.Answer, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, ok := a.waiting[id]
	if !ok || i < 0 || i >= len(g.messages) {
		return // nobody waits for it any more
	}
	done := true
	switch {
	case g.mode == fastBatch:
		done, err = g.fast(i, answer, err)
	case err == nil && g.mode == atomicBatch && answer.Batch != g.batch:
		err = errNotBatch
	default:
		g.seq = answer.Seq
	}
	if err != nil {
		err = refusedBy(a.stream, g.messages[i].msg.Subject, err)
	}
	if done && err == nil {
		err = a.follows(g)
	}
	if done || err != nil {
		delete(a.waiting, id)
		g.done <- err
	}
}

// follows returns ErrLost if a group is stored at a sequence that the stream had used before: it has
// lost its end. The stream answers in the order in which it stores, so acks finds the loss before any
// shard gets a later answer.
func (a *acks) follows(g *group) (err error) {
	first := g.seq
	if g.mode == atomicBatch {
		first -= uint64(len(g.messages)) - 1
	}
	if first <= a.high {
		a.losses++
		err = fmt.Errorf("%w: it stores at sequence %d, and has answered with %d before", ErrLost, first, a.high)
	}
	a.high = g.seq
	return err
}

// setHigh sets the sequence that the next answer has to exceed.
func (a *acks) setHigh(seq uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.high = seq
}

// lost is how often the answers have shown that the stream has lost its end.
func (a *acks) lost() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.losses
}

// remedies say what to do after a stream refused a message, by the code of the server's error.
var remedies = map[jetstream.ErrorCode]string{
	10002: "the limits of the account are reached: raise them, or remove messages",
	10023: "JetStream has no more room: raise max_file_store of the NATS server, or remove messages",
	10047: "JetStream has no more room on disk: raise max_file_store of the NATS server, or make room",
	10060: "another stream takes the subjects of events: remove them from that stream",
	10077: "the stream is full or cannot be written: raise its limits (max_msgs, max_bytes) or set its discard policy " +
		"to old, and look at the disk of the NATS server",
	10109: "the stream is sealed, which cannot be undone: it has to be made anew",
	10174: "the stream does not accept atomic batches: set allow_atomic, as lapse did when it made the stream",
	10164: "the stream has another message of this shard in process: lapse tries again",
}

// refusedBy explains why the stream refused a message: [ErrFenced], or what to do.
func refusedBy(stream, subject string, err error) error {
	var api *jetstream.APIError
	switch errors.As(err, &api); {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		return fmt.Errorf("publish to %s: no stream takes it: stream %s is gone or has no leader: restore it, or restart "+
			"lapse, which makes what is absent: %w", subject, stream, err)
	case api == nil:
		return fmt.Errorf("publish to %s: %w", subject, err)
	case api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence:
		return fmt.Errorf("publish to %s: %w: %w", subject, ErrFenced, err)
	}
	remedy, ok := remedies[api.ErrorCode]
	if !ok {
		return fmt.Errorf("publish to %s: stream %s refuses it: %w", subject, stream, err)
	}
	return fmt.Errorf("publish to %s: stream %s refuses it (%s): %s: %w", subject, stream, api.Description, remedy, err)
}

// refusal reports whether the stream answered, and refused.
func refusal(err error) bool { return codeOf(err) != 0 }

// codeOf is the error code with which the stream refused a message; 0 if it did not.
func codeOf(err error) jetstream.ErrorCode {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return 0
	}
	return api.ErrorCode
}
