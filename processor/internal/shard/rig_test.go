package shard

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestMain lets make test try fewer random histories. The simulation, which runs beside it, has thousands.
func TestMain(m *testing.M) {
	if os.Getenv("LAPSE_QUICK") != "" {
		_ = flag.Set("rapid.checks", "30")
	}
	natstest.Main(m)
}

const prefix = wire.DefaultPrefix

// start is the log time at which tests begin. It is later than the stamps in the log, which an owner that
// takes over compares with the events.
const start = 4_000_000_000_000

var errFault = errors.New("a fault")

var decoder = fold.Decoder{Log: prefix.Log(0, 1), MaxBody: 1 << 20, MaxLevels: 100}

// rig is the owner of a shard between real servers. The test leads the owner step by step. It hands
// out the messages of the log itself, so it decides which log time each has, and what the clock of
// readers shows.
type rig struct {
	*Owner
	t        *testing.T
	js       jetstream.JetStream
	streams  *streams.Streams
	link     *streams.Link
	log      events.Source
	redis    redistest.Server
	objects  snapshot.Memory
	number   int             // of the shard
	sent     []*fold.Message // the log
	clock    int64           // of readers
	passed   []string        // calls of the store, and crash points
	failAt   int             // fail the call or the point after so many; never if negative
	fault    error           // with which it fails
	faults   int             // that have happened
	at       map[crash.Point]func()
	commits  []store.Progress
	logged   []string
	taking   chan error // has something once the snapshot is there, or has failed; nil if none was ordered
	mu       sync.Mutex
	replies  chan *nats.Msg            // outcomes, as they come
	outcomes map[string][]wire.Outcome // by the subject of the reply
}

// newRig starts the servers, and an owner that has not taken its shard over yet.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, js: natstest.Connect(t, natstest.Options{}), redis: redistest.StartMini(t), failAt: -1,
		fault: errFault,
		clock: math.MaxInt64, at: map[crash.Point]func(){}, replies: make(chan *nats.Msg, 1000),
		outcomes: map[string][]wire.Outcome{}}
	r.provision()
	var stop func()
	r.link, stop = streams.WatchLink(r.js.Conn())
	t.Cleanup(stop)
	if _, err := r.js.Conn().ChanSubscribe("_INBOX.outcome.>", r.replies); err != nil {
		t.Fatal(err)
	}
	r.restart()
	return r
}

func (r *rig) provision() {
	r.t.Helper()
	var err error
	r.streams, err = streams.Provision(r.t.Context(), r.js, streams.Options{Prefix: prefix, MaxPayload: 1 << 20,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.t.Fatal(err)
	}
}

// restart makes another owner, as another process would.
func (r *rig) restart() {
	r.t.Helper()
	nc, logger, names := r.js.Conn(), slog.New(lines{slog.DiscardHandler, r}), prefix.Log(0, 1)
	publisher, err := events.NewPublisher(nc, prefix, r.streams.Events.CachedInfo().Config)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(publisher.Close)
	board, queue := health.New(logger), NewQueue(1<<20)
	log := streams.NewLog(r.streams, r.link)
	r.log = events.NewSource(names, r.streams.Created())
	tail, ticker := publisher.NewTail(r.log), NewTicker(r.js, r.link, names.Tick(), queue, board)
	counter := func() prometheus.Counter { return prometheus.NewCounter(prometheus.CounterOpts{Name: "x"}) }
	hook := func(at crash.Point) error {
		return r.pass(string(at))
	}
	r.Owner = New(Parts{
		Shard: r.number, Shards: 1, Store: &faulty{store.New(r.redis.Client, prefix, 0, 1), r},
		Log: log, Link: r.link, Publisher: publisher, Tail: tail,
		Status: NewStatus(board), Queue: queue, Ticker: ticker, Pace: NewPace(nil),
		Reader: NewReader(Source{
			NATS: nc, Link: r.link, Log: log, Health: board, Decoder: decoder, Queue: queue, Ticker: ticker,
			Guard: NewClockGuard(time.Hour, Clocks{Own: time.Now}, board),
		}),
		Checkpoints: NewCheckpoints(log, r.number), Outcomes: NewOutcomes(nc, nil, nil),
		Desk: snapshot.NewDesk(snapshot.NewStore(&r.objects, log, r.number, log.ID(), nil)),
		Metrics: &Metrics{Emitted: counter(), Applied: counter(), Expired: counter(), Warned: counter(),
			Fenced: counter(), Rebuilds: counter(),
			Rejected: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{"code"}),
			Lateness: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"}),
			Commits:  prometheus.NewHistogram(prometheus.HistogramOpts{Name: "x"})},
		Limits: fold.Limits{Log: r.log, MaxBody: 1 << 20}, Bounds: DefaultBounds, Hook: hook, Logger: logger,
	})
}

// pass notes that the owner calls the store, or passes a point, and fails it if that is wanted.
func (r *rig) pass(what string) error {
	if do := r.at[crash.Point(what)]; do != nil {
		do()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.passed = append(r.passed, what)
	if r.failAt >= 0 && len(r.passed) > r.failAt {
		r.failAt = -1
		r.faults++
		return r.fault
	}
	return nil
}

// send publishes a message, and hands it out at a log time; see outcome.
func (r *rig) send(at int64, subject, body string) *fold.Message {
	r.t.Helper()
	ack, err := r.js.Publish(r.t.Context(), subject, []byte(body))
	if err != nil {
		r.t.Fatal(err)
	}
	reply := nats.Header{wire.HeaderReplyTo: {"_INBOX.outcome." + string(wire.Etag(ack.Sequence).String())}}
	m := decoder.Decode(subject, reply, []byte(body), fold.Position{Seq: ack.Sequence, Time: at})
	r.sent = append(r.sent, m)
	return m
}

func (r *rig) write(at int64, id, body string) *fold.Message {
	r.t.Helper()
	return r.send(at, prefix.Write(wire.Upsert, "c", id), body)
}

// passTime lets log time pass: a message comes that asks for nothing.
func (r *rig) passTime(at int64) {
	r.t.Helper()
	m := r.send(at, prefix.Config("nothing"), `{}`)
	m.Kind, m.ReplyTo, m.Rejected = fold.Malformed, "", nil
}

// idle lets the owner work until there is nothing to do.
func (r *rig) idle() {
	r.t.Helper()
	if err := r.try(); err != nil {
		r.t.Fatal(err)
	}
}

// try lets the owner work until there is nothing to do, or until it fails.
func (r *rig) try() error {
	r.t.Helper()
	for range 5000 {
		r.handOut()
		worked, err := r.runOnce(r.t.Context())
		if err != nil {
			return err
		}
		if r.handOut(); worked || len(r.pending) > 0 {
			continue
		}
		if r.taking == nil {
			return nil
		}
		select {
		case <-r.taking:
			r.taking = nil
		case <-time.After(time.Millisecond): // of the rest between two scans
		}
	}
	r.t.Fatalf("the owner does not come to an end; it has passed %q at last", r.passed[len(r.passed)-10:])
	return nil
}

// snapshot orders a snapshot, which the owner then takes when it works.
func (r *rig) snapshot() {
	taking, desk := make(chan error, 1), r.Desk
	r.taking = taking
	r.t.Cleanup(func() { r.abandon(errEnds) })
	go func() {
		_, err := desk.Take(context.Background(), time.Now())
		taking <- err
	}()
}

// generations are the snapshots that there are.
func (r *rig) generations() []*snapshot.Manifest {
	r.t.Helper()
	all, err := r.Desk.Store().Generations(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

// wipe empties Redis.
func (r *rig) wipe() {
	r.t.Helper()
	if err := r.redis.Client.FlushAll(context.Background()).Err(); err != nil {
		r.t.Fatal(err)
	}
	r.duties.heartbeat = time.Time{} // so that the owner notices
}

// truncate removes from the log what is before a sequence.
func (r *rig) truncate(first uint64) {
	r.t.Helper()
	if err := r.streams.Log.Purge(r.t.Context(), jetstream.WithPurgeSequence(first)); err != nil {
		r.t.Fatal(err)
	}
}

// state is what Redis holds of the shard.
func (r *rig) state() store.State {
	r.t.Helper()
	s, err := store.New(r.redis.Client, prefix, 0, 1).Load(context.Background())
	if err != nil && !errors.Is(err, store.ErrDamaged) {
		r.t.Error(err)
	}
	return s
}

// checkpoint stores the owner's checkpoint, as happens every second.
func (r *rig) checkpoint() {
	r.t.Helper()
	if err := NewCheckpointer(r.Checkpoints, r.announcer, nil, nil).RunOnce(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// handOut hands out what the reader of the log would have brought.
func (r *rig) handOut() {
	for _, m := range r.sent {
		r.Queue.put(m, r.Queue.rewinds)
	}
	r.pending, _ = r.Queue.Next(1<<30, 1<<30)
}

// statusOf is that of the outcome of a message, of which there has to be one; 0 if there is none.
func (r *rig) statusOf(m *fold.Message) int {
	r.t.Helper()
	if err := r.js.Conn().Flush(); err != nil {
		r.t.Fatal(err)
	}
	for len(r.replies) > 0 { // all that came before the answer to the flush
		m := <-r.replies
		var o wire.Outcome
		if err := json.Unmarshal(m.Data, &o); err != nil {
			r.t.Error(err)
		}
		of := strings.TrimPrefix(m.Subject, "_INBOX.outcome.")
		r.outcomes[of] = append(r.outcomes[of], o)
	}
	all := r.outcomes[wire.Etag(m.Seq).String()]
	if len(all) == 0 {
		return 0
	}
	if len(all) > 1 {
		r.t.Errorf("message %d has %d outcomes", m.Seq, len(all))
	}
	return all[0].Status
}

// expired are the ids of the events that the stream has, in its order.
func (r *rig) expired() []string {
	r.t.Helper()
	ids := []string{}
	info, err := r.streams.Events.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq > 0 && seq <= info.State.LastSeq; seq++ {
		m, err := r.streams.Events.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		if id := m.Header.Get("ce-subject"); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// documents are the ids of the documents of c that are stored.
func (r *rig) documents() []string {
	r.t.Helper()
	found, err := store.New(r.redis.Client, prefix, 0, 1).Copy(r.t.Context(), r.progress.Version, []string{"c"},
		store.CopyPlace{}, 1000, 1<<20)
	if err != nil {
		r.t.Fatal(err)
	}
	ids := []string{}
	for _, d := range found.Documents {
		ids = append(ids, d.ID)
	}
	return ids
}

// value is what a metric shows: its count.
func value(t *testing.T, metric any) (sum float64) {
	t.Helper()
	all := prometheus.NewRegistry()
	if err := all.Register(metric.(prometheus.Collector)); err != nil {
		t.Fatal(err)
	}
	families, err := all.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// calls is how often the owner has called or passed something since the test has cleared passed.
func (r *rig) calls(what string) (n int) {
	for _, one := range r.passed {
		if one == what {
			n++
		}
	}
	return n
}

// lines are what is logged.
type lines struct {
	slog.Handler
	r *rig
}

func (w lines) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelInfo }

func (w lines) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w lines) Handle(_ context.Context, record slog.Record) error {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.logged = append(w.r.logged, record.Message)
	return nil
}
