package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	stripeGroup = "stripe"
	// pinnedFor is after how long without a request the server gives a stripe to another process.
	pinnedFor = 5 * time.Second
	// stripeRequest is how long a request of a stripe waits for messages, and unsureRequest that of a stripe
	// that is not sure.
	stripeRequest, unsureRequest = time.Second, 50 * time.Millisecond
	// stripeBatch is how many messages a request is for.
	stripeBatch = 128
	// shareEvery is how often a process looks whether it has more than its share of the stripes.
	shareEvery = 5 * time.Second
)

// stripe is a durable consumer whose messages the server gives to one process at a time: it pins the process.
// That alone does not keep the order of a document's messages. After a process has died, the next one gets
// new messages before those that the dead one held, which come again only after AckWait. And a
// message can be lost on its way, and come again after later ones. So a stripe begins messages only while
// it is sure:
//
//   - It becomes sure when the server has as many messages without an acknowledgement as the stripe holds:
//     then the stripe holds all of them, if the server has each that the stripe holds.
//   - It has not if the process that was pinned before has acknowledged one meanwhile. So while that may go
//     on, a stripe becomes sure only with messages that no other process has had; then it gives
//     back what it has, and counts again.
//   - It is no longer sure when the server pins it anew, or if there is a gap in the numbers that the
//     consumer gives to its deliveries.
//
// A process may not know yet that another one is pinned: it was suspended, or the server was started again. So it
// neither calls a handler nor acknowledges unless the server has answered it within pinnedFor, on the connection
// on which it was pinned.
type stripe struct {
	*worker
	o        *ordered
	number   int
	consumer jetstream.Consumer

	// Only run uses these.
	pinnedAt time.Time
	settled  bool      // the process that was pinned before can have acknowledged nothing that is held
	pin      string    // under which the server hands messages to this process; "" for none
	delivery uint64    // number of the last delivery
	looked   time.Time // at the consumer
	shared   time.Time // when overShare was asked

	mu       sync.Mutex
	nth      uint64    // of the connection on which it was pinned
	heard    time.Time // when the last request began that the server has answered
	sure     bool
	doubt    bool                  // a handler has found that it may not acknowledge
	held     map[uint64]*Ordered   // what has come and is not acknowledged, by sequence
	acked    int                   // counts acknowledgements
	waiting  []*Ordered            // of held: what came while the stripe was not sure
	ready    map[string][]*Ordered // of held: what may begin, by document
	busy     map[string]bool       // documents that a handler is at
	all      context.Context       // that of all handlers of Ordered
	handlers context.Context
	stop     context.CancelFunc
	running  sync.WaitGroup
}

func newStripe(ctx context.Context, o *ordered, number int, w *worker) *stripe {
	n := &stripe{worker: w, o: o, number: number, all: ctx}
	n.reset()
	return n
}

// reset forgets all messages. No handler may run.
func (n *stripe) reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sure, n.doubt, n.waiting = false, false, nil
	n.held, n.ready, n.busy = make(map[uint64]*Ordered), make(map[string][]*Ordered), make(map[string]bool)
	n.handlers, n.stop = context.WithCancel(n.all)
}

// heldByOthers reports whether another process may have had a message that is held. The caller has the lock.
func (n *stripe) heldByOthers() bool {
	for _, m := range n.held {
		if m.again {
			return true
		}
	}
	return false
}

// giveBack ends the handlers, gives the messages back and forgets them.
func (n *stripe) giveBack() {
	n.stop()
	n.running.Wait()
	for _, m := range n.holds() {
		_ = m.msg.Nak() // without it they come again after AckWait
	}
	n.reset()
}

// drop gives the messages back, and does not count on being pinned.
func (n *stripe) drop() {
	n.giveBack()
	if n.pin != "" {
		n.pin = ""
		n.o.hold(-1)
	}
}

// holds lists what the stripe holds, in the order of the stream.
func (n *stripe) holds() []*Ordered {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*Ordered
	for _, m := range n.held {
		all = append(all, m)
	}
	slices.SortFunc(all, bySeq)
	return all
}

func bySeq(a, b *Ordered) int { return int(int64(a.Seq) - int64(b.Seq)) }

// run hands messages over until ctx is done, or with Once until the stripe is done.
func (n *stripe) run(ctx context.Context) error {
	renewing, stop := context.WithCancel(ctx)
	defer stop()
	go n.renew(renewing)
	defer n.drop()
	failing := false
	for ctx.Err() == nil {
		done, err := n.turn(ctx)
		if done || ctx.Err() != nil {
			return nil
		}
		if err != nil && !n.mayPass(err) {
			if n.l.NC.IsClosed() {
				return n.l.Lost()
			}
			return err
		}
		if (err != nil) != failing {
			failing = err != nil
			n.tellFailing(failing, err)
		}
		if err == nil {
			continue
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
		}
		if _, err := n.find(ctx); ctx.Err() == nil && (errors.Is(err, jetstream.ErrConsumerNotFound) || errors.Is(err,
			jetstream.ErrStreamNotFound)) {
			return n.lost()
		}
	}
	return nil
}

// tellFailing tells the user once that no messages come, whatever the number of stripes.
func (n *stripe) tellFailing(failing bool, err error) {
	switch {
	case !failing:
		n.o.failed.Add(-1)
	case n.o.failed.Add(1) == 1:
		n.notice("the events of consumer %s do not come (%s): trying again", n.o.opts.Durable, err)
	}
}

// turn requests messages, and looks at the consumer if there is a reason. done means that Once is fulfilled.
func (n *stripe) turn(ctx context.Context) (done bool, err error) {
	n.mu.Lock()
	sure, doubt := n.sure, n.doubt
	n.mu.Unlock()
	if doubt {
		n.drop()
	}
	batch, wait := stripeBatch, stripeRequest
	if n.o.opts.Once {
		wait /= 4
	}
	if !sure {
		batch = 1 // and then it may become sure
	}
	if !sure && n.pin != "" {
		wait = unsureRequest
	}
	began := time.Now()
	messages, err := n.consumer.Fetch(batch, jetstream.FetchMaxWait(wait), jetstream.FetchPriorityGroup(stripeGroup))
	if err != nil {
		return false, n.explain(err)
	}
	for msg := range messages.Messages() {
		n.receive(msg, began)
	}
	switch err := messages.Error(); {
	case errors.Is(err, jetstream.ErrPinIDMismatch):
		n.drop()
	case err != nil:
		return false, n.explain(err)
	case time.Since(began) < wait+time.Second/2: // the library waits for an answer until wait+1s
		n.mu.Lock()
		n.heard = began
		n.mu.Unlock()
	}
	n.mu.Lock()
	unsure := n.pin != "" && !n.sure
	n.mu.Unlock()
	if unsure || n.o.opts.Once || n.pin != "" && time.Since(n.looked) > shareEvery {
		return n.look(ctx)
	}
	return false, nil
}

// receive takes a delivery.
func (n *stripe) receive(msg jetstream.Msg, began time.Time) {
	meta, err := msg.Metadata()
	if err != nil {
		return // not a message of a stream
	}
	if pin := msg.Headers().Get("Nats-Pin-Id"); pin != n.pin {
		n.drop()
		n.pin, n.delivery, n.pinnedAt, n.settled, n.shared = pin, 0, time.Now(), false, time.Now()
		n.o.hold(1)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.delivery == 0 {
		n.nth = n.l.NC.Stats().Reconnects
	}
	n.heard = began
	if meta.Sequence.Consumer != n.delivery+1 {
		n.sure = false
	}
	n.delivery = meta.Sequence.Consumer
	again := meta.NumDelivered > 1
	if m := n.held[meta.Sequence.Stream]; m != nil {
		m.msg, m.again = msg, m.again || again
		return
	}
	header := msg.Headers()
	header.Del("Nats-Pin-Id")
	m := &Ordered{
		Subject: msg.Subject(), Header: header, Data: msg.Data(), Seq: meta.Sequence.Stream, Stripe: n.number,
		Behind: meta.NumPending, of: n, msg: msg, again: again,
	}
	n.held[m.Seq] = m
	n.waiting = append(n.waiting, m)
	if n.sure {
		n.begin()
	}
}

// look looks whether the stripe is sure, whether it is done, and whether this process has too many stripes.
func (n *stripe) look(ctx context.Context) (done bool, err error) {
	n.mu.Lock()
	acked := n.acked
	n.mu.Unlock()
	within, cancel := n.l.Within(ctx, consumerAPI)
	defer cancel()
	info, err := n.consumer.Info(within)
	if err != nil {
		return false, n.explain(err)
	}
	n.looked = time.Now()
	n.mu.Lock()
	if n.pin != "" && !n.sure && acked == n.acked && info.NumAckPending == len(n.held) &&
		info.Delivered.Consumer == n.delivery {
		if !n.settled && !n.heldByOthers() {
			n.settled = true
		}
		if n.sure = n.settled; n.sure {
			n.begin()
		}
	}
	unsettled := n.pin != "" && !n.settled && time.Since(n.pinnedAt) > pinnedFor
	n.mu.Unlock()
	if unsettled {
		n.giveBack()
		n.settled = true
	}
	if n.pin != "" && time.Since(n.shared) > shareEvery {
		n.shared = time.Now()
		if n.o.overShare(info.NumWaiting) { // this stripe has no request at the moment
			return false, n.giveUp(ctx)
		}
	}
	return n.o.isDone(info), nil
}

// giveUp lets another process have the stripe.
func (n *stripe) giveUp(ctx context.Context) error {
	n.pin = "" // overShare has counted it
	n.drop()
	select {
	case <-time.After(pinnedFor + time.Second):
	case <-ctx.Done():
		return nil
	}
	consumer, err := n.find(ctx)
	if err == nil {
		n.consumer = consumer // it knows no pin; the server refuses that of the former one
	}
	return err
}

// begin begins what waits, in the order of the stream. The caller has the lock.
func (n *stripe) begin() {
	slices.SortFunc(n.waiting, bySeq)
	for _, m := range n.waiting {
		document := n.o.queue(m)
		n.ready[document] = append(n.ready[document], m)
		if !n.busy[document] {
			n.busy[document] = true
			n.running.Go(func() { n.work(n.handlers, document) })
		}
	}
	n.waiting = nil
}

// work hands over the messages about a document, one after the other.
func (n *stripe) work(ctx context.Context, document string) {
	for {
		n.mu.Lock()
		ready := n.ready[document]
		if len(ready) == 0 || !n.mayGoOn() || ctx.Err() != nil {
			n.mu.Unlock()
			return
		}
		m := ready[0]
		n.mu.Unlock()
		if n.o.isOther(m) {
			// nothing to do but to acknowledge it
		} else if err := n.o.handle(ctx, m); err != nil {
			if ctx.Err() == nil {
				n.o.failedWith(m, err)
			}
			return
		}
		if !n.finish(document, m) {
			return
		}
	}
}

// finish acknowledges a message. It reports whether the document has another one.
func (n *stripe) finish(document string, m *Ordered) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.mayGoOn() || m.msg.Ack() != nil {
		n.doubt = true
		return false
	}
	n.acked++
	delete(n.held, m.Seq)
	if n.ready[document] = n.ready[document][1:]; len(n.ready[document]) > 0 {
		return true
	}
	delete(n.ready, document)
	delete(n.busy, document)
	return false
}

// mayGoOn reports whether no other process can be pinned, and remembers if one can. The caller has the lock.
func (n *stripe) mayGoOn() bool {
	if time.Since(n.heard) >= pinnedFor || n.l.NC.Stats().Reconnects != n.nth {
		n.doubt = true
	}
	return !n.doubt
}

// renew tells the server that the messages are still at work here.
func (n *stripe) renew(ctx context.Context) {
	tick := time.NewTicker(n.opts.AckWait / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		n.mu.Lock()
		if len(n.held) > 0 && n.mayGoOn() {
			for _, m := range n.held {
				_ = m.msg.InProgress() // without a connection the message comes again
			}
		}
		n.mu.Unlock()
	}
}
