package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// again is the time between two attempts to go on after a failure.
const again = time.Second

// workOptions are what to consume and how.
type workOptions struct {
	Durable     string
	Subjects    []string
	For         map[string]string // metadata of the consumer, which says what it is for beside the subjects
	Since       *time.Time        // where a consumer begins that does not exist yet; with what is new if nil
	Concurrency int               // handlers at a time
	AckWait     time.Duration
	First, Most time.Duration             // of the pause before a message comes back after an error
	Grace       time.Duration             // for handlers, once the context of Run is done
	MaxPending  int                       // messages without an acknowledgement, in all processes; maxPending if 0
	Pinned      bool                      // the server gives messages to one process at a time: see stripe
	Start       *jetstream.ConsumerConfig // where a consumer begins that does not exist yet, in place of Since
	// Handle handles a message; attempt is how often it has come, from 1.
	Handle func(ctx context.Context, msg jetstream.Msg, meta *jetstream.MsgMetadata) error
	// Discarded tells whether an error ends the message, although it is not handled.
	Discarded func(error) bool
}

// Pause is the pause before a message comes back after so many attempts.
func (o workOptions) Pause(attempts uint64) time.Duration {
	pause := o.First
	for ; attempts > 1 && pause < o.Most; attempts-- {
		pause *= 2
	}
	return min(pause, o.Most)
}

// worker is a Run under way.
type worker struct {
	l        *connection
	opts     workOptions
	handlers context.Context // of the handlers: done after the grace
	slots    chan struct{}   // has one element for each handler that runs
	running  sync.WaitGroup

	mu   sync.Mutex
	jobs map[uint64]*job // by sequence in the stream
}

// job is a message that a handler has.
type job struct{ msg jetstream.Msg } // its newest delivery, which is the one to acknowledge

// runWork hands the messages of the stream of events to a handler, by a durable consumer
// that several processes share. It guarantees:
//
//   - W1: A message is acknowledged only after its handler has returned nil, or has discarded
//     it. Until then it comes back.
//   - W2: While a handler runs in this process, the message goes to no other, as long as there
//     is a connection. If it comes back because there was none for too long, this process does
//     not begin it a second time. It receives only messages that it can begin at once.
//   - W3: runWork returns only when all handlers have returned, and has given back what it had
//     received and not begun.
func runWork(ctx context.Context, l *connection, opts workOptions) error {
	handlers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	w := &worker{l: l, opts: opts, handlers: handlers, slots: make(chan struct{}, opts.Concurrency),
		jobs: make(map[uint64]*job)}
	consumer, err := w.open(ctx)
	for err == nil {
		err = w.follow(ctx, consumer)
		if ctx.Err() != nil {
			break
		}
		for w.mayPass(err) {
			w.notice("the events of consumer %s do not come (%s): trying again", opts.Durable, err)
			select {
			case <-time.After(again):
				consumer, err = w.find(ctx)
				if errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
					err = w.lost()
				}
				continue
			case <-ctx.Done():
			}
			break
		}
		if ctx.Err() != nil {
			break
		}
	}
	grace := time.AfterFunc(opts.Grace, stop)
	defer grace.Stop()
	w.running.Wait()
	if ctx.Err() != nil {
		flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.Timeout)
		defer cancel()
		_ = l.NC.FlushWithContext(flushing) // the acknowledgements
		return nil
	}
	if l.NC.IsClosed() {
		return l.Lost()
	}
	return err
}

// mayPass reports whether a failure may be over soon.
func (w *worker) mayPass(err error) bool {
	return err != nil && !errors.Is(err, ErrConsumerLost) && !errors.Is(err, ErrDenied) && !w.l.NC.IsClosed()
}

func (w *worker) lost() error {
	return fmt.Errorf("%w: somebody has deleted the consumer %s or the stream %s, and with it the position in the "+
		"events: to begin a new one, start again", ErrConsumerLost, w.opts.Durable, w.stream())
}

func (w *worker) stream() string { return w.l.Prefix.EventsStream() }

func (w *worker) notice(format string, args ...any) {
	if w.l.Notice != nil {
		w.l.Notice(fmt.Sprintf(format, args...))
	}
}

// find looks the consumer up.
func (w *worker) find(ctx context.Context) (jetstream.Consumer, error) {
	within, cancel := w.l.Within(ctx, consumerAPI)
	defer cancel()
	consumer, err := w.l.JS.Consumer(within, w.stream(), w.opts.Durable)
	if denied := denial(within); denied != nil {
		return nil, denied
	}
	return consumer, err
}

// open looks the consumer up, or creates it.
func (w *worker) open(ctx context.Context) (jetstream.Consumer, error) {
	consumer, err := w.find(ctx)
	switch {
	case err == nil:
		return w.check(ctx, consumer)
	case errors.Is(err, ErrDenied):
		return nil, err
	case !errors.Is(err, jetstream.ErrConsumerNotFound):
		return nil, w.l.StreamError("look up the consumer "+w.opts.Durable, w.opts.Subjects[0], err)
	}
	config := jetstream.ConsumerConfig{
		Durable:        w.opts.Durable,
		FilterSubjects: w.opts.Subjects,
		Metadata:       w.opts.For,
		AckPolicy:      jetstream.AckExplicitPolicy,
		AckWait:        w.opts.AckWait,
		MaxAckPending:  cmp.Or(w.opts.MaxPending, maxPending),
		DeliverPolicy:  jetstream.DeliverNewPolicy,
	}
	if w.opts.Pinned {
		config.PriorityPolicy, config.PinnedTTL = jetstream.PriorityPolicyPinned, pinnedFor
		config.PriorityGroups = []string{stripeGroup}
	}
	switch since, start := w.opts.Since, w.opts.Start; {
	case start != nil:
		config.DeliverPolicy = start.DeliverPolicy
		config.OptStartSeq, config.OptStartTime = start.OptStartSeq, start.OptStartTime
	case since == nil:
	case since.Before(time.Unix(0, 0)): // the server cannot take times before 1678
		config.DeliverPolicy = jetstream.DeliverAllPolicy
	default:
		config.DeliverPolicy, config.OptStartTime = jetstream.DeliverByStartTimePolicy, since
	}
	within, cancel := w.l.Within(ctx, consumerAPI)
	defer cancel()
	consumer, err = w.l.JS.CreateConsumer(within, w.stream(), config)
	switch {
	case err == nil:
		return consumer, nil
	case denial(within) != nil:
		return nil, denial(within)
	case errors.Is(err, jetstream.ErrConsumerExists): // another process has just created it
		if consumer, err = w.find(ctx); err == nil {
			return w.check(ctx, consumer)
		}
	}
	return nil, w.l.StreamError("create the consumer "+w.opts.Durable, w.opts.Subjects[0], err)
}

// maxPending is how many messages may be without an acknowledgement, in all processes. Those
// that wait to come back count too.
const maxPending = 10_000

// check refuses a consumer of other messages, and changes its wait for acknowledgements.
func (w *worker) check(ctx context.Context, consumer jetstream.Consumer) (jetstream.Consumer, error) {
	config := consumer.CachedInfo().Config
	have := config.FilterSubjects
	if config.FilterSubject != "" {
		have = []string{config.FilterSubject}
	}
	if !slices.Equal(slices.Sorted(slices.Values(have)), slices.Sorted(slices.Values(w.opts.Subjects))) ||
		config.AckPolicy != jetstream.AckExplicitPolicy {
		return nil, &OtherConsumerError{w.opts.Durable, have, w.opts.Subjects}
	}
	for key, want := range w.opts.For {
		if have := config.Metadata[key]; have != want {
			return nil, &OtherConsumerError{w.opts.Durable, []string{key + " " + have}, []string{key + " " + want}}
		}
	}
	if config.AckWait == w.opts.AckWait {
		return consumer, nil
	}
	config.AckWait = w.opts.AckWait
	within, cancel := w.l.Within(ctx, consumerAPI)
	defer cancel()
	consumer, err := w.l.JS.UpdateConsumer(within, w.stream(), config)
	if err != nil {
		return nil, cmp.Or(denial(within), w.l.StreamError("change the consumer "+w.opts.Durable, w.opts.Subjects[0], err))
	}
	return consumer, nil
}

// OtherConsumerError is a consumer of the same name that is for other messages.
type OtherConsumerError struct {
	Durable    string
	Have, Want []string
}

func (e *OtherConsumerError) Error() string {
	return fmt.Sprintf("the consumer %s exists, and is for %v instead of %v: use another name", e.Durable, e.Have, e.Want)
}

// requestFor is how long a request waits for messages. A Run ends that much later.
const requestFor = 500 * time.Millisecond

// follow hands messages to handlers until ctx is done or the reading fails. It requests no more
// messages than it can hand to handlers at once: the server waits for an acknowledgement from
// when it has sent a message. So it also waits for the end of a request.
func (w *worker) follow(ctx context.Context, consumer jetstream.Consumer) error {
	for ctx.Err() == nil {
		free := w.take(ctx)
		if free == 0 {
			return nil
		}
		err := w.request(ctx, consumer, &free)
		for range free {
			<-w.slots
		}
		if err != nil {
			return w.explain(err)
		}
	}
	return nil
}

// take takes all free slots, and waits for the first.
func (w *worker) take(ctx context.Context) (free int) {
	select {
	case w.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for free = 1; free < cap(w.slots); free++ {
		select {
		case w.slots <- struct{}{}:
		default:
			return free
		}
	}
	return free
}

// request requests a message for each free slot, and begins those that come. Those that come
// when ctx is done go back, and another process gets them at once.
func (w *worker) request(ctx context.Context, consumer jetstream.Consumer, free *int) error {
	batch, err := consumer.Fetch(*free, jetstream.FetchMaxWait(requestFor))
	if err != nil {
		return err
	}
	for msg := range batch.Messages() {
		if ctx.Err() != nil {
			_ = msg.Nak()
			continue
		}
		*free--
		w.begin(msg)
	}
	return batch.Error()
}

// explain tells a consumer that is gone from other failures.
func (w *worker) explain(err error) error {
	if errors.Is(err, jetstream.ErrConsumerDeleted) || errors.Is(err, jetstream.ErrConsumerNotFound) {
		return w.lost()
	}
	return err
}

// begin hands a message to a handler, in the slot that the caller has taken.
func (w *worker) begin(msg jetstream.Msg) {
	meta, err := msg.Metadata()
	if err != nil {
		<-w.slots
		return // not a message of a stream
	}
	seq := meta.Sequence.Stream
	w.mu.Lock()
	defer w.mu.Unlock()
	if j := w.jobs[seq]; j != nil {
		j.msg = msg
		<-w.slots
		return
	}
	j := &job{msg}
	w.jobs[seq] = j
	w.running.Go(func() {
		defer func() { <-w.slots }()
		err := w.handle(j, msg, meta)
		if err != nil {
			w.notice("event %d of consumer %s is not handled: %s", seq, w.opts.Durable, err)
		}
		for last := w.newest(seq, nil); last != nil; last = w.newest(seq, last) {
			w.end(last, meta, err)
		}
	})
}

// newest is the newest delivery of a message whose handler has returned. If that one is
// answered, newest returns nil, and the next delivery begins the message anew.
func (w *worker) newest(seq uint64, answered jetstream.Msg) jetstream.Msg {
	w.mu.Lock()
	defer w.mu.Unlock()
	msg := w.jobs[seq].msg
	if msg == answered {
		delete(w.jobs, seq)
		return nil
	}
	return msg
}

// handle calls the handler, and tells the server meanwhile that it is at work.
func (w *worker) handle(j *job, msg jetstream.Msg, meta *jetstream.MsgMetadata) error {
	done := make(chan struct{})
	defer close(done)
	go func() {
		tick := time.NewTicker(w.opts.AckWait / 3)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				w.mu.Lock()
				msg := j.msg
				w.mu.Unlock()
				_ = msg.InProgress() // without a connection the message may come back
			}
		}
	}()
	return w.opts.Handle(w.handlers, msg, meta)
}

// end tells the server what became of a message.
func (w *worker) end(msg jetstream.Msg, meta *jetstream.MsgMetadata, result error) {
	answer := func() error {
		switch {
		case result == nil:
			return msg.Ack()
		case w.opts.Discarded(result):
			return msg.TermWithReason(result.Error())
		}
		return msg.NakWithDelay(w.opts.Pause(meta.NumDelivered))
	}
	err := answer()
	if err != nil && w.l.IsLost() && w.l.AwaitConnection(w.handlers) == nil {
		err = answer()
	}
	if err != nil {
		w.notice("event %d of consumer %s will come again: it could not be acknowledged: %s", meta.Sequence.Stream,
			w.opts.Durable, err)
	}
}
