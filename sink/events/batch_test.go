package events

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/internal/puback"
	"github.com/seed18712806/lapse/sink/wire"
)

// Streams that accept batches. A publisher takes the second for one with replicas.
var (
	fastBatches   = jetstream.StreamConfig{AllowAtomicPublish: true, AllowBatchPublish: true}
	atomicBatches = jetstream.StreamConfig{AllowAtomicPublish: true}
)

// everyWay runs a test in both ways to publish.
func everyWay(t *testing.T, test func(t *testing.T, config jetstream.StreamConfig)) {
	t.Helper()
	t.Run("fast", func(t *testing.T) { test(t, fastBatches) })
	t.Run("atomic", func(t *testing.T) { test(t, atomicBatches) })
}

// rejections are n rejections of messages for one document, from a log sequence on.
func rejections(id string, from, n int) []Message {
	var all []Message
	for i := range n {
		all = append(all, rejection(id, uint64(from+i), `{"a":1}`))
	}
	return all
}

// answers counts the answers that the server sends to a publisher.
func (r *rig) answers(p *Publisher) *atomic.Int64 {
	r.t.Helper()
	var n atomic.Int64
	if _, err := r.nc.Subscribe(p.acks.inbox+">", func(*nats.Msg) { n.Add(1) }); err != nil {
		r.t.Fatal(err)
	}
	return &n
}

// storedOn are the log sequences of the rejections that are stored for a document.
func (r *rig) storedOn(id string) []string {
	r.t.Helper()
	sequences := []string{}
	for _, m := range r.stored() {
		if m.Header.Get(wire.HeaderSubject) == "lapse.write.create.orders."+id {
			sequences = append(sequences, m.Header.Get("Lapse-Seq"))
		}
	}
	return sequences
}

// sequences are n log sequences as text.
func sequences(from, n int) []string {
	all := []string{}
	for i := range n {
		all = append(all, strconv.Itoa(from+i))
	}
	return all
}

// fence publishes a fence. While a stream has no leader, it tries again.
func (r *rig) fence() Fence {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; _ = pause(r.t.Context(), 6, nil) {
		f, err := r.p.Fence(r.t.Context(), 0)
		if err == nil {
			return f
		}
		if time.Now().After(end) {
			r.t.Fatal(err)
		}
	}
}

// TestG9_MessagesOfOneSubjectShareAnAnswer: the stream stores many messages of one subject in
// their order, and the publisher waits for one answer to each batch.
//
// Goes red if a message waits for the one before it on its subject.
func TestG9_MessagesOfOneSubjectShareAnAnswer(t *testing.T) {
	const hot, others = 2500, 100
	for name, c := range map[string]struct {
		config  jetstream.StreamConfig
		answers int64 // at most
	}{
		"fast":   {fastBatches, 20},
		"atomic": {atomicBatches, (hot + others + maxBatch - 1) / maxBatch},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, natstest.Options{}, c.config)
			answers := r.answers(r.p)
			fence := r.fence()
			messages := rejections("hot", 1, hot)
			for i := range others {
				messages = append(messages, rejection(strconv.Itoa(i), uint64(hot+1+i), "{}"))
			}
			began := time.Now()
			if _, err := r.p.Publish(t.Context(), fence, messages); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d messages took %s", len(messages), time.Since(began))
			if err := r.nc.Flush(); err != nil {
				t.Fatal(err)
			}
			if n := answers.Load(); n > c.answers {
				t.Errorf("the publisher waited for %d answers, want %d at most", n, c.answers)
			}
			if diff := cmp.Diff(sequences(1, hot), r.storedOn("hot")); diff != "" {
				t.Error(diff)
			}
			if n := len(r.stored()); n != 1+hot+others {
				t.Errorf("%d messages are stored, want %d and a fence", n, hot+others)
			}
		})
	}
}

// TestG3_AFenceRefusesAnAtomicBatch: the stream refuses an atomic batch with a former fence as a
// whole, also if the server has all of it but the last message when it stores the new fence.
//
// Goes red if the batch does not carry the fence.
func TestG3_AFenceRefusesAnAtomicBatch(t *testing.T) {
	r := newRig(t, natstest.Options{}, atomicBatches)
	former, messages := r.fence(), rejections("hot", 1, 100)
	for i, m := range messages {
		joinBatch(m.msg, "held up", i+1, i == len(messages)-1)
		if i == 0 {
			former.guard(m.msg)
		}
		if i < len(messages)-1 {
			if err := r.nc.PublishMsg(m.msg); err != nil {
				t.Fatal(err)
			}
		}
	}
	current := r.fence()
	reply, err := r.nc.RequestMsg(messages[99].msg, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := puback.Read(reply); err != nil || answer.Error == nil ||
		answer.Error.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence {
		t.Errorf("the rest of the batch is answered by %s", reply.Data)
	}
	if n := len(r.storedOn("hot")); n != 0 {
		t.Errorf("%d messages are stored behind the former fence", n)
	}
	r.refusesBehind(former, current)
}

// TestG3_AFenceRefusesAFastBatch: the stream refuses the messages of a fast batch that arrive
// after a new fence.
//
// Goes red if only the first message of the batch carries the fence.
func TestG3_AFenceRefusesAFastBatch(t *testing.T) {
	r := newRig(t, natstest.Options{}, fastBatches)
	former, messages := r.fence(), rejections("hot", 1, 100)
	inbox := r.nc.NewInbox()
	for i, m := range messages {
		if i == 50 {
			r.fence()
		}
		former.guard(m.msg)
		m.msg.Reply = puback.FastReply(inbox, "held-up", reportEvery, i+1, puback.Add)
		if err := r.nc.PublishMsg(m.msg); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(sequences(1, 50), r.storedOn("hot")); diff != "" {
		t.Error(diff)
	}
	r.publishBehind(r.fence(), rejections("each", 2001, 100))
	for _, m := range r.stored() {
		if m.Header.Get(wire.HeaderSubject) == "lapse.write.create.orders.each" &&
			m.Header.Get(jetstream.ExpectedLastSubjSeqHeader) == "" {
			t.Fatalf("message %d names no fence", m.Sequence)
		}
	}
	r.refusesBehind(former, r.fence())
}

// refusesBehind checks that the stream refuses many messages of one subject with one fence,
// and stores them with another.
func (r *rig) refusesBehind(former, current Fence) {
	r.t.Helper()
	if _, err := r.p.Publish(r.t.Context(), former, rejections("other", 1001, 100)); !errors.Is(err, ErrFenced) {
		r.t.Errorf("behind the former fence: %v", err)
	}
	if n := len(r.storedOn("other")); n != 0 {
		r.t.Errorf("%d messages are stored behind the former fence", n)
	}
	r.publishBehind(current, rejections("other", 1001, 100))
}

func (r *rig) publishBehind(fence Fence, messages []Message) {
	r.t.Helper()
	if _, err := r.p.Publish(r.t.Context(), fence, messages); err != nil {
		r.t.Errorf("behind the fence: %v", err)
	}
}

// TestBatchesRefused: if the server accepts no batch at the moment, or none of that size, the
// messages are published in smaller batches, in atomic ones, or one after the other.
func TestBatchesRefused(t *testing.T) {
	stores := func(t *testing.T, r *rig) {
		t.Helper()
		r.publish(rejections("hot", 1, 100)...)
		if diff := cmp.Diff(sequences(1, 100), r.storedOn("hot")); diff != "" {
			t.Error(diff)
		}
	}
	t.Run("too large", func(t *testing.T) {
		stores(t, newRig(t, natstest.Options{JetStream: "limits { batch { max_msgs: 50 } }"}, atomicBatches))
	})
	t.Run("too many", func(t *testing.T) {
		everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
			r := newRig(t, natstest.Options{JetStream: "limits { batch { max_inflight_per_stream: 1 } }"}, config)
			somebodys := rejection("x", 5000, "{}")
			somebodys.msg.Reply = r.nc.NewInbox()
			if config.AllowBatchPublish {
				somebodys.msg.Reply = puback.FastReply(somebodys.msg.Reply, "somebodys", reportEvery, 1, puback.Add)
			} else {
				joinBatch(somebodys.msg, "somebodys", 1, false)
			}
			if err := r.nc.PublishMsg(somebodys.msg); err != nil {
				t.Fatal(err)
			}
			stores(t, r)
		})
	})
	t.Run("no longer allowed", func(t *testing.T) {
		r := newRig(t, natstest.Options{}, fastBatches)
		allow := func(atomic bool) {
			t.Helper()
			config := r.stream.CachedInfo().Config
			config.AllowAtomicPublish, config.AllowBatchPublish = atomic, false
			if _, err := r.js.UpdateStream(t.Context(), config); err != nil {
				t.Fatal(err)
			}
		}
		allow(true)
		stores(t, r)
		if r.p.takesFast.Load() {
			t.Error("the publisher would try a fast batch again")
		}
		allow(false)
		_, err := r.p.Publish(t.Context(), r.p.Unfenced(0), rejections("hot", 101, 10))
		if err == nil || !strings.Contains(err.Error(), "set allow_atomic") {
			t.Errorf("neither way is allowed: %v", err)
		}
		if diff := cmp.Diff(sequences(1, 100), r.storedOn("hot")); diff != "" {
			t.Error(diff)
		}
		r.publish(rejection("alone", 101, "{}"))
	})
	t.Run("unknown", func(t *testing.T) {
		// A server that does not know batches answers as if the message were a single one.
		everyWay(t, func(t *testing.T, config jetstream.StreamConfig) {
			r := newRig(t, natstest.Options{}, config)
			if err := r.js.DeleteStream(t.Context(), prefix.EventsStream()); err != nil {
				t.Fatal(err)
			}
			if _, err := r.nc.Subscribe("lapse.rejected.>", func(m *nats.Msg) {
				if m.Reply != "" {
					_ = m.Respond([]byte(`{"stream":"LAPSE_EVENTS","seq":1}`))
				}
			}); err != nil {
				t.Fatal(err)
			}
			_, err := r.p.Publish(t.Context(), r.p.Unfenced(0), rejections("hot", 1, 100))
			if !errors.Is(err, errNotBatch) || !strings.Contains(err.Error(), "use nats-server 2.14 or newer") {
				t.Errorf("error %v", err)
			}
		})
	})
}

// cutter dials connections that end after a number of bytes were written, once.
type cutter struct {
	mu   sync.Mutex
	left int // bytes; negative: no end
}

func (c *cutter) Dial(network, address string) (net.Conn, error) {
	conn, err := net.Dial(network, address)
	return &cutConn{conn, c}, err
}

// after sets the number of bytes to the next cut, and reports whether the last one happened.
func (c *cutter) after(bytes int) (cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut = c.left < 0
	c.left = bytes
	return cut
}

type cutConn struct {
	net.Conn
	cutter *cutter
}

func (c *cutConn) Write(b []byte) (int, error) {
	c.cutter.mu.Lock()
	defer c.cutter.mu.Unlock()
	if c.cutter.left < 0 || len(b) <= c.cutter.left {
		if c.cutter.left >= 0 {
			c.cutter.left -= len(b)
		}
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:c.cutter.left])
	c.cutter.left = -1
	_ = c.Conn.Close()
	return n, net.ErrClosed
}

// TestG3_ACutConnectionLeavesNoHole cuts the connection at many places of a publication: then
// the stream has stored the beginning, and the tail tells the rest, which is published once.
//
// Goes red if messages are sent together and are not a batch.
func TestG3_ACutConnectionLeavesNoHole(t *testing.T) { everyWay(t, cutConnection) }

func cutConnection(t *testing.T, config jetstream.StreamConfig) {
	url := natstest.Start(t, natstest.Options{})
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{}, 2)
	handler := func(*nats.Conn) { closed <- struct{}{} }
	nc.SetClosedHandler(handler)
	lost := make(chan struct{}, 1)
	cut := &cutter{left: -1}
	flaky, err := nats.Connect(url, natstest.Patient, nats.SetCustomDialer(cut), nats.MaxReconnects(-1),
		nats.ReconnectWait(time.Millisecond),
		nats.ClosedHandler(handler), nats.ErrorHandler(func(*nats.Conn, *nats.Subscription,
			error) {
		}), nats.DisconnectErrHandler(func(*nats.Conn, error) {
			select {
			case lost <- struct{}{}:
			default:
			}
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); flaky.Close(); <-closed; <-closed })
	js := natstest.JetStream(t, nc)
	stream, err := js.CreateStream(t.Context(), eventsConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	publisher := func(nc *nats.Conn) *Publisher {
		p, err := NewPublisher(nc, prefix, asReplicated(stream.CachedInfo().Config))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	broken := publisher(flaky)
	r := &rig{t, nc, js, stream, publisher(nc)}
	const many = 200 // of some 350 bytes each
	cuts := 0
	for i, bytes := 0, 1; bytes < 110_000; i, bytes = i+1, bytes+13_001 {
		id, from := strconv.Itoa(i), 1000*i+1
		select {
		case <-lost:
		default:
		}
		cut.after(bytes)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		done := make(chan error, 1)
		go func() {
			_, err := broken.Publish(ctx, Fence{}, rejections(id, from, many))
			done <- err
		}()
		select {
		case <-lost: // answers never come
			cancel()
			err = <-done
		case err = <-done:
			cancel()
		}
		if !cut.after(-1) && err != nil {
			t.Fatalf("cut after %d bytes: %v", bytes, err)
		} else if err != nil {
			cuts++
		}
		// After it has connected again, the client library sends what it kept, and then the
		// fence. A request for a fence may be lost with the connection.
		for fenced := false; !fenced; {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_, err := broken.Fence(ctx, i)
			cancel()
			if fenced = err == nil; !fenced && t.Context().Err() != nil {
				t.Fatal(err)
			}
		}
		got := r.storedOn(id)
		if diff := cmp.Diff(sequences(from, len(got)), got); diff != "" {
			t.Fatalf("cut after %d bytes, there is a hole:\n%s", bytes, diff)
		}
		rest := missing(r.tail(0), rejections(id, from, many))
		if len(got)+len(rest) != many {
			t.Fatalf("cut after %d bytes, %d are stored, and %d are to be published", bytes, len(got), len(rest))
		}
		if _, err := r.p.Publish(t.Context(), Fence{}, rejections(id, from+len(got), len(rest))); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(sequences(from, many), r.storedOn(id)); diff != "" {
			t.Fatalf("cut after %d bytes, and published the rest:\n%s", bytes, diff)
		}
	}
	if cuts < 5 {
		t.Errorf("the connection was cut %d times", cuts)
	}
}
