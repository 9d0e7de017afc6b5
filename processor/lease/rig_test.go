package lease

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/integration/harness/child"
	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/natstest"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	ms    = time.Millisecond
	limit = time.Minute // for what takes no time by itself
)

func TestMain(m *testing.M) {
	if url := os.Getenv("LAPSE_LEASE_HELPER"); url != "" {
		helper(url)
		return
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6") // the tests wait for beats and silence, and need little of a processor
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(child.Goroutine))
}

// natsServer is a server that can be restarted.
type natsServer struct {
	t    testing.TB
	opts server.Options
	srv  *server.Server
}

// startNATS starts a server for a test, which runs beside others from here on.
func startNATS(t *testing.T) *natsServer {
	t.Helper()
	t.Parallel()
	return startAlone(t)
}

// startAlone starts a server for a test that does not run beside others.
func startAlone(t *testing.T) *natsServer {
	t.Helper()
	s := &natsServer{t: t, opts: server.Options{Host: "127.0.0.1", Port: freeport.Take(t), JetStream: true,
		StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// in is the same server for a subtest.
func (s *natsServer) in(t testing.TB) *natsServer {
	sub := *s
	sub.t = t
	return &sub
}

func (s *natsServer) start() {
	s.t.Helper()
	opts := s.opts
	srv, err := server.NewServer(&opts)
	if err != nil {
		s.t.Fatal(err)
	}
	srv.Start()
	if !srv.ReadyForConnections(limit) {
		s.t.Fatal("nats-server is not ready")
	}
	s.srv = srv
}

func (s *natsServer) stop() { s.srv.Shutdown(); s.srv.WaitForShutdown() }

func (s *natsServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.opts.Port) }

func (s *natsServer) connect() *nats.Conn {
	s.t.Helper()
	closed := make(chan struct{})
	nc, err := nats.Connect(s.url(), natstest.Patient, nats.MaxReconnects(-1), nats.ReconnectWait(50*ms),
		nats.ReconnectJitter(0, 0), nats.ReconnectBufSize(-1),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { nc.Close(); <-closed })
	return nc
}

func (s *natsServer) js() jetstream.JetStream {
	s.t.Helper()
	return natstest.JetStream(s.t, s.connect())
}

// limitMessages makes the bucket refuse larger messages.
func (s *natsServer) limitMessages(bytes int32) {
	s.t.Helper()
	js := s.js()
	stream, err := js.Stream(s.t.Context(), "KV_LAPSE_MEMBERS")
	if err != nil {
		s.t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxMsgSize = bytes
	if _, err := js.UpdateStream(s.t.Context(), config); err != nil {
		s.t.Fatal(err)
	}
}

// stint is one run of the work.
type stint struct {
	who          string
	held         *Held
	began, ended time.Time // ended is zero while it runs
	cause        error     // of its end
}

// journal keeps the stints of all members of a test.
type journal struct {
	mu     sync.Mutex
	stints []*stint
}

// own is work that only waits until it is told to end.
func (j *journal) own(who string) work {
	return func(ctx context.Context, held *Held) error {
		s := &stint{who: who, held: held, began: time.Now()}
		j.mu.Lock()
		j.stints = append(j.stints, s)
		j.mu.Unlock()
		<-ctx.Done()
		j.mu.Lock()
		defer j.mu.Unlock()
		s.ended, s.cause = time.Now(), context.Cause(ctx)
		return ctx.Err()
	}
}

func (j *journal) all() (stints []stint) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.stints {
		stints = append(stints, *s)
	}
	return stints
}

// owners are the processes whose work runs.
func (j *journal) owners() (names []string) {
	for _, s := range j.all() {
		if s.ended.IsZero() {
			names = append(names, s.who)
		}
	}
	return names
}

// awaitOwner waits until exactly one process works and is among the names, and returns its
// stint.
func (j *journal) awaitOwner(t testing.TB, among ...string) stint {
	t.Helper()
	var found stint
	until(t, fmt.Sprintf("one of %v owns", among), func() bool {
		running := 0
		for _, s := range j.all() {
			if s.ended.IsZero() {
				running++
				found = s
			}
		}
		return running == 1 && slices.Contains(among, found.who)
	})
	return found
}

// process is a member at work.
type process struct {
	*Member
	t      testing.TB
	log    *lines
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of Run
}

// prepare makes a member that does not run yet.
func (s *natsServer) prepare(name string, opts Options, replace ...func(*seams)) *process {
	s.t.Helper()
	return prepare(s.t, s.connect(), name, opts, replace...)
}

func prepare(t testing.TB, nc *nats.Conn, name string, opts Options, replace ...func(*seams)) *process {
	t.Helper()
	log := &lines{}
	opts.ID, opts.Name, opts.Logger = name, "name of "+name, slog.New(log)
	seams := noSeams()
	waits(&seams)
	for _, f := range replace {
		f(&seams)
	}
	m, err := newMember(nc, opts, seams)
	if err != nil {
		t.Fatal(err)
	}
	return &process{Member: m, t: t, log: log, done: make(chan struct{})}
}

// waits is for all tests: an answer may take as long as a busy machine needs. OK and Fenced
// ask again until then.
func waits(s *seams) { s.timing.call, s.timing.verify = limit, limit }

// asksAgain is for tests in which a server gives no answer at all: it has ended, or the request
// was for what is deleted meanwhile.
func asksAgain(s *seams) { s.timing.call = defaultTiming.call }

// slowToSuspect is for tests in which a standby has to suspect an owner that is silent, but
// not because of noise on the machine.
func slowToSuspect(s *seams) { s.timing.silence = 2 * time.Second }

// patient is for tests that are not about silence. Noise on the machine does not make a
// standby suspect the owner.
func patient(s *seams) { s.timing.silence = limit }

// neverStalls is for tests in which a standby cannot take over. A slow answer, or noise on the
// machine, does not make it believe that it stood still.
func neverStalls(s *seams) { s.timing.stall = limit }

// refreshOften makes a process refresh its entry often.
func refreshOften(s *seams) { s.timing.refresh = 50 * ms }

func (p *process) run(work work) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go func() {
		defer close(p.done)
		p.err = p.Run(ctx, work)
	}()
	p.t.Cleanup(func() {
		cancel()
		if <-p.done; p.err != nil && p.t.Failed() {
			p.t.Logf("%s: Run: %v", p.opts.ID, p.err)
		}
	})
	return p
}

// leave ends the process cleanly.
func (p *process) leave() {
	p.t.Helper()
	p.cancel()
	p.wait()
	if p.err != nil {
		p.t.Errorf("%s: Run: %v", p.opts.ID, p.err)
	}
}

func (p *process) wait() {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("%s: Run has not ended", p.opts.ID)
	}
}

// entry is the lease as the bucket holds it.
func (p *process) entry() (e entry) {
	p.t.Helper()
	until(p.t, "the bucket answers", func() bool {
		var err error
		e, err = p.bucket.Lease(p.t.Context(), 0)
		return err == nil
	})
	return e
}

// change stores a lease in place of the present one, which the owner may renew meanwhile.
func (p *process) change(to func(present wire.Lease) wire.Lease) {
	p.t.Helper()
	until(p.t, "the lease is changed", func() bool {
		e := p.entry()
		_, err := p.bucket.Change(p.t.Context(), 0, to(e.Lease), e.Revision)
		if err != nil && !errors.Is(err, errConflict) {
			p.t.Fatal(err)
		}
		return err == nil
	})
}

// verdict asks OK or Fenced until the lease is verified or lost, where they answer soon.
func verdict(t testing.TB, ask func(context.Context) error) (err error) {
	t.Helper()
	until(t, "the lease is verified", func() bool {
		err = ask(t.Context())
		return err == nil || errors.Is(err, ErrLost)
	})
	return err
}

// until waits for a condition.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(2 * ms)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("after %v: not %s", limit, what)
		case <-tick.C:
		}
	}
}

// awaitBeats waits for n beats of an owner of shard 0 (of any, if it is ""): so much time has
// passed, and it is alive. It returns the number of the last beat.
func (s *natsServer) awaitBeats(owner string, n int) (seq uint64) {
	s.t.Helper()
	sub, err := s.connect().SubscribeSync("lapse.beat.0")
	if err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(limit); n > 0; {
		m, err := sub.NextMsg(time.Until(deadline))
		if err != nil {
			s.t.Fatal(err)
		}
		var b wire.Beat
		if json.Unmarshal(m.Data, &b) == nil && (owner == "" || b.Owner == owner) {
			n--
			seq = b.Seq
		}
	}
	return seq
}

// lines are the lines of a log.
type lines struct {
	mu   sync.Mutex
	text []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	text := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, text)
	return nil
}

// with are the lines that contain a text.
func (l *lines) with(text string) (some []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.text {
		if strings.Contains(line, text) {
			some = append(some, line)
		}
	}
	return some
}

func (l *lines) expect(t testing.TB, text string, times int) {
	t.Helper()
	if got := l.with(text); len(got) != times {
		t.Errorf("logged %d times %q, want %d: %q", len(got), text, times, l.with(""))
	}
}

// gate makes loops stand still while it is shut. It opens at the end of the test.
type gate struct {
	done <-chan struct{}
	mu   sync.Mutex
	shut chan struct{}
}

func newGate(t testing.TB) *gate { return &gate{done: t.Context().Done()} }

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.shut)
	g.shut = nil
}

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shut != nil
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		select {
		case <-shut:
		case <-g.done:
		}
	}
}

// freezes makes all loops of a process stand still while the gate is shut.
func (g *gate) freezes(s *seams) { s.loop, s.heart = g.pass, g.pass }

// helper is the main function of another process. It joins, calls OK again and again, and
// writes a line for each call: its time and its result.
func helper(url string) {
	nc, err := nats.Connect(url, natstest.Patient)
	if err != nil {
		panic(err)
	}
	seams := noSeams()
	waits(&seams)
	patient(&seams)
	m, err := newMember(nc, Options{ID: "helper", Name: "helper"}, seams)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // until the test closes its end
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		cancel()
	}()
	err = m.Run(ctx, func(ctx context.Context, held *Held) error {
		tick := time.NewTicker(ms)
		defer tick.Stop()
		for {
			asked := time.Now().UnixNano()
			err := held.OK(context.WithoutCancel(ctx))
			fmt.Println(asked, err == nil, errors.Is(err, ErrLost))
			if err != nil {
				return err
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	fmt.Println("ended", err)
	nc.Close()
}
