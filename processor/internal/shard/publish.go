package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	// Reached reports whether the mirrors were compared with the first region since the session began, and have what
	// that had then.
	Reached() bool
	// Follows returns an error if this region may have a log of its own by now.
	Follows(ctx context.Context) error
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

// Announcer publishes the outputs of a shard, each once. Only the owner's goroutine calls it, but for Settled.
type Announcer struct {
	Published
	parts   *Parts
	owner   ownership
	fence   *events.Fence // of the last takeover; nil before the first one
	last    events.Place  // of the last output
	holds   bool          // the tail
	copied  uint64        // last sequence of the log that is known to come from the first region; see follows
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

// refence stores a new fence, and then verifies that the shard is still this process's. If the stream may have lost
// something since the last one, only a takeover helps, which compares. From then on the stream refuses
// publications of a former owner; and if another owner stores a fence, it refuses ours.
func (a *Announcer) refence(ctx context.Context) error {
	before := *a.fence
	if err := a.Fence(ctx); err != nil {
		return err
	}
	if err := a.fence.Renews(before); err != nil {
		return a.failed(err)
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

// Published knows which outputs of a shard may have been published before, by another owner or by this process before a
// failure. Their causes are in the log as it was when the shard was taken over:
//
//   - N1: an output whose cause is at or before the checkpoint has been published.
//   - N2: one whose cause is after it, and at or before upTo, may have been published. It has been
//     if the tail of the stream has it, from the checkpoint's From to the owner's fence.
//   - N3: one whose cause is after upTo has not been published.
//
// The cause of an expiration by the passing of time is the first message stamped at or after its deadline, whenever the
// document is reaped. So its deadline is compared with the log time at upTo, and with that of the checkpoint.
type Published struct {
	checkpoint Checkpoint
	upTo       uint64 // last sequence of the log when the shard was taken over
	time       int64  // log time at upTo; math.MaxInt64 until it is known
}

// Checkpoint is a position in the log up to which all outputs of a shard are published.
type Checkpoint struct {
	Format    int    `json:"format"`    // see wire.Format
	Log       string `json:"log"`       // identity of the log
	Seq       uint64 `json:"seq"`       // in the log
	Watermark int64  `json:"watermark"` // log time there, Unix milliseconds
	// Stamp is that of the last message that has moved Seq or Watermark, as far as it is known; see store.Stamp.
	Stamp string `json:"stamp,omitempty"`
	// From is a place in the stream of events: it stores behind it all outputs of the shard
	// that are caused after Seq. Last is where it has the last output that was published then.
	From events.Place `json:"from,omitzero"`
	Last events.Place `json:"last,omitzero"`
	// Origin is the sequence after which the shard began, where it was begun anew
	// from a log that did not reach back to its own beginning.
	Origin uint64 `json:"origin,omitempty"`
	// GivenUp is a sequence of the log. The outputs that the stream of events had lost of the
	// shard when it was before that, and that could not be made again, were given up by a person.
	GivenUp uint64 `json:"givenUp,omitempty"`
	// Anew is a sequence of the stream of events. A person has begun the shard anew when the stream had that. States,
	// snapshots and outputs from before may follow from messages that the log has lost, and do not count.
	Anew uint64 `json:"anew,omitempty"`
}

// ParsedStamp is Stamp, which is valid: see Checkpoints.
func (c Checkpoint) ParsedStamp() store.Stamp {
	s, _ := store.ParseStamp(c.Stamp)
	return s
}

func newPublished(c Checkpoint, upTo uint64) Published {
	return Published{checkpoint: c, upTo: upTo, time: math.MaxInt64}
}

// UpTo is the last sequence of the log when the shard was taken over.
func (p *Published) UpTo() uint64 { return p.upTo }

// Pass notes the log time at UpTo, when the first message after it comes.
func (p *Published) Pass(watermark int64) {
	if p.time == math.MaxInt64 {
		p.time = watermark
	}
}

// passed reports whether no output behind a position may have been published by a former owner.
func (p *Published) passed(offset uint64, watermark int64) bool {
	return offset >= p.upTo && watermark >= p.time
}

// novelty is what is known of an output.
type novelty int

const (
	isPublished novelty = iota
	maybePublished
	isNew
)

func (p *Published) of(o fold.Output) novelty {
	if o.Seq != 0 {
		return compare(o.Seq, p.checkpoint.Seq, p.upTo)
	}
	return compare(o.At, p.checkpoint.Watermark, p.time)
}

func compare[T uint64 | int64](cause, checkpoint, upTo T) novelty {
	switch {
	case cause <= checkpoint:
		return isPublished
	case cause <= upTo:
		return maybePublished
	default:
		return isNew
	}
}

// All reports whether every output up to an offset and a log time has been published.
func (p *Published) All(offset uint64, watermark int64) bool {
	return offset <= p.checkpoint.Seq && watermark <= p.checkpoint.Watermark
}

// errFollowing: the session has ended while a shard waited for the first region.
var errFollowing = errors.New("the wait for the first region has ended")

// awaitAgain is how often an owner that waits verifies that it still is the owner.
const awaitAgain = time.Second

// await waits until the mirror of the stream of events has outputs, in their order, or a checkpoint says that
// they were published. The first region publishes them before it commits: so what is committed here never
// passes an output that the first region may still have to publish, and a promotion can.
func (a *Announcer) await(ctx context.Context, outputs []fold.Output) error {
	m := a.parts.Mirror
	for len(outputs) > 0 {
		found := a.parts.Tail.Changed()
		c, news := m.Published()
		if c != nil && c.Seq >= a.checkpoint.Seq && c.Watermark >= a.checkpoint.Watermark {
			a.checkpoint = *c
		}
		for len(outputs) > 0 && len(a.missing(outputs[:1])) == 0 {
			if err := a.follows(ctx, outputs[0].Message.Key.Seq); err != nil {
				return err
			}
			outputs = outputs[1:]
		}
		if len(outputs) == 0 {
			return nil
		}
		verify := time.NewTimer(awaitAgain)
		select {
		case <-found:
		case <-news:
		case <-verify.C:
			if err := a.owner.Verify(ctx); err != nil {
				return err
			}
		case <-m.Ended().Done():
			return a.failed(errFollowing)
		}
		verify.Stop()
	}
	return nil
}

// follows returns an error unless the first region has stored a message that was read from the log here. After a
// promotion, the mirror of the events may have an output of a message that is lost, and the log here has another
// message at its sequence. The log was a mirror when all that has been read of it until now was stored, if it is one
// now. So a single question covers everything in the queue.
func (a *Announcer) follows(ctx context.Context, seq uint64) error {
	if seq <= a.copied {
		return nil
	}
	read := max(seq, a.parts.Queue.ReadUpTo().Seq)
	if err := a.parts.Mirror.Follows(ctx); err != nil {
		return a.failed(err)
	}
	a.copied = read
	return nil
}
