package processor

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestMain lets more tests run at a time than there are cores: they wait for TTLs
// of a second, most of the time.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(map[bool]string{false: "16", true: "8"}[raceEnabled])
	}
	natstest.Main(m,
		// It waits for the answer of a source that has ended, and touches nothing after it.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*stream).trySetupSourceConsumer.func3"),
		// A timer of nats-server that fires once and touches nothing outlives it.
		goleak.IgnoreAnyFunction("github.com/nats-io/nats-server/v2/server.(*fileStore).enforceMsgLimit"),
	)
}

const prefix = wire.DefaultPrefix

// backend is a server that takes lapse's keys.
type backend struct {
	name  string
	start func(t *testing.T) dialer
}

// dialer connects to a server.
type dialer func(ctx context.Context) (net.Conn, error)

// backends are the two servers that have to behave alike.
var backends = []backend{{"embedded", startEmbedded}, {"redis", startRedis}}

// withMiniredis are the backends, and miniredis, which programs use in their own tests. It returns
// a whole hash from HSCAN, whatever the count.
var withMiniredis = append(slices.Clip(backends),
	backend{"miniredis", func(t *testing.T) dialer { return dialerTo(redistest.StartMiniredis(t)) }})

// onBoth runs a test on both backends.
func onBoth(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			test(t, newRigOn(t, b, Options{}))
		})
	}
}

func startEmbedded(t *testing.T) dialer { return dialerTo(redistest.StartMini(t)) }

func startRedis(t *testing.T) dialer { return dialerTo(redistest.Start(t)) }

// dialerTo connects to a server of a test.
func dialerTo(s redistest.Server) dialer {
	at := s.Client.Options()
	return func(ctx context.Context) (net.Conn, error) { return at.Dialer(ctx, at.Network, at.Addr) }
}

// newClient is a client as lapse uses it. Where lapse gives a command no deadline, it may
// take as long as a busy machine needs.
func newClient(dial dialer) *redis.Client {
	return redis.NewClient(&redis.Options{
		Dialer:                func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		MaxRetries:            -1,
		ContextTimeoutEnabled: true,
		DialTimeout:           limit,
		ReadTimeout:           limit,
		WriteTimeout:          limit,
	})
}

// rig is a NATS server and a store, for processors that come and go.
type rig struct {
	t      *testing.T
	url    string // of NATS
	nc     *nats.Conn
	js     jetstream.JetStream
	dial   dialer
	redis  *redis.Client
	reader *sink.Reader
	opts   Options
	closed bool              // a collection exists once it was configured; else a write makes it
	clocks *shard.Clocks     // with which stamps are compared; nil for the usual ones
	bounds *shard.Bounds     // of processors; nil for the usual ones
	store  func(Store) Store // changes the store; nil if nothing does
	copied bool              // there are copies of the streams: see copyAll
}

func newRigOn(t *testing.T, b backend, opts Options) *rig {
	t.Helper()
	if opts.Replicas > 1 {
		return newRigAt(t, "nats://"+natstest.StartCluster(t, opts.Replicas)[0], b, opts)
	}
	return newRigAt(t, natstest.Start(t, natstest.Options{}), b, opts)
}

// newRigAt is a rig on a NATS server that is there.
func newRigAt(t *testing.T, url string, b backend, opts Options) *rig {
	t.Helper()
	r := &rig{t: t, url: url, dial: b.start(t), opts: opts}
	if opts.SyncInterval == nil { // servers are killed, and lose no power
		r.opts.SyncInterval = new(time.Duration)
	}
	r.nc = r.connect(r.url)
	var err error
	if r.js, err = jetstream.New(r.nc, jetstream.WithDefaultTimeout(limit)); err != nil {
		t.Fatal(err)
	}
	r.redis = newClient(r.dial)
	t.Cleanup(func() { _ = r.redis.Close() })
	r.reader = r.newReader()
	return r
}

func newRig(t *testing.T) *rig { return newRigOn(t, backends[0], Options{}) }

func (r *rig) connect(url string) *nats.Conn {
	r.t.Helper()
	nc, err := nats.Connect(url, natstest.Patient, nats.ReconnectWait(10*time.Millisecond), nats.MaxReconnects(-1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // some tests publish what clients cannot read
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc
}

// newReader is a Reader that has seen nothing yet.
func (r *rig) newReader() *sink.Reader {
	r.t.Helper()
	reader, err := sink.NewReader(r.redis, sink.ReaderOptions{Shards: r.opts.Shards})
	if err != nil {
		r.t.Fatal(err)
	}
	return reader
}

// What a fault may return: errDead at every point from one on is a process that has
// died, errStop is one that is stopped properly at that moment. Any other error is
// a step that failed.
var (
	errDead = errors.New("dead")
	errStop = errors.New("stop")
	errFail = errors.New("a fault")
)

// process is a processor that runs.
type process struct {
	*Processor
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done
}

// start starts a processor on the rig's connections.
func (r *rig) start(fault func(crash.Point) error) *process {
	return r.startOn(r.nc, r.redis, fault)
}

func (r *rig) startOn(nc *nats.Conn, client *redis.Client, fault func(crash.Point) error) *process {
	r.t.Helper()
	opts := r.opts
	opts.OpenCollections = !r.closed
	opts.Logger = slog.New(slog.NewTextHandler(testWriter{r.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	p, err := New(nc, client, opts)
	if err != nil {
		r.t.Fatal(err)
	}
	if r.store != nil {
		p.store = r.store(p.store)
	}
	if r.bounds != nil {
		p.bounds = *r.bounds
	}
	if r.clocks != nil {
		p.guard = shard.NewClockGuard(DefaultMaxClockLead, *r.clocks, p.opts.Health)
	}
	ctx, cancel := context.WithCancel(context.Background())
	if fault != nil {
		p.hook = func(here crash.Point) error {
			err := fault(here)
			if errors.Is(err, errDead) || errors.Is(err, errStop) {
				cancel()
			}
			if errors.Is(err, errStop) {
				return nil
			}
			return err
		}
	}
	one := &process{Processor: p, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(one.done)
		one.err = p.Run(ctx)
	}()
	r.t.Cleanup(func() { one.cancel(); <-one.done })
	return one
}

// run runs a processor until the test ends, which has to go well.
func (r *rig) run() *process {
	r.t.Helper()
	p := r.start(nil)
	r.t.Cleanup(func() { p.stop(r.t) })
	p.ready(r.t)
	return p
}

func (p *process) ready(t *testing.T) {
	t.Helper()
	eventually(t, "the processor is ready", func() bool {
		select {
		case <-p.done:
			t.Fatalf("run ended: %v", p.err)
		default:
		}
		return p.Ready() == nil
	})
}

// stop stops a processor, which has to go well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.cancel()
	<-p.done
	if p.err != nil {
		t.Errorf("run: %v", p.err)
	}
}

// ends waits for a processor to end by itself, for one of some reasons.
func (p *process) ends(t *testing.T, reasons ...error) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		t.Fatalf("the processor goes on, and should end: %v", reasons)
	}
	if !slices.ContainsFunc(reasons, func(reason error) bool { return errors.Is(p.err, reason) }) {
		t.Fatalf("run ended with %v, want %v", p.err, reasons)
	}
}

// testWriter writes a log to the test's, which shows it if the test fails.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

const limit = 3 * time.Minute // on every wait: only a test that fails takes so long

// longestTTL, in seconds, is how far a test goes that needs a longer TTL on a busy machine.
const longestTTL = 32

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if err := poll.Met(limit, what, ok); err != nil {
		t.Fatal(err)
	}
}

// comes waits until keeps returns nil.
func comes(t *testing.T, what string, keeps func() error) {
	t.Helper()
	if err := poll.Until(context.Background(), limit, func(context.Context) error { return keeps() }); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// send publishes a message and returns its sequence in the log.
func (r *rig) send(subject, body string, headers ...string) uint64 {
	r.t.Helper()
	m := &nats.Msg{Subject: subject, Data: []byte(body), Header: nats.Header{}}
	for i := 0; i < len(headers); i += 2 {
		m.Header[headers[i]] = append(m.Header[headers[i]], headers[i+1])
	}
	ack, err := r.js.PublishMsg(context.Background(), m)
	if err != nil {
		r.t.Fatalf("publish to %s: %v", subject, err)
	}
	return ack.Sequence
}

// ask publishes a message and returns its outcome.
func (r *rig) ask(subject, body string, headers ...string) wire.Outcome {
	r.t.Helper()
	inbox := r.nc.NewInbox()
	sub, err := r.nc.SubscribeSync(inbox)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	r.send(subject, body, append(headers, wire.HeaderReplyTo, inbox)...)
	reply, err := sub.NextMsg(limit)
	if err != nil {
		r.t.Fatalf("outcome of %s: %v", subject, err)
	}
	var o wire.Outcome
	if err := json.Unmarshal(reply.Data, &o); err != nil {
		r.t.Fatal(err)
	}
	return o
}

// must asks, and fails the test unless the outcome has a status.
func (r *rig) must(status int, subject, body string, headers ...string) wire.Outcome {
	r.t.Helper()
	o := r.ask(subject, body, headers...)
	if o.Status != status {
		r.t.Fatalf("outcome of %s %s: %+v, want %d", subject, body, o, status)
	}
	return o
}

// put upserts a document.
func (r *rig) put(collection, id, body string) wire.Outcome {
	r.t.Helper()
	o := r.ask(prefix.Write(wire.Upsert, collection, id), body)
	if o.Status != 200 && o.Status != 201 {
		r.t.Fatalf("upsert %s/%s: %+v", collection, id, o)
	}
	return o
}

func (r *rig) config(collection, body string) wire.Outcome {
	r.t.Helper()
	return r.must(200, prefix.Config(collection), body)
}

// body is what a read of a document returns: its body, or "" if there is none.
func (r *rig) body(collection, id string) string {
	r.t.Helper()
	var d sink.Document
	var err error
	eventually(r.t, "the shard can be read", func() bool {
		d, err = r.reader.Get(context.Background(), collection, id)
		return !errors.Is(err, sink.ErrUnavailable)
	})
	if err != nil && !errors.Is(err, sink.ErrNotFound) {
		r.t.Fatalf("get %s/%s: %v", collection, id, err)
	}
	return string(d.Body)
}

// once is a fault at the nth time that a point is reached.
func once(at crash.Point, nth int, do func() error) func(crash.Point) error {
	var mu sync.Mutex
	return func(here crash.Point) error {
		mu.Lock()
		defer mu.Unlock()
		if here != at {
			return nil
		}
		if nth--; nth != 0 {
			return nil
		}
		return do()
	}
}

// sendAsync publishes a message; see flush.
func (r *rig) sendAsync(subject, body string) {
	r.t.Helper()
	if _, err := r.js.PublishAsync(subject, []byte(body), jetstream.WithStallWait(limit)); err != nil {
		r.t.Fatal(err)
	}
}

// flush waits until all that was sent is in the log.
func (r *rig) flush() {
	r.t.Helper()
	select {
	case <-r.js.PublishAsyncComplete():
	case <-time.After(limit):
		r.t.Fatal("what was published is not stored")
	}
}

// keysOf are the keys of Redis that match a pattern.
func keysOf(t *testing.T, r *rig, pattern string) []string {
	t.Helper()
	keys, err := r.redis.Keys(context.Background(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func (r *rig) sendMsgAsync(m *nats.Msg) {
	r.t.Helper()
	if _, err := r.js.PublishMsgAsync(m, jetstream.WithStallWait(limit)); err != nil {
		r.t.Fatal(err)
	}
}
