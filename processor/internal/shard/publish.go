package shard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

const (
	publishTimeout = 20 * time.Second
	// pauseAtMost is how long an owner may go without asking Redis before it verifies again.
	pauseAtMost = 500 * time.Millisecond
)

// Mirror is what a region that follows another one knows of that. There an announcer publishes nothing: it
// waits until the stream of events, which is a mirror, has the outputs.
type Mirror interface {
	// Published is a checkpoint of the first region whose outputs are all in the mirror; nil if none is known.
	// news is closed when there may be a newer one.
	Published() (c *Checkpoint, news <-chan struct{})
	// Reached reports whether the mirrors were compared with the first region since the session began, and have what that
	// had then.
	Reached() bool
	// Ended is done when nobody is to wait any longer.
	Ended() context.Context
}

// ownership is what an announcer asks the owner before it publishes.
type ownership interface {
	// Verify returns an error unless the shard is still this process's.
	Verify(ctx context.Context) error
	// Verified is when this process was the owner for certain.
	Verified() time.Time
}

// Announcer publishes the outputs of a shard, each once. Only the owner's
// goroutine calls it, but for Settled.
type Announcer struct {
	Published
	parts   *Parts
	owner   ownership
	fence   *events.Fence // of the last takeover; nil before the first one
	last    events.Place  // of the last output
	holds   bool          // the tail
	settled atomic.Pointer[Checkpoint]
}

// NewAnnouncer makes the announcer of a shard.
func NewAnnouncer(parts *Parts, owner ownership) *Announcer {
	return &Announcer{parts: parts, owner: owner}
}

// Hold keeps the tail of the stream, for a takeover that begins. No checkpoint is stored from now on: it could
// name outputs that the stream has lost, in place of an older one from which they can be made again.
func (a *Announcer) Hold() {
	a.settled.Store(nil)
	if !a.holds {
		a.holds = true
		a.parts.Tail.Hold()
	}
}

// release gives up the tail of the stream.
func (a *Announcer) release() {
	if a.holds {
		a.holds = false
		a.parts.Tail.Release()
	}
}

// Begin begins anew after a takeover, which holds the tail: all outputs up to the checkpoint are
// published, and the tail has those behind its From. last is where the stream has the last output
// of the shard, as far as that is known. upTo is the last sequence of the log at which a former
// owner may have published; where all is published by the first region (Mirror), math.MaxUint64.
func (a *Announcer) Begin(c Checkpoint, upTo uint64, last events.Place) {
	a.Published, a.last = newPublished(c, upTo), last
	a.settled.Store(nil) // the stream may have lost outputs since
}

// Settle notes a position up to which all outputs are published and committed. Where the outputs of
// a former owner are known to be passed, the outputs behind it are stored from here on.
func (a *Announcer) Settle(c *Checkpoint) {
	if c.From = a.checkpoint.From; a.passed(c.Seq, c.Watermark) {
		a.release()
		c.From = a.parts.Publisher.Last()
	}
	c.Last = a.last
	a.settled.Store(c)
}

// Settled is the position of the last call of Settle; nil if there was none.
func (a *Announcer) Settled() *Checkpoint { return a.settled.Load() }

// Last is where the stream has the last output of the shard.
func (a *Announcer) Last() events.Place { return a.last }

// PublishedUpTo is the last position up to which all outputs are known to be published.
func (a *Announcer) PublishedUpTo() Checkpoint {
	if c := a.Settled(); c != nil && c.Seq >= a.checkpoint.Seq {
		return *c
	}
	return a.checkpoint
}

// Publish stores outputs in the stream of events, in their order, except those that it
// has already. An owner that has not asked Redis for a while verifies first that it is
// still the owner, although the stream would refuse its outputs if it is not.
//
// The first of them names the message up to which the log was read for them, if its stamp is known: an
// event may follow from a message, such as a configuration, that nothing else remembers after a loss.
func (a *Announcer) Publish(ctx context.Context, outputs []fold.Output, from store.Stamp) error {
	out, err := a.prepare(ctx, outputs, from)
	if err != nil || out == nil {
		return err
	}
	out.send(ctx)
	return a.sent(out)
}

// publication are outputs that are published behind a fence, and how that has ended.
type publication struct {
	parts    *Parts
	fence    events.Fence
	messages []events.Message
	began    time.Time
	last     events.Place
	err      error
}

// prepare makes sure that the owner may publish outputs. It returns nil if there is nothing to send.
func (a *Announcer) prepare(ctx context.Context, outputs []fold.Output, from store.Stamp) (*publication, error) {
	if a.parts.Mirror != nil {
		return nil, a.await(ctx, outputs)
	}
	messages := a.missing(outputs)
	if len(messages) == 0 {
		return nil, nil
	}
	if from.Seq != 0 {
		messages[0].Name(from.Seq, from.At)
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if a.fence.Stale(a.parts.MaxAge / 2) {
		if err := a.refence(ctx); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	if at := a.owner.Verified(); paused(began.Sub(at), began.Round(0).Sub(at.Round(0))) {
		if err := a.owner.Verify(ctx); err != nil {
			return nil, err
		}
	}
	if err := a.parts.Hook.At(crash.BeforePublish); err != nil {
		return nil, err
	}
	return &publication{parts: a.parts, fence: *a.fence, messages: messages, began: began}, nil
}

// send sends the messages, and waits until they are stored. It touches nothing of the owner.
func (o *publication) send(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	o.err = o.parts.Link.Ask(ctx, func(ctx context.Context) (err error) {
		o.last, err = o.parts.Publisher.Publish(ctx, o.fence, o.messages)
		return err
	})
}

// sent notes how a publication has ended.
func (a *Announcer) sent(o *publication) error {
	switch {
	case errors.Is(o.err, events.ErrFenced):
		return fmt.Errorf("%w: %w", store.ErrFenced, o.err)
	case o.err != nil:
		return a.failed(o.err)
	case o.last.Seq <= a.last.Seq:
		return a.failed(fmt.Errorf("%w: it stores at sequence %d, and had %d", events.ErrLost, o.last.Seq, a.last.Seq))
	}
	a.last = o.last
	a.parts.Metrics.Emitted.Add(float64(len(o.messages)))
	a.parts.traceEvents(o.messages, o.began)
	return a.parts.Hook.At(crash.AfterPublish)
}

// traceEvents records the publication of events whose writes carried a traceparent.
func (p *Parts) traceEvents(messages []events.Message, began time.Time) {
	if p.Trace == nil {
		return
	}
	ended := time.Now()
	for _, m := range messages {
		if s, ok := m.Span(); ok {
			s.Began, s.Ended = began, ended
			p.Trace(s)
		}
	}
}

// refence stores a new fence, and then verifies that the shard is still this
// process's. From then on the stream refuses publications of a former owner; and if
// another owner stores a fence, it refuses ours.
func (a *Announcer) refence(ctx context.Context) error {
	if err := a.Fence(ctx); err != nil {
		return err
	}
	return a.owner.Verify(ctx)
}

// FencePlace is where the stream has the fence.
func (a *Announcer) FencePlace() events.Place {
	if a.parts.Mirror != nil {
		return events.Place{}
	}
	return a.fence.Place()
}

// Fence stores a fence in the stream of events.
func (a *Announcer) Fence(ctx context.Context) error {
	if a.parts.Mirror != nil {
		return nil
	}
	if err := a.parts.Hook.At(crash.BeforeFence); err != nil {
		return err
	}
	var fence events.Fence
	// If an answer is lost, a second fence keeps out the same as the first.
	err := a.parts.Link.Query(ctx, func(ctx context.Context) (err error) {
		fence, err = a.parts.Publisher.Fence(ctx, a.parts.Shard)
		return err
	})
	if err != nil {
		return a.failed(err)
	}
	a.fence = &fence
	return a.parts.Hook.At(crash.AfterFence)
}

// missing returns the outputs that have to be published, in their order: all that are new,
// and of those that may have been published the ones that the stream does not have.
func (a *Announcer) missing(outputs []fold.Output) []events.Message {
	messages := make([]events.Message, 0, len(outputs))
	for _, o := range outputs {
		switch a.of(o) {
		case isPublished:
			continue
		case maybePublished:
			if at, found := a.parts.Tail.Find(o.Message); found {
				if at.Seq > a.last.Seq {
					a.last = at
				}
				continue
			}
		}
		messages = append(messages, o.Message)
	}
	return messages
}

func (a *Announcer) failed(err error) error {
	return fmt.Errorf("shard %d: %w", a.parts.Shard, err)
}

// Lateness observes how late the events of outputs that passed their deadline were stored.
// Those that may be older than this process are left out.
func (a *Announcer) Lateness(observer prometheus.Observer, outputs []fold.Output, stored time.Time) {
	for _, o := range outputs {
		if !o.Warns && a.of(o) == isNew {
			observer.Observe(stored.Sub(time.UnixMilli(o.At)).Seconds())
		}
	}
}

// paused reports whether so much time has passed, by either clock, that another process may have taken
// over. A machine that was suspended shows it only by its wall clock.
func paused(monotonic, wall time.Duration) bool { return max(monotonic, wall) > pauseAtMost }
