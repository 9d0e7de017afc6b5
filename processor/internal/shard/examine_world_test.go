package shard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// questions are those that are asked over a connection to NATS. The connection is cut in place of one of them.
type questions struct {
	net.Dialer
	mu    sync.Mutex
	asked []string // subjects
	cut   int      // at which question, from 1; 0 if at none
}

type connection struct {
	net.Conn
	q *questions
}

func (q *questions) Dial(network, address string) (net.Conn, error) {
	c, err := q.Dialer.Dial(network, address)
	return &connection{c, q}, err
}

func (c *connection) Write(b []byte) (int, error) {
	if _, rest, is := bytes.Cut(b, []byte(" $JS.API.")); is && c.q.ask(rest) {
		_ = c.Close()
		return 0, errLost
	}
	return c.Conn.Write(b)
}

func (q *questions) ask(rest []byte) (cut bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	subject, _, _ := strings.Cut(string(rest), " ")
	q.asked = append(q.asked, subject)
	return len(q.asked) == q.cut
}

// from begins to count, and cuts the connection at a question.
func (q *questions) from(cut int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.asked, q.cut = nil, cut
}

// since are the questions since then.
func (q *questions) since() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.asked
}

// server is a NATS server that has the streams of many worlds, each under a prefix of its own.
type server struct {
	js        jetstream.JetStream
	link      *streams.Link
	questions *questions
	worlds    int
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{questions: &questions{}}
	nc, err := nats.Connect(natstest.Start(t, natstest.Options{}), natstest.Patient, nats.SetCustomDialer(s.questions),
		nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() { nc.Close(); <-closed })
	s.js = natstest.JetStream(t, nc)
	var stop func()
	s.link, stop = streams.WatchLink(nc)
	t.Cleanup(stop)
	return s
}

// world is what lapse finds in NATS and Redis. The log has messages, and of the first ones some were rejected:
// of messages 3, 5 and 8 the stream of events has the rejections, at its sequences 1, 2 and 3.
type world struct {
	t         *testing.T
	server    *server
	prefix    wire.Prefix
	streams   *streams.Streams
	publisher *events.Publisher
	outputs   events.Source // in the stream of events
	log       *streams.Log
	tail      *events.Tail
	ms        []int64 // when the log stored its messages, Unix milliseconds

	// What is remembered of the past. A test changes it.
	state      store.State
	damage     error
	checkpoint Checkpoint
	snapshots  []snapshot.Manifest // the newest first
	none       bool                // lapse takes no snapshots
	objects    objects
	limit      time.Duration
}

// objects are those of snapshots, one of which is damaged after it was stored.
type objects struct {
	snapshot.Memory
	damaged string // how its name ends; "" if none is
	stored  bool
	lost    func() error // in place of damage; nil if it is damage
}

func (o *objects) Get(ctx context.Context, name string) ([]byte, error) {
	b, err := o.Memory.Get(ctx, name)
	if !o.stored || o.damaged == "" || !strings.HasSuffix(name, o.damaged) {
		return b, err
	}
	if o.lost != nil {
		return nil, o.lost()
	}
	return b[1:], err
}

const messages = 10 // in the log

// rejected are the messages of the log whose rejections a world has.
var rejected = []uint64{3, 5, 8}

// placeOf is where the stream of events has the rejection of a message; or would have it, if it did.
func placeOf(at, seq uint64) events.Place {
	return events.Place{Seq: at, Key: events.Key{Kind: 'r', Seq: seq}}
}

func (s *server) newWorld(t *testing.T) *world {
	t.Helper()
	s.worlds++
	prefix := wire.Prefix(fmt.Sprint("w", s.worlds))
	made, err := streams.Provision(t.Context(), s.js, streams.Options{Prefix: prefix, MaxPayload: 1 << 20,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, server: s, prefix: prefix, streams: made, outputs: events.NewSource(prefix.Log(0, 1),
		made.Created()), log: streams.NewLog(made, s.link), limit: time.Minute, ms: []int64{0}}
	if w.publisher, err = events.NewPublisher(s.js.Conn(), prefix, made.Events.CachedInfo().Config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.publisher.Close)
	w.append(messages)
	for _, seq := range rejected {
		w.reject(seq, w.ms[seq])
	}
	w.state = store.State{Version: "v", Log: made.ID, Offset: 9, Watermark: w.ms[9], Stamp: w.stamp(9),
		Events: placeOf(3, 8).String()}
	w.checkpoint = Checkpoint{Seq: 5, Watermark: w.ms[5], Stamp: w.stamp(5).String(), From: placeOf(2, 5),
		Last: placeOf(2, 5)}
	return w
}

// append appends messages to the log.
func (w *world) append(n int) {
	w.t.Helper()
	for range n {
		ack, err := w.server.js.Publish(w.t.Context(), w.prefix.Write(wire.Upsert, "c", "a"), []byte("{}"))
		if err != nil {
			w.t.Fatal(err)
		}
		at, _, err := w.streams.Stamp(w.t.Context(), ack.Sequence)
		if err != nil {
			w.t.Fatal(err)
		}
		w.ms = append(w.ms, at/int64(time.Millisecond))
	}
}

// stamp is that of a message of the log.
func (w *world) stamp(seq uint64) store.Stamp {
	w.t.Helper()
	at, _, err := w.streams.Stamp(w.t.Context(), seq)
	if err != nil {
		w.t.Fatal(err)
	}
	return store.Stamp{Seq: seq, At: at}
}

// publish stores an output in the stream of events.
func (w *world) publish(m events.Message) {
	w.t.Helper()
	if _, err := w.publisher.Publish(w.t.Context(), w.publisher.Unfenced(0), []events.Message{m}); err != nil {
		w.t.Fatal(err)
	}
}

// reject publishes a rejection of a message of the log that was stored at an instant.
func (w *world) reject(seq uint64, ms int64) { w.publish(w.rejection(seq, ms)) }

func (w *world) rejection(seq uint64, ms int64) events.Message {
	return events.Rejected(w.outputs, events.Rejection{Subject: "x", Rest: "x", Seq: seq, Ts: ms, Code: 400,
		Error: "x"})
}

// expire publishes an event of a version that a message of the log has written, and that has expired at an instant.
func (w *world) expire(seq uint64, ms int64) {
	w.publish(events.Expired(w.outputs, wire.Event{ID: "a", Collection: "c", Document: []byte("{}"),
		Etag: wire.Etag(seq), ExpiredAt: wire.Time(ms)}, ""))
}

// truncate removes the messages of a stream before a sequence.
func (w *world) truncate(s jetstream.Stream, first uint64) {
	w.t.Helper()
	if err := s.Purge(w.t.Context(), jetstream.WithPurgeSequence(first)); err != nil {
		w.t.Fatal(err)
	}
}

// manifest adds a snapshot at an offset, an older one than those before. All outputs up to message 4 were
// published then.
func (w *world) manifest(offset uint64) *snapshot.Manifest {
	w.snapshots = append(w.snapshots, snapshot.Manifest{Offset: offset, Stamp: w.stamp(offset), Published: 4,
		PublishedTime: w.ms[4], From: placeOf(1, 3), Last: placeOf(2, 5)})
	return &w.snapshots[len(w.snapshots)-1]
}

// store stores what is remembered in NATS, and returns the examiner.
func (w *world) store() examiner {
	w.t.Helper()
	ctx := w.t.Context()
	checkpoints := NewCheckpoints(w.log, 0)
	if err := checkpoints.Replace(ctx, w.checkpoint); err != nil {
		w.t.Fatal(err)
	}
	var desk *snapshot.Desk
	if !w.none {
		snapshots := snapshot.NewStore(&w.objects, w.log, 0, w.log.ID(), nil)
		for i := len(w.snapshots) - 1; i >= 0; i-- {
			w.take(snapshots, w.snapshots[i])
		}
		desk = snapshot.NewDesk(snapshots)
	}
	w.objects.stored = true
	w.tail = w.publisher.NewTail(w.outputs)
	return examiner{&Parts{
		Log: w.log, Link: w.server.link, Publisher: w.publisher, Tail: w.tail, Limits: fold.Limits{Log: w.outputs},
		Bounds: Bounds{Examine: w.limit}, Checkpoints: checkpoints, Desk: desk,
	}}
}

func (w *world) take(to *snapshot.Store, m snapshot.Manifest) {
	w.t.Helper()
	desk, done := snapshot.NewDesk(to), make(chan error, 1)
	go func() {
		_, err := desk.Take(w.t.Context(), time.Now())
		done <- err
	}()
	for w.t.Context().Err() == nil {
		select {
		case err := <-done:
			if err != nil {
				w.t.Fatal(err)
			}
			return
		default:
			if writer := desk.Order(); writer != nil {
				writer.Add(snapshot.Entry{Kind: snapshot.Put, Collection: "c", ID: "a", Value: []byte("\x01")})
				writer.Finish(m)
			}
		}
	}
}

// examine does what an owner does with an examiner. gives is a person's decision to give lost outputs up.
func (w *world) examine(ctx context.Context, e examiner, gives bool) (v verdict, err error) {
	w.tail.Hold()
	f := w.facts()
	if v, err = e.Examine(ctx, f); err == nil && gives && v.Refusal != nil && v.Refusal.Kind == events.ErrLost {
		f.Given = v.Gone
		v, err = e.Examine(ctx, f)
	}
	return v, err
}

// facts are what an examiner has found in Redis.
func (w *world) facts() *facts {
	f := &facts{LogID: w.log.ID(), State: w.state, Damage: w.damage}
	f.Elsewhere = f.State.Version != "" && !w.log.Is(f.State.Log, f.State.Offset)
	return f
}
