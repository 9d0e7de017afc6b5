package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"

	"github.com/seed18712806/lapse/sink/internal/puback"
	"github.com/seed18712806/lapse/sink/wire"
)

// The most that a pipe has in flight.
const (
	maxMessages = 1000
	maxBytes    = 32 << 20
)

// answer is what became of a message.
type answer struct {
	Seq       uint64 // of the message in the log; 0 if that is not known
	Stream    string // the log; only of a duplicate
	Duplicate bool   // the log has another message with its id
	Outcome   []byte // as lapse sent it; nil if the message asked for none
}

// pipeOptions are how a pipe works.
type pipeOptions struct {
	Fast    bool // use fast batches where the log takes them
	AckOnly bool // messages end with their acknowledgement, and ask for no outcome
}

// pipe publishes many messages to the log, and does not wait for the answer to one
// before it sends the next.
//
// It publishes each message by itself (pipe.go), or, where the log takes them, in fast
// batches of JetStream (fast.go, answers.go), one at a time for each shard. A fast batch saves NATS and
// the client an acknowledgement for each message.
type pipe struct {
	l      *connection
	opts   pipeOptions
	inbox  string
	sub    *nats.Subscription
	room   room
	failed context.Context // done once the pipe has failed or is closed
	fail   context.CancelCauseFunc
	absent sync.Once
	watch  sync.WaitGroup
	fast   *fast // nil: no fast batches

	mu       sync.Mutex
	next     uint64
	flights  map[uint64]*flight
	progress time.Time // of the last acknowledgement or outcome, or of the first message in an empty pipe
}

// room is what may be in flight.
type room struct{ messages, bytes *semaphore.Weighted }

// flight is a message that has not ended.
type flight struct {
	done    func(answer, error)
	subject string
	size    int64
	stored  bool // it is acknowledged
	unsent  bool // nobody has received it, or the server has denied it
	answer  answer
}

// newPipe starts a pipe. Close it at the end.
func newPipe(ctx context.Context, l *connection, opts pipeOptions) (*pipe, error) {
	failed, fail := context.WithCancelCause(context.Background())
	p := &pipe{
		l: l, opts: opts, inbox: l.NC.NewInbox(),
		room:   room{semaphore.NewWeighted(maxMessages), semaphore.NewWeighted(maxBytes)},
		failed: failed, fail: fail,
		flights: make(map[uint64]*flight),
	}
	if opts.Fast {
		p.fast = newFast(ctx, p)
	}
	var err error
	if p.sub, err = l.NC.Subscribe(p.inbox+".>", p.receive); err != nil {
		fail(err)
		return nil, fmt.Errorf("subscribe to the outcomes: %w", err)
	}
	_ = p.sub.SetPendingLimits(-1, -1) // there are at most two answers for each message in flight
	forget := l.Expect(p.fail, p.publishes)
	p.watch.Go(func() { p.watchdog(); forget() })
	return p, nil
}

// Send waits for room and sends a message. It returns an error only if the pipe cannot go on.
// done gets what became of the message, its error too: one call at a time of all messages, in
// no particular order. It must not use the pipe.
func (p *pipe) Send(ctx context.Context, msg *nats.Msg, done func(answer, error)) error {
	size := min(int64(len(msg.Data)+len(msg.Subject)), maxBytes)
	if err := p.acquire(ctx, p.room.messages, 1); err != nil {
		return err
	}
	if err := p.acquire(ctx, p.room.bytes, size); err != nil {
		p.room.messages.Release(1)
		return err
	}
	p.mu.Lock()
	if err := context.Cause(p.failed); err != nil {
		// The failure makes room by ending all flights, but not for new messages. The mutex
		// makes sure that the watchdog sees every flight that began before.
		p.mu.Unlock()
		p.room.messages.Release(1)
		p.room.bytes.Release(size)
		return err
	}
	n := p.next
	p.next++
	if len(p.flights) == 0 {
		p.progress = time.Now()
	}
	p.flights[n] = &flight{done: done, subject: msg.Subject, size: size}
	p.mu.Unlock()

	if !p.opts.AckOnly {
		if msg.Header == nil {
			msg.Header = nats.Header{}
		}
		msg.Header.Set(wire.HeaderReplyTo, p.inbox+".outcome."+strconv.FormatUint(n, 10))
	}
	err := p.publish(ctx, n, msg)
	if err != nil {
		err = p.l.PublishError(msg.Subject, err)
		p.finish(n, func(f *flight) error { return err })
	}
	if err != nil && (ctx.Err() != nil || errors.Is(err, ErrUnavailable)) {
		return err
	}
	return nil
}

// publish publishes a message in a fast batch, or by itself.
func (p *pipe) publish(ctx context.Context, n uint64, msg *nats.Msg) error {
	if p.fast != nil {
		if sent, err := p.fast.send(ctx, n, msg); sent || err != nil {
			return err
		}
	}
	return p.alone(ctx, n, msg)
}

// alone publishes a message by itself.
func (p *pipe) alone(ctx context.Context, n uint64, msg *nats.Msg) error {
	msg.Reply = p.inbox + ".ack." + strconv.FormatUint(n, 10)
	return p.l.Send(ctx, msg)
}

func (p *pipe) acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.failed, cancel)()
	if s.Acquire(within, n) == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return context.Cause(p.failed)
}

// Close waits for the end of every message, and ends the pipe. If ctx is done before that,
// the messages in flight end with an error.
func (p *pipe) Close(ctx context.Context) error {
	if p.fast != nil {
		p.fast.end()
	}
	err := p.acquire(ctx, p.room.messages, maxMessages)
	if ctx.Err() != nil {
		p.abandon(func(f *flight) error { return interruptedBy(ctx.Err(), f.known()) })
	}
	if err == nil {
		err = context.Cause(p.failed) // the failure may have ended the last flights
	}
	p.fail(nil) // ends the watchdog
	p.watch.Wait()
	_ = p.sub.Unsubscribe()
	return err
}

// publishes reports whether a message to a subject is in flight, which the server has denied.
func (p *pipe) publishes(subject string) bool {
	if p.fast != nil && p.fast.probes(subject) {
		return false // it finds out by itself
	}
	subject = p.l.Published(subject)
	p.mu.Lock()
	defer p.mu.Unlock()
	found := false
	for _, f := range p.flights {
		if f.subject == subject {
			f.unsent, found = !f.stored, true
		}
	}
	return found
}

// receive handles an acknowledgement or an outcome.
func (p *pipe) receive(msg *nats.Msg) {
	kind, rest, _ := strings.Cut(msg.Subject[len(p.inbox)+1:], ".")
	if kind == "fast" {
		p.fast.receive(rest, msg)
		return
	}
	n, err := strconv.ParseUint(rest, 10, 64)
	if err != nil {
		return
	}
	if kind == "outcome" {
		p.finish(n, func(f *flight) error { f.answer.Outcome = msg.Data; return nil })
		return
	}
	ack, err := readAck(msg)
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse):
		p.mu.Lock()
		if f := p.flights[n]; f != nil {
			f.unsent = true
		}
		p.mu.Unlock()
		p.noStream()
	case err != nil:
		p.finish(n, func(*flight) error { return err })
	case ack.Duplicate || p.opts.AckOnly:
		p.finish(n, func(f *flight) error {
			f.answer.Duplicate, f.answer.Seq, f.answer.Stream = ack.Duplicate, ack.Seq, ack.Stream
			return nil
		})
	default:
		p.stored(n, ack.Seq)
	}
}

// readAck reads the answer of JetStream to a message that is in no batch.
func readAck(msg *nats.Msg) (puback.Answer, error) {
	ack, err := puback.Read(msg)
	if ack.Error != nil {
		err = refusedBy(ack.Error)
	}
	return ack, err
}

// noRoom are the codes of JetStream for a message that it would store if it had more room: the limits of the account
// or of the server are reached, or the stream is full or cannot be written.
var noRoom = []jetstream.ErrorCode{10002, 10023, 10047, 10077}

// refusedBy explains why JetStream refused a message. Where it has no room, that is [ErrUnavailable]: the same message
// is stored once there is.
func refusedBy(err error) error {
	var api *jetstream.APIError
	if errors.As(err, &api) && slices.Contains(noRoom, api.ErrorCode) {
		return unavailable("the log has no room for the message: make room on the disk of the NATS server, or raise its "+
			"limits: %v", err)
	}
	return fmt.Errorf("the log refuses the message: %w", err)
}

// noStream fails the pipe, because nothing listens on a subject of the log.
func (p *pipe) noStream() {
	p.absent.Do(func() {
		// To find the reason it asks the server, and the answer cannot come while this
		// callback runs.
		go func() { p.fail(p.l.AbsentLog(context.Background(), string(p.l.Prefix)+".write.>")) }()
	})
}

// stored notes that the log has a message.
func (p *pipe) stored(n, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress = time.Now()
	if f := p.flights[n]; f != nil { // otherwise its outcome came first
		f.stored, f.answer.Seq = true, seq
	}
}

// finish ends a flight with the error that end returns.
func (p *pipe) finish(n uint64, end func(*flight) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flights[n]
	if f == nil {
		return
	}
	delete(p.flights, n)
	p.progress = time.Now()
	err := end(f)
	f.done(f.answer, err)
	p.room.messages.Release(1)
	p.room.bytes.Release(f.size)
}

// abandon ends all flights.
func (p *pipe) abandon(end func(*flight) error) {
	p.mu.Lock()
	numbers := make([]uint64, 0, len(p.flights))
	for n := range p.flights {
		numbers = append(numbers, n)
	}
	p.mu.Unlock()
	for _, n := range numbers {
		p.finish(n, end)
	}
}

// watchdog fails the pipe if there is no progress for too long.
func (p *pipe) watchdog() {
	timer := time.NewTimer(p.l.Timeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.failed.Done():
			p.abandon(p.unknown)
			return
		}
		p.mu.Lock()
		left := p.l.Timeout - time.Since(p.progress)
		if len(p.flights) == 0 {
			left = p.l.Timeout
		}
		p.mu.Unlock()
		if left > 0 {
			timer.Reset(left)
			continue
		}
		p.fail(p.stalled())
	}
}

// known is what is known of a message that has not ended.
func (f *flight) known() storedAt {
	return storedAt{Durable: f.stored, Seq: f.answer.Seq}
}

// unknown is the error of a message whose outcome is not known when the pipe fails.
func (p *pipe) unknown(f *flight) error {
	switch cause := context.Cause(p.failed); {
	case f.unsent:
		return cause
	case !errors.Is(cause, errStalled):
		return interruptedBy(cause, f.known())
	}
	return p.l.NoOutcome(f.known())
}

// errStalled is in the error of a pipe in which nothing happens any more.
var errStalled = errors.New("stalled")

type stalled struct{ error }

func (s stalled) Unwrap() error   { return s.error }
func (stalled) Is(err error) bool { return err == errStalled }

func (p *pipe) stalled() error {
	if p.l.IsLost() {
		return stalled{p.l.Lost()}
	}
	return stalled{unavailable("nothing was acknowledged or applied for %s: if lapse is only slow, use a longer timeout",
		p.l.Timeout)}
}
