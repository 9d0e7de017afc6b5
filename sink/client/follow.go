package client

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

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
		w.notice("event %d of consumer %s will come again: it could not be acknowledged: %s", meta.Sequence.Stream, w.opts.Durable, err)
	}
}
