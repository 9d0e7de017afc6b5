//go:build held

package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/integration/held"
)

// throughProxy makes a rig, and another publisher whose connection goes through a proxy.
func throughProxy(t *testing.T, config jetstream.StreamConfig) (*rig, *Publisher, *proxy.Proxy) {
	t.Helper()
	r := newRig(t, natstest.Options{}, config)
	through := proxy.New(t, strings.TrimPrefix(r.nc.ConnectedUrl(), "nats://"))
	p, err := NewPublisher(connect(t, through.Address()), prefix, asReplicated(r.stream.CachedInfo().Config))
	if err != nil {
		t.Fatal(err)
	}
	return r, p, through
}

// reconnect cuts the connection of a publisher, and waits until it is there again.
func reconnect(t *testing.T, p *Publisher, through *proxy.Proxy) {
	t.Helper()
	before := p.acks.line.Number()
	through.Cut()
	if err := poll.Met(time.Minute, "the publisher has connected again", func() bool {
		return p.acks.line.Number() > before && p.js.Conn().IsConnected()
	}); err != nil {
		t.Error(err)
	}
}

// rest checks that the stream has the first of some rejections of a document, and publishes the others as the next owner
// does. Then the stream has each once and in order.
func (r *rig) rest(id string, n int) (stored int) {
	r.t.Helper()
	fence := r.fence()
	got := r.storedOn(id)
	if diff := cmp.Diff(sequences(1, len(got)), got); diff != "" {
		r.t.Fatalf("there is a hole:\n%s", diff)
	}
	tail, all := r.tail(0), rejections(id, 1, n)
	if missing := missing(tail, all); len(missing) != n-len(got) {
		r.t.Fatalf("the tail lacks %d, and %d of %d are stored", len(missing), len(got), n)
	}
	r.publishBehind(fence, all[len(got):])
	if diff := cmp.Diff(sequences(1, n), r.storedOn(id)); diff != "" {
		r.t.Fatalf("after the next owner has published the rest:\n%s", diff)
	}
	return len(got)
}

// heldPublication is an operation that publishes so many messages.
type heldPublication struct {
	operation string
	config    jetstream.StreamConfig
	messages  int
}

// publications are the operations that publish, in a stream of a kind and with a number of messages with which they make
// more than one call.
var publications = []heldPublication{
	{"Publisher.alone", fastBatches, 1},
	{"Publisher.alone", atomicBatches, 1},
	{"Publisher.atomic", atomicBatches, 5},
	{"Publisher.inAtomicBatches", atomicBatches, maxBatch + 5},
	{"Publisher.inFastBatches", fastBatches, maxPending + 5},
}

// sending are the same, of the sending alone. On a connection that is lost while it sends, the tests cannot wait for
// the next one: there is none before it has ended (see Dialer of package dial).
var sending = []heldPublication{{"acks.send", fastBatches, 5}, {"acks.send", atomicBatches, 5}}

// TestHeldPublishAndAnotherFence: another process takes the shard over within a publication. What the publication sends
// behind the new fence is refused, and there is no hole (G3).
func TestHeldPublishAndAnotherFence(t *testing.T) {
	for _, one := range slices.Concat(publications, sending) {
		held.Each(t, "sink/events."+one.operation, held.Takeover, func(t *testing.T, during func(happen func())) {
			r := newRig(t, natstest.Options{}, one.config)
			other, err := NewPublisher(r.nc, prefix, asReplicated(r.stream.CachedInfo().Config))
			if err != nil {
				t.Fatal(err)
			}
			former, taken := r.fence(), uint64(0)
			during(func() {
				fence, err := other.Fence(t.Context(), 0)
				if err != nil {
					t.Error(err)
				}
				taken = fence.Place().Seq
			})
			_, err = r.p.Publish(t.Context(), former, rejections("a", 1, one.messages))
			if taken != 0 && !errors.Is(err, ErrFenced) || taken == 0 && err != nil {
				t.Errorf("with another fence at %d: %v", taken, err)
			}
			// The stream has the former fence, what was stored before the other one, and that.
			if stored := r.rest("a", one.messages); taken != 0 && taken != uint64(stored)+2 {
				t.Errorf("%d messages are stored, and the other fence is at %d", stored, taken)
			}
		})
	}
}

// TestHeldPublishOverAReconnection: the connection is lost and made again within a publication. A server that was away
// may have lost what it had stored before, so the publication is an error, whatever the stream has stored of it: the
// shard is taken over before its step is committed (G12). There is no hole, and the next owner publishes the rest (G3).
//
// It fails if Publish looks for a reconnection at its beginning alone.
func TestHeldPublishOverAReconnection(t *testing.T) {
	for _, one := range publications {
		held.Each(t, "sink/events."+one.operation, held.Reconnection, func(t *testing.T, during func(happen func())) {
			r, p, through := throughProxy(t, one.config)
			fence, err := p.Fence(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			lost := false
			during(func() { reconnect(t, p, through); lost = true })
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // an answer may never come
			defer cancel()
			if _, err := p.Publish(ctx, fence, rejections("a", 1, one.messages)); lost && err == nil {
				t.Error("the publication over a reconnection is no error")
			}
			r.rest("a", one.messages)
		})
	}
}

// TestHeldHoldsWhileOthersPublish: the stream has lost an output, and while an owner asks for it, others publish past its
// place. The stream does not hold it (G12). What its limits remove in between it holds.
//
// It fails if Holds takes an end that the stream has reached since it was asked for the message as a proof that the
// message was there.
func TestHeldHoldsWhileOthersPublish(t *testing.T) {
	for _, config := range []jetstream.StreamConfig{fastBatches, atomicBatches} {
		held.Each(t, "sink/events.Publisher.holds", held.Write, func(t *testing.T, during func(happen func())) {
			r := newRig(t, natstest.Options{}, config)
			end := r.publish(rejections("a", 1, 5)...)
			lost := Place{end.Seq + 2, Key{Kind: keyRejected, Seq: 7}}
			during(func() { r.publish(rejections("b", 101, 4)...) })
			if r.holds(lost) {
				t.Error("the stream holds what it has lost")
			}
		})
		held.Each(t, "sink/events.Publisher.holds", held.Restart, func(t *testing.T, during func(happen func())) {
			r := newRig(t, natstest.Options{}, config)
			at := r.publish(rejections("a", 1, 5)...)
			if err := r.stream.DeleteMsg(t.Context(), at.Seq); err != nil {
				t.Fatal(err)
			}
			during(func() {
				if err := r.stream.Purge(t.Context()); err != nil {
					t.Error(err)
				}
			})
			if !r.holds(at) {
				t.Error("what was removed counts as lost")
			}
		})
	}
}

// TestHeldHoldsOverALeader: another server becomes the leader of the stream between two questions for a message. What
// was stored is held, and what never was is not (G12).
func TestHeldHoldsOverALeader(t *testing.T) {
	r, _ := newCluster(t, jetstream.StreamConfig{Replicas: 3})
	fence := r.fence()
	held.Each(t, "sink/events.Publisher.holds", held.Takeover, func(t *testing.T, during func(happen func())) {
		end := fence.Place()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		during(r.stepDown)
		for ctx.Err() == nil {
			asking, cancel := context.WithTimeout(ctx, answerTimeout) // a leader that has gone does not answer
			holds, err := r.p.Holds(asking, testLog, Place{end.Seq + 1_000_000, end.Key})
			cancel()
			if err == nil && holds {
				t.Error("the stream holds what was never there")
			}
			if err == nil {
				break
			}
		}
		if !r.holds(end) {
			t.Error("the stream does not hold its fence")
		}
	})
}

// TestHeldReadWhileOthersPublish: the replica that answers lags, and what it lacked is stored between two questions. The
// tail has everything up to the end that was asked for (G3).
//
// It fails if read asks for the next message before it asks for the end of the stream.
func TestHeldReadWhileOthersPublish(t *testing.T) {
	for _, operation := range []string{"Publisher.read", "Publisher.readSome", "Tail.Cover"} {
		held.Each(t, "sink/events."+operation, held.Write, func(t *testing.T, during func(happen func())) {
			r := newRig(t, natstest.Options{}, atomicBatches)
			messages := rejections("a", 1, 60)
			r.publish(messages[:50]...)
			tail := r.p.NewTail(testLog)
			tail.Hold()
			r.cover(tail, 20, 40)
			published := make(chan struct{})
			during(func() { r.publish(messages[50:]...); close(published) })
			covered := make(chan error, 1)
			go func() { covered <- tail.Cover(t.Context(), 0, 60) }()
			select {
			case <-published:
			case <-time.After(time.Second): // in no gap: it waits for them
				r.publish(messages[50:]...)
			}
			if err := <-covered; err != nil {
				t.Fatal(err)
			}
			if keys := missing(tail, messages); len(keys) > 0 {
				t.Errorf("the tail lacks %v", keys)
			}
		})
	}
}

// TestHeldReadOverAReconnection: the connection is lost within an answer. The tail has everything all the same (G3).
func TestHeldReadOverAReconnection(t *testing.T) {
	for _, operation := range []string{"Publisher.readSome", "Tail.Cover"} {
		held.Each(t, "sink/events."+operation, held.Reconnection, func(t *testing.T, during func(happen func())) {
			r, p, through := throughProxy(t, atomicBatches)
			messages := rejections("a", 1, 50)
			r.publish(messages...)
			tail := p.NewTail(testLog)
			tail.Hold()
			r.cover(tail, 20, 40)
			during(func() { reconnect(t, p, through) })
			r.cover(tail, 0, 50)
			if keys := missing(tail, messages); len(keys) > 0 {
				t.Errorf("the tail lacks %v", keys)
			}
		})
	}
}

// TestHeldFollow: outputs are stored and the connection is lost while somebody follows a mirror. The tail has each
// output: a reading that has missed one ends, and the next one goes on behind what the tail has (G3).
//
// It fails if a message that is lost on the way is not missed.
func TestHeldFollow(t *testing.T) {
	for _, operation := range []string{"Tail.Follow", "Tail.fetch"} {
		held.Each(t, "sink/events."+operation, held.Reconnection, func(t *testing.T, during func(happen func())) {
			r, p, through := throughProxy(t, atomicBatches)
			var messages []Message
			publish := func(n int) {
				some := rejections(strconv.Itoa(len(messages)), len(messages)+1, n)
				messages = append(messages, some...)
				r.publish(some...)
			}
			publish(5)
			tail := p.NewTail(testLog)
			tail.Hold()
			happened := make(chan struct{})
			during(func() { publish(3); reconnect(t, p, through); publish(3); close(happened) })
			ctx, cancel := context.WithCancel(t.Context())
			var following sync.WaitGroup
			defer following.Wait()
			defer cancel()
			following.Go(func() {
				for ctx.Err() == nil {
					attempt, cancel := context.WithTimeout(ctx, 10*time.Second) // one that stands still ends
					_ = tail.Follow(attempt)
					cancel()
				}
			})
			select {
			case <-happened:
			case <-time.After(10 * time.Second): // in no gap
			}
			publish(2)
			r.until(fmt.Sprintf("the tail has %d outputs", len(messages)), func() bool {
				return len(missing(tail, messages)) == 0
			})
		})
	}
}

// TestHeldPassed: a reading asks the leader of the stream for what another server has passed over. Meanwhile the limits
// of the stream remove it, or lapse does: then it is gone, and nobody is told that a server cannot read its file, which
// would have a person restore a backup. What is still there is read.
//
// It fails if a message that was removed after the question what there is counts as one that cannot be read.
func TestHeldPassed(t *testing.T) {
	for name, remove := range map[string]func(*rig, uint64) error{
		"by the limits": func(r *rig, seq uint64) error {
			return r.stream.Purge(context.Background(), jetstream.WithPurgeSequence(seq+1))
		},
		"by lapse": func(r *rig, seq uint64) error { return r.stream.DeleteMsg(context.Background(), seq) },
	} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/events.Publisher.passed", held.Write, func(t *testing.T, during func(happen func())) {
				r := newRig(t, natstest.Options{}, atomicBatches)
				messages := rejections("a", 1, 6)
				r.publish(messages...)
				const removed = 4
				happened := false
				during(func() {
					if happened = true; remove(r, removed) != nil {
						t.Errorf("message %d cannot be removed", removed)
					}
				})
				var got []uint64
				if err := r.p.passed(t.Context(), 1, 6, func(_ *nats.Msg, seq uint64) { got = append(got, seq) }); err != nil {
					t.Errorf("it fails with %v", err)
				}
				for _, seq := range []uint64{2, 3, 4, 5} {
					gone := happened && (seq == removed || seq < removed && name == "by the limits")
					if !gone && !slices.Contains(got, seq) {
						t.Errorf("message %d is there, and the reading has %v", seq, got)
					}
				}
			})
		})
	}
}
