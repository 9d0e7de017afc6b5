package work

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// follow hands messages to handlers until ctx is done or the reading fails. At the end it gives
// back what it has received and not begun.
func (w *worker) follow(ctx context.Context, consumer jetstream.Consumer) error {
	messages, err := consumer.Messages(
		jetstream.PullMaxMessages(w.opts.Concurrency),
		jetstream.PullExpiry(pullFor),
		jetstream.PullHeartbeat(heartbeat),
	)
	if err != nil {
		return w.explain(err)
	}
	received := make(chan jetstream.Msg)
	failed := make(chan error, 1)
	go func() { // Next may wait for a server that is away, so nobody waits for this goroutine
		defer close(received)
		for {
			msg, err := messages.Next()
			if err != nil {
				failed <- err
				return
			}
			received <- msg
		}
	}()
	defer func() {
		messages.Drain()
		given := make(chan struct{})
		go func() {
			defer close(given)
			for msg := range received {
				_ = msg.Nak() // another process gets it at once
			}
		}()
		select {
		case <-given:
		case <-time.After(giveBackFor):
		}
	}()
	for {
		select {
		case w.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		select {
		case msg, ok := <-received:
			if ok {
				w.begin(msg)
				continue
			}
			err = w.explain(<-failed)
		case <-ctx.Done():
			err = nil
		}
		<-w.slots
		return err
	}
}

const (
	// The server answers a request for messages within pullFor, and gives a sign of life
	// meanwhile.
	pullFor   = 10 * time.Second
	heartbeat = 2 * time.Second

	// giveBackFor limits the time to give back what was not begun. The library may be waiting
	// for a server that is away.
	giveBackFor = time.Second
)

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
		err := w.handle(j, meta)
		w.mu.Lock()
		delete(w.jobs, seq)
		last := j.msg
		w.mu.Unlock()
		w.end(last, meta, err)
	})
}

// handle calls the handler, and tells the server meanwhile that it is at work.
func (w *worker) handle(j *job, meta *jetstream.MsgMetadata) error {
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
	return w.opts.Handle(w.handlers, j.msg, meta)
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
	if result != nil {
		w.notice("event %d of consumer %s is not handled: %s", meta.Sequence.Stream, w.opts.Durable, result)
	}
	err := answer()
	if err != nil && w.l.IsLost() && w.l.AwaitConnection(w.handlers) == nil {
		err = answer()
	}
	if err != nil {
		w.notice("event %d of consumer %s will come again: it could not be acknowledged: %s", meta.Sequence.Stream, w.opts.Durable, err)
	}
}
