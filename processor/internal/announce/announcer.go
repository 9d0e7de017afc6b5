package announce

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/decide"
	"github.com/seed18712806/lapse/processor/internal/link"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

const (
	publishTimeout = 20 * time.Second
	// pauseAtMost is how long an owner may go without asking Redis before it verifies again.
	pauseAtMost = 500 * time.Millisecond
)

// Channel is what the announcers of all partitions share.
type Channel struct {
	Publisher *events.Publisher
	Link      *link.Link
	Emitted   prometheus.Counter
	Hook      crash.Hook
	MaxAge    time.Duration // of messages in the stream; 0 if they stay for ever
}

// Ownership is what an announcer asks the owner before it publishes.
type Ownership interface {
	// Verify returns an error unless the partition is still this process's.
	Verify(ctx context.Context) error
	// Verified is when this process was the owner for certain.
	Verified() time.Time
}

// Announcer publishes the outputs of one partition, each once. Only the partition's own
// goroutine calls it, but for Settled.
type Announcer struct {
	Published
	partition int
	channel   *Channel
	owner     Ownership
	fence     *events.Fence // nil if there is none of this takeover yet
	settled   atomic.Pointer[Checkpoint]
}

// NewAnnouncer makes the announcer of a partition.
func NewAnnouncer(c *Channel, partition int, owner Ownership) *Announcer {
	return &Announcer{partition: partition, channel: c, owner: owner}
}

// Begin begins anew after a takeover: upTo is the last sequence of the log at which a
// former owner may have published.
func (a *Announcer) Begin(c Checkpoint, upTo uint64) { a.Published = newPublished(c, upTo) }

// Settle notes a position up to which all outputs are published and committed.
func (a *Announcer) Settle(c *Checkpoint) { a.settled.Store(c) }

// Settled is the position of the last call of Settle; nil if there was none.
func (a *Announcer) Settled() *Checkpoint { return a.settled.Load() }

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
func (a *Announcer) Publish(ctx context.Context, outputs []decide.Output) error {
	c := a.channel
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	messages, err := a.missing(ctx, outputs)
	gone := errors.Is(err, events.ErrNoFence)
	if !gone && (err != nil || len(messages) == 0) {
		return err
	}
	if gone || a.fence == nil || a.fence.Stale(c.MaxAge/2) {
		// A publication of a former owner may still be on its way, so a look-up is
		// only final behind a fence.
		if err := a.refence(ctx); err != nil {
			return err
		}
		if messages, err = a.missing(ctx, outputs); err != nil {
			return err
		}
	}
	if paused(a.owner.Verified()) {
		if err := a.owner.Verify(ctx); err != nil {
			return err
		}
	}
	if err := c.Hook.At(crash.BeforePublish); err != nil {
		return err
	}
	err = c.Link.Ask(ctx, func(ctx context.Context) error { return c.Publisher.Publish(ctx, *a.fence, messages) })
	if errors.Is(err, events.ErrFenced) {
		return fmt.Errorf("%w: %w", store.ErrFenced, err)
	} else if err != nil {
		return a.failed(err)
	}
	c.Emitted.Add(float64(len(messages)))
	return c.Hook.At(crash.AfterPublish)
}

// refence stores a new fence, and then verifies that the partition is still this
// process's. From then on the stream refuses publications of a former owner; and if
// another owner stores a fence, it refuses ours.
func (a *Announcer) refence(ctx context.Context) error {
	if err := a.Fence(ctx); err != nil {
		return err
	}
	return a.owner.Verify(ctx)
}

// Unfence forgets the fence, as a new takeover begins.
func (a *Announcer) Unfence() { a.fence = nil }

// Fence stores a fence in the stream of events.
func (a *Announcer) Fence(ctx context.Context) error {
	c := a.channel
	if err := c.Hook.At(crash.BeforeFence); err != nil {
		return err
	}
	var fence events.Fence
	// If an answer is lost, a second fence keeps out the same as the first.
	err := c.Link.Query(ctx, func(ctx context.Context) (err error) {
		fence, err = c.Publisher.Fence(ctx, a.partition)
		return err
	})
	if err != nil {
		return a.failed(err)
	}
	a.fence = &fence
	return c.Hook.At(crash.AfterFence)
}

// missing returns the outputs that have to be published, in their order: all that are new,
// and of those that may have been published the ones that the stream does not have.
func (a *Announcer) missing(ctx context.Context, outputs []decide.Output) ([]events.Message, error) {
	var maybe []events.Message
	for _, o := range outputs {
		if a.of(o) == maybePublished {
			maybe = append(maybe, o.Message)
		}
	}
	if len(maybe) > 0 {
		var fence events.Fence
		if a.fence != nil {
			fence = *a.fence
		}
		err := a.channel.Link.Ask(ctx, func(ctx context.Context) (err error) {
			maybe, err = a.channel.Publisher.Unpublished(ctx, fence, maybe)
			return err
		})
		if err != nil {
			return nil, a.failed(err)
		}
	}
	messages := make([]events.Message, 0, len(outputs))
	for _, o := range outputs {
		switch a.of(o) {
		case isNew:
			messages = append(messages, o.Message)
		case maybePublished:
			if len(maybe) > 0 && maybe[0] == o.Message {
				messages = append(messages, o.Message)
				maybe = maybe[1:]
			}
		}
	}
	return messages, nil
}

func (a *Announcer) failed(err error) error {
	return fmt.Errorf("partition %d: %w", a.partition, err)
}

// Lateness observes how late the events of outputs that passed their deadline were stored.
// Those that may be older than this process are left out.
func (a *Announcer) Lateness(observer prometheus.Observer, outputs []decide.Output, stored time.Time) {
	for _, o := range outputs {
		if a.of(o) == isNew {
			observer.Observe(stored.Sub(time.UnixMilli(o.At)).Seconds())
		}
	}
}

// paused reports whether so much time has passed that another process may have taken
// over. A machine that was suspended shows it only by its wall clock.
func paused(since time.Time) bool {
	return max(time.Since(since), time.Now().Round(0).Sub(since.Round(0))) > pauseAtMost
}
