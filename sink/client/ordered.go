package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Stripes is how many consumers [Client.Ordered] divides a collection among, and so how many processes can
// share its messages.
const Stripes = 8

// OrderedOptions say which messages [Client.Ordered] hands over.
type OrderedOptions struct {
	Durable    string // names the consumers in the stream of events: 1 to 120 of A-Z a-z 0-9 _ -
	Collection string // its expiry events
	Warnings   bool   // its warnings too
	Changes    bool   // its changes and drops too; a drop has no document, and so no place in the order of one
	// Due, in place of a collection, is the target of due messages, such as mail.send, or mail.> for all
	// below mail.
	Due       string
	Unordered bool          // does without O2: a document's messages do not wait for each other
	Since     *time.Time    // where consumers begin that do not exist yet: see [Since]
	Once      bool          // return when all that the stream had at the beginning is acknowledged
	AckWait   time.Duration // after how long another process gets the messages of one that has died (10 s)
	Pending   int           // how many messages all processes may hold without an acknowledgement (1,024)
}

// Ordered is a message that a handler of [Client.Ordered] has.
type Ordered struct {
	Subject string // under which the stream stores it
	Header  nats.Header
	Data    []byte
	Seq     uint64 // in the stream
	Stripe  int    // its consumer, from 0
	Behind  uint64 // how many messages of its stripe had not been delivered when it was

	of    *stripe
	msg   jetstream.Msg // its newest delivery, which is the one to acknowledge
	again bool          // it was delivered before
}

// Full reports whether its stripe holds as many messages as it may, so that no others come until some are done.
func (m *Ordered) Full() bool {
	if m.of == nil {
		return false
	}
	m.of.mu.Lock()
	defer m.of.mu.Unlock()
	return len(m.of.held) >= m.of.opts.MaxPending
}

// document tells which document a message is about.
func (m *Ordered) document() string {
	return m.Header.Get("ce-source") + " " + m.Header.Get("ce-subject")
}

// queue names those messages of which the handler gets one at a time.
func (o *ordered) queue(m *Ordered) string {
	if o.opts.Unordered {
		return strconv.FormatUint(m.Seq, 10)
	}
	return m.document()
}

// ordered is a call of Ordered under way.
type ordered struct {
	opts    OrderedOptions
	stripes []*stripe
	handle  func(context.Context, *Ordered) error
	last    uint64 // of the stream, at the beginning
	fail    context.CancelCauseFunc
	failed  atomic.Int32 // stripes that get nothing at the moment

	mu      sync.Mutex
	holding int // stripes whose messages this process gets
}

// Ordered calls handle with messages of the stream of events, until ctx is done (then it returns nil). It
// guarantees:
//
//   - O1: A message comes again, in this process or in another one, until its handler has returned nil.
//   - O2: The handler gets a message only after it has returned nil for each earlier one about the same
//     document, whichever processes die.
//   - O3: When Ordered returns, all handlers have returned, and the messages that they did not finish
//     are given back, if there is a connection.
//
// Handlers of different documents run at the same time. A handler is called once for a message, tries as
// often as it takes, and ends when its context is done. An error while its context is not done ends
// Ordered, which returns it. A process may repeat what another one has done, so let a repetition do
// no harm.
//
// Calls with one durable name share the messages. The stream divides the documents of a collection among 16
// buckets, and Ordered has a durable consumer for each two of them: a stripe. The server gives the
// messages of a stripe to one process at a time, and a process with more than its share of the stripes
// gives one up. Due messages have one stripe. If a process dies, another one goes on after AckWait.
//
// The other errors are those of [Collection.OnExpired].
func (c *Client) Ordered(ctx context.Context, opts OrderedOptions, handle func(context.Context, *Ordered) error) error {
	const longest = wire.MaxCollection - 8
	if wire.CheckCollection(opts.Durable) != nil || len(opts.Durable) > longest {
		return invalid("durable name %s is not valid: use 1 to %d of A-Z a-z 0-9 _ -", wire.Quote(opts.Durable), longest)
	}
	opts.AckWait = cmp.Or(opts.AckWait, 10*time.Second)
	opts.Pending = cmp.Or(opts.Pending, 1024)
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	o := &ordered{opts: opts, handle: handle, fail: fail}
	if err := o.open(running, c); ctx.Err() != nil {
		return nil
	} else if err != nil {
		if other := (*OtherConsumerError)(nil); errors.As(err, &other) {
			err = invalid("%s", other)
		}
		return err
	}
	var stripes sync.WaitGroup
	for _, n := range o.stripes {
		stripes.Go(func() {
			if err := n.run(running); err != nil {
				fail(err)
			}
		})
	}
	stripes.Wait()
	if ctx.Err() == nil && running.Err() != nil {
		return context.Cause(running)
	}
	flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.l.Timeout)
	defer cancel()
	_ = c.l.NC.FlushWithContext(flushing) // the acknowledgements
	return nil
}

// open looks the consumers of the stripes up, or creates them. A stripe that does not exist begins where the
// first one began: a process may have died before it had created them all.
func (o *ordered) open(ctx context.Context, c *Client) error {
	stripes := o.subjects(c.l.Prefix)
	stream, err := eventsStream(ctx, c.l, stripes[0][0])
	if err != nil {
		return err
	}
	o.last = stream.CachedInfo().State.LastSeq
	start := &jetstream.ConsumerConfig{DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: o.last + 1}
	if o.opts.Since != nil {
		start = nil
	}
	for i, subjects := range stripes {
		n := newStripe(ctx, o, i, &worker{l: c.l, opts: workOptions{
			Durable: o.opts.Durable + "-" + strconv.Itoa(i), Subjects: subjects, Since: o.opts.Since, Start: start,
			AckWait: o.opts.AckWait, MaxPending: max(1, o.opts.Pending/len(stripes)), Pinned: true,
		}})
		if n.consumer, err = n.open(ctx); err != nil {
			return err
		}
		first := n.consumer.CachedInfo().Config
		if start = &first; first.PriorityPolicy != jetstream.PriorityPolicyPinned {
			return &OtherConsumerError{n.opts.Durable, first.FilterSubjects, subjects}
		}
		o.stripes = append(o.stripes, n)
	}
	return nil
}

// isOther reports whether a message is for another target, which the stream stores under the same subject.
func (o *ordered) isOther(m *Ordered) bool {
	return o.opts.Due != "" && !strings.HasSuffix(o.opts.Due, ">") && m.Header.Get(wire.HeaderTarget) != o.opts.Due
}

// subjects are those of each stripe.
func (o *ordered) subjects(prefix wire.Prefix) [][]string {
	if o.opts.Due != "" {
		return [][]string{{prefix.Stored(prefix.Due(o.opts.Due))}}
	}
	kinds := []wire.Kind{wire.KindExpired}
	if o.opts.Warnings {
		kinds = append(kinds, wire.KindExpiring)
	}
	stripes := make([][]string, Stripes)
	if o.opts.Changes {
		kinds = append(kinds, wire.KindChanged)
		stripes[0] = append(stripes[0], prefix.Dropped(o.opts.Collection))
	}
	for bucket := range wire.Buckets {
		for _, kind := range kinds {
			stripes[bucket%Stripes] = append(stripes[bucket%Stripes], prefix.Bucket(kind, o.opts.Collection, bucket))
		}
	}
	return stripes
}

// overShare reports whether this process has more stripes than its share among so many others. It then
// counts one less.
func (o *ordered) overShare(others int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holding <= (len(o.stripes)+others)/(others+1) {
		return false
	}
	o.holding--
	return true
}

func (o *ordered) hold(more int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holding += more
}

// isDone reports, with Once, whether the stream's messages of the beginning are acknowledged on a stripe.
func (o *ordered) isDone(info *jetstream.ConsumerInfo) bool {
	return o.opts.Once && (info.NumPending == 0 || info.Delivered.Stream >= o.last) &&
		(info.NumAckPending == 0 || info.AckFloor.Stream >= o.last)
}

// failedWith ends everything because of the error of a handler.
func (o *ordered) failedWith(m *Ordered, err error) {
	o.fail(fmt.Errorf("message %d on %s: %w", m.Seq, m.Subject, err))
}
