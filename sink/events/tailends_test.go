package events

import (
	"context"
	"errors"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// TestForget: a tail gives up what it has up to a sequence, its end too, and keeps what is behind. It does not forget
// what it does not have.
func TestForget(t *testing.T) {
	r := newRig(t, natstest.Options{}, atomicBatches)
	messages := rejections("a", 1, 4)
	r.publish(messages...)
	for upTo, want := range map[uint64]int{0: 4, 1: 3, 3: 1, 4: 0, 5: 4} {
		tail := r.tail(0)
		tail.Forget(upTo)
		for i, m := range messages {
			if _, found := tail.Find(m); found != (i >= len(messages)-want) {
				t.Errorf("after it forgets up to %d, the tail has message %d: %t", upTo, i+1, found)
			}
		}
		if named := tail.Named(0, 0); len(named) != want {
			t.Errorf("after it forgets up to %d, the tail names %+v", upTo, named)
		}
		tail.Forget(1)
		if named := tail.Named(0, 0); len(named) != min(want, 3) {
			t.Errorf("after it forgets up to %d and 1, the tail names %+v", upTo, named)
		}
		tail.Release()
	}
}

// TestFetch: a fetch adds what comes, and is no error if nothing comes. It is one if a message was lost on the way, or
// once the caller stops.
func TestFetch(t *testing.T) {
	r := newRig(t, natstest.Options{}, atomicBatches)
	messages := rejections("a", 1, 3)
	r.publish(messages...)
	consumer, err := r.stream.CreateConsumer(t.Context(), jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy})
	if err != nil {
		t.Fatal(err)
	}
	tail, delivered := r.tail(3), uint64(0)
	defer tail.Release()
	if err := tail.fetch(t.Context(), consumer, &delivered); err != nil || delivered != 3 || len(missing(tail, messages)) > 0 {
		t.Errorf("%d are delivered (%v), and the tail lacks %v", delivered, err, missing(tail, messages))
	}
	if err := tail.fetch(t.Context(), consumer, &delivered); err != nil || delivered != 3 {
		t.Errorf("nothing comes: %d are delivered, %v", delivered, err)
	}
	r.publish(rejections("a", 4, 1)...)
	other := uint64(2)
	if err := tail.fetch(t.Context(), consumer, &other); !errors.Is(err, errMissed) {
		t.Errorf("a message was lost: %v, want errMissed", err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := tail.fetch(stopped, consumer, &delivered); err == nil {
		t.Error("the caller has stopped, and there is no error")
	}
}

// ended is a consumer whose fetches bring nothing and end with an error.
type ended struct {
	jetstream.Consumer
	err error
}

func (e ended) Fetch(int, ...jetstream.FetchOpt) (jetstream.MessageBatch, error) {
	return endedBatch{err: e.err}, nil
}

// endedBatch is what such a fetch returns.
type endedBatch struct {
	jetstream.MessageBatch
	err error
}

func (b endedBatch) Error() error { return b.err }
func (b endedBatch) Messages() <-chan jetstream.Msg {
	none := make(chan jetstream.Msg)
	close(none)
	return none
}

// TestFetchEnds: that the time of a fetch is over is no error unless the caller has stopped; every other end is one.
func TestFetchEnds(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, c := range []struct {
		ctx       context.Context
		err, want error
	}{{t.Context(), nil, nil}, {t.Context(), context.DeadlineExceeded, nil},
		{stopped, context.DeadlineExceeded, context.DeadlineExceeded},
		{t.Context(), jetstream.ErrNoHeartbeat, jetstream.ErrNoHeartbeat}} {
		if err := new(Tail).fetch(c.ctx, ended{err: c.err}, new(uint64)); !errors.Is(err, c.want) {
			t.Errorf("a fetch that ends with %v: %v, want %v", c.err, err, c.want)
		}
	}
}
