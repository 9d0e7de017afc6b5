package client

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

func TestPause(t *testing.T) {
	o := workOptions{First: time.Second, Most: time.Minute}
	for attempts, want := range map[uint64]time.Duration{1: time.Second, 2: 2 * time.Second, 6: 32 * time.Second,
		7: time.Minute, math.MaxUint64: time.Minute} {
		if got := o.Pause(attempts); got != want {
			t.Errorf("after %d attempts: %s, want %s", attempts, got, want)
		}
	}
}

// delivery is one delivery of message 7. Its acknowledgement waits until sent is closed.
type delivery struct {
	jetstream.Msg
	acking, sent chan struct{}
}

func (delivery) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: 7}}, nil
}

func (d delivery) Ack() error {
	close(d.acking)
	<-d.sent
	return nil
}

// TestBackWhileAcknowledged (W2): a message that comes back while its acknowledgement is on its
// way, as after a lost connection, is not handled a second time, and the delivery is acknowledged.
func TestBackWhileAcknowledged(t *testing.T) {
	handled := 0
	w := &worker{handlers: t.Context(), slots: make(chan struct{}, 2), jobs: make(map[uint64]*job), opts: workOptions{
		AckWait: time.Hour,
		Handle:  func(context.Context, jetstream.Msg, *jetstream.MsgMetadata) error { handled++; return nil },
	}}
	first := delivery{acking: make(chan struct{}), sent: make(chan struct{})}
	again := delivery{acking: make(chan struct{}), sent: make(chan struct{})}
	close(again.sent)
	w.slots <- struct{}{}
	w.begin(first)
	<-first.acking
	w.slots <- struct{}{}
	w.begin(again)
	close(first.sent)
	<-again.acking
	w.running.Wait()
	if handled != 1 || len(w.jobs) != 0 || len(w.slots) != 0 {
		t.Errorf("handled %d times, %d jobs and %d slots are left", handled, len(w.jobs), len(w.slots))
	}
}

// fetched is a consumer with some messages for a request.
type fetched struct {
	jetstream.Consumer
	batch fetchedBatch
}

// fetchedBatch is those messages.
type fetchedBatch chan jetstream.Msg

func (f fetched) Fetch(int, ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	return f.batch, nil
}
func (f fetchedBatch) Messages() <-chan jetstream.Msg { return f }
func (f fetchedBatch) Error() error                   { return nil }

// unbegun is a message that a worker gives back.
type unbegun struct {
	jetstream.Msg
	back *int
}

func (u unbegun) Nak() error { *u.back++; return nil }

// TestMessagesGoBack: of a request that gets messages when the worker ends, each goes back, so that another process
// gets it at once. None is begun.
func TestMessagesGoBack(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	const messages = 3
	batch, back, free := make(fetchedBatch, messages), 0, messages
	for range messages {
		batch <- unbegun{back: &back}
	}
	close(batch)
	if err := new(worker).request(ended, fetched{batch: batch}, &free); err != nil || back != messages || free != messages {
		t.Errorf("%d of %d messages went back, and %d slots are free: %v", back, messages, free, err)
	}
}
