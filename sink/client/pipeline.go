package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/semaphore"
)

// The most that a pipeline has in flight.
const (
	pipelineMessages = 1000
	pipelineBytes    = 32 << 20
)

// Pipeline publishes many messages, and does not wait for the outcome of one before it sends
// the next. The messages reach the log in the order of the calls of Send. At most 1,000
// messages and 32 MiB are in flight; then Send waits for an outcome.
//
// If lapse acknowledges and answers nothing for as long as Options.Timeout, the pipeline
// fails. Then each message in flight ends with an error that says whether the log has it,
// and Send and Close return an error that is ErrUnavailable. If the server denies a message,
// the pipeline fails with an error that is ErrDenied.
type Pipeline struct {
	c        *Client
	done     func(tag int, r Result, err error)
	inbox    string
	sub      *nats.Subscription
	messages *semaphore.Weighted
	bytes    *semaphore.Weighted
	failed   context.Context // done once the pipeline has failed or is closed
	fail     context.CancelCauseFunc
	forget   func()        // ends the wait for denials
	stopped  chan struct{} // closed when the watchdog has ended
	absent   sync.Once

	mu       sync.Mutex
	next     uint64
	flights  map[uint64]*flight
	progress time.Time // of the last acknowledgement or outcome, or of the first message in an empty pipeline
}

// flight is a message without an outcome.
type flight struct {
	tag     int
	subject string
	size    int64
	result  Result // its Seq is 0 before the acknowledgement
}

// Pipeline starts a pipeline. It calls done once for each message, with the tag that Send got:
// one call at a time, in no particular order. done must not use the pipeline. Close the
// pipeline at the end.
func (c *Client) Pipeline(done func(tag int, r Result, err error)) (*Pipeline, error) {
	failed, fail := context.WithCancelCause(context.Background())
	p := &Pipeline{
		c: c, done: done, inbox: c.nc.NewInbox(),
		messages: semaphore.NewWeighted(pipelineMessages), bytes: semaphore.NewWeighted(pipelineBytes),
		failed: failed, fail: fail, stopped: make(chan struct{}),
		flights: make(map[uint64]*flight),
	}
	var err error
	if p.sub, err = c.nc.Subscribe(p.inbox+".*.*", p.receive); err != nil {
		fail(err)
		return nil, fmt.Errorf("subscribe to the outcomes: %w", err)
	}
	p.forget = c.denials.expect(p.fail, p.publishes)
	go p.watch()
	return p, nil
}

// Send waits for room and sends a message. It returns an error only if the pipeline cannot go
// on. An error of the message itself goes to done.
func (p *Pipeline) Send(ctx context.Context, m Message, tag int) error {
	size := min(int64(len(m.Body)+len(m.Subject)), pipelineBytes)
	if err := p.acquire(ctx, p.messages, 1); err != nil {
		return err
	}
	if err := p.acquire(ctx, p.bytes, size); err != nil {
		p.messages.Release(1)
		return err
	}
	p.mu.Lock()
	if err := context.Cause(p.failed); err != nil {
		// The failure makes room by ending all flights, but not for new messages. The mutex
		// makes sure that the watchdog sees every flight that began before.
		p.mu.Unlock()
		p.messages.Release(1)
		p.bytes.Release(size)
		return err
	}
	n := p.next
	p.next++
	if len(p.flights) == 0 {
		p.progress = time.Now()
	}
	p.flights[n] = &flight{tag: tag, subject: m.Subject, size: size}
	p.mu.Unlock()

	msg := m.nats(p.inbox + ".outcome." + strconv.FormatUint(n, 10))
	msg.Reply = p.inbox + ".ack." + strconv.FormatUint(n, 10)
	err := p.publish(ctx, msg)
	if err != nil {
		err = p.c.publishError(ctx, m.Subject, err)
		p.finish(n, func(f *flight) error { return err })
	}
	if err != nil && (ctx.Err() != nil || errors.Is(err, ErrUnavailable)) {
		return err
	}
	return nil
}

// publish waits for a connection and publishes.
func (p *Pipeline) publish(ctx context.Context, msg *nats.Msg) error {
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	end := time.NewTimer(p.c.opts.Timeout)
	defer end.Stop()
	for {
		err := p.c.nc.PublishMsg(msg)
		if err == nil || !p.c.isLost() || errors.Is(err, nats.ErrMaxPayload) {
			return err
		}
		select {
		case <-again.C:
		case <-end.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

func (p *Pipeline) acquire(ctx context.Context, s *semaphore.Weighted, n int64) error {
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

// Close waits for the outcome of every message, and ends the pipeline. If ctx is done before
// that, the messages in flight end with an error.
func (p *Pipeline) Close(ctx context.Context) error {
	err := p.acquire(ctx, p.messages, pipelineMessages)
	if ctx.Err() != nil {
		p.abandon(func(f *flight) error {
			if f.result.Seq == 0 {
				return fmt.Errorf("%w: the message may be in the log or not", ctx.Err())
			}
			return fmt.Errorf("%w: the message is in the log (sequence %d): lapse will apply or reject it", ctx.Err(), f.result.Seq)
		})
	}
	if err == nil {
		err = context.Cause(p.failed) // the failure may have ended the last flights
	}
	p.fail(nil) // ends the watchdog
	p.forget()
	<-p.stopped
	_ = p.sub.Unsubscribe()
	return err
}

// publishes reports whether a message to a subject is in flight.
func (p *Pipeline) publishes(subject string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.flights {
		if f.subject == subject {
			return true
		}
	}
	return false
}

// receive handles an acknowledgement or an outcome.
func (p *Pipeline) receive(msg *nats.Msg) {
	kind, number, _ := strings.Cut(strings.TrimPrefix(msg.Subject, p.inbox+"."), ".")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return
	}
	if kind == "outcome" {
		p.finish(n, func(f *flight) error { return f.result.read(msg.Data) })
		return
	}
	var ack struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	switch err := json.Unmarshal(msg.Data, &ack); {
	case msg.Header.Get("Status") != "": // no responders, so there is no stream
		p.absent.Do(func() {
			// To find the reason it asks the server, and the answer cannot come while this
			// callback runs.
			go func() { p.fail(p.c.absent(context.Background(), string(p.c.opts.Prefix)+".write.>")) }()
		})
	case err != nil:
		p.finish(n, func(*flight) error { return fmt.Errorf("the acknowledgement is not valid: %w", err) })
	case ack.Error != nil:
		p.finish(n, func(*flight) error { return fmt.Errorf("the log refuses the message: %w", ack.Error) })
	case ack.Duplicate:
		p.finish(n, func(f *flight) error { f.result.Duplicate, f.result.Seq = true, ack.Sequence; return nil })
	default:
		p.mu.Lock()
		defer p.mu.Unlock()
		p.progress = time.Now()
		if f := p.flights[n]; f != nil { // otherwise its outcome came first
			f.result.Seq = ack.Sequence
		}
	}
}

// finish ends a flight with the error that end returns.
func (p *Pipeline) finish(n uint64, end func(*flight) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.flights[n]
	if f == nil {
		return
	}
	delete(p.flights, n)
	p.progress = time.Now()
	err := end(f)
	p.done(f.tag, f.result, err)
	p.messages.Release(1)
	p.bytes.Release(f.size)
}

// abandon ends all flights.
func (p *Pipeline) abandon(end func(*flight) error) {
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

// watch is the watchdog: it fails the pipeline if there is no progress for too long.
func (p *Pipeline) watch() {
	defer close(p.stopped)
	timer := time.NewTimer(p.c.opts.Timeout)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-p.failed.Done():
			p.abandon(p.unknown)
			return
		}
		p.mu.Lock()
		left := p.c.opts.Timeout - time.Since(p.progress)
		if len(p.flights) == 0 {
			left = p.c.opts.Timeout
		}
		p.mu.Unlock()
		if left > 0 {
			timer.Reset(left)
			continue
		}
		p.fail(p.c.stalled())
	}
}

// unknown is the error of a message whose outcome is not known.
func (p *Pipeline) unknown(f *flight) error {
	switch {
	case f.result.Seq != 0:
		return p.c.noOutcome(f.result.Seq)
	case p.c.isLost():
		return p.c.noAcknowledgement()
	}
	return context.Cause(p.failed)
}

func (c *Client) stalled() error {
	if c.isLost() {
		return c.lost()
	}
	return unavailable("nothing was acknowledged or applied for %s: if lapse is only slow, use a longer timeout", c.opts.Timeout)
}
