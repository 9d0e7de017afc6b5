package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
	"github.com/seed18712806/lapse/sink/wire"
)

// Names of what lapse is held against.
const (
	redisShipped = "Redis PX + notifications"
	redisTuned   = "the same, hz 500, effort 10"
	kvWatcher    = "NATS KV TTL watcher"
	latenessTTL  = 5 // seconds
)

// side is a system that expires documents and says so.
type side struct {
	write func(ld load.Load, from, to, ttl int) error // some documents, with a TTL in seconds
	flush func() error                                // waits until all are stored
	usage func() func(what string)                    // see lapseServer.usage
	done  func()                                      // ends it
	l     *rig.Lapse                                  // if it is lapse
}

// opener starts a side, which tells the receipts what expires.
type opener func(context.Context, *load.Receipts) (*side, error)

// limits of waiting: what has not come by then is lost, or as good as lost.
const patience = 2 * time.Minute

// lateness times events of documents that fall due at a steady rate, while others
// are written.
func (b *bench) lateness(ctx context.Context, round int) ([]table.Figure, error) {
	n := b.n / 3
	sides := map[string]load.Received{}
	run := func(name string, open opener) func() error {
		return func() (err error) {
			sides[name], err = b.expire(ctx, name, open, n, func(s *side, ld load.Load) error {
				if err := b.profileSide(ctx, s, "lateness", round); err != nil {
					return err
				}
				ld.TTL = latenessTTL
				return load.Pace(ctx, n, b.rate, func(from, to int) error { return s.write(ld, from, to, latenessTTL) })
			})
			return err
		}
	}
	err := inTurn(round,
		run("lapse", b.openLapse(0)),
		run(kvWatcher, b.openKV),
		run(redisShipped, b.openRedis()),
		run(redisTuned, b.openRedis("--hz", "500", "--active-expire-effort", "10")),
	)
	if err != nil {
		return nil, err
	}
	l := sides["lapse"]
	var figures []table.Figure
	best := ""
	for _, name := range []string{redisShipped, redisTuned, kvWatcher} {
		if best == "" || sides[name].P99 < sides[best].P99 {
			best = name
		}
	}
	aim := ms(5 * time.Millisecond)
	figures = append(figures,
		table.Figure{What: "p99", Unit: "ms", Lapse: ms(l.P99), Goal: table.Goal{Aim: aim, AtMost: true}},
		table.Sooner(table.Figure{What: "p99", Unit: "ms", Lapse: ms(l.P99), Against: "the best of the three", Other: ms(sides[best].P99), Goal: table.Goal{Must: 30, Ratio: true}}),
	)
	for _, name := range []string{redisShipped, redisTuned, kvWatcher} {
		o := sides[name]
		figures = append(figures,
			table.Sooner(table.Figure{What: "p50", Unit: "ms", Lapse: ms(l.P50), Against: name, Other: ms(o.P50)}),
			table.Sooner(table.Figure{What: "p99", Unit: "ms", Lapse: ms(l.P99), Against: name, Other: ms(o.P99)}),
			table.Sooner(table.Figure{What: "max", Unit: "ms", Lapse: ms(l.Max), Against: name, Other: ms(o.Max)}))
	}
	return figures, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// due times events of documents that fall due together.
func (b *bench) due(ctx context.Context, round int) ([]table.Figure, error) {
	sides := map[string]load.Received{}
	run := func(name string, open opener) func() error {
		return func() (err error) {
			sides[name], err = b.expire(ctx, name, open, b.n, b.together(ctx, round, b.n))
			return err
		}
	}
	err := inTurn(round,
		run("lapse", b.openLapse(0)),
		run(kvWatcher, b.openKV),
		run(redisShipped, b.openRedis()),
		run(redisTuned, b.openRedis("--hz", "500", "--active-expire-effort", "10")),
	)
	if err != nil {
		return nil, err
	}
	var figures []table.Figure
	for _, name := range []string{kvWatcher, redisShipped, redisTuned} {
		f := table.Times(table.Figure{What: "events a second", Unit: "/s", Lapse: sides["lapse"].PerSecond, Against: name, Other: sides[name].PerSecond})
		if name == kvWatcher {
			f.Goal = table.Goal{Must: 0.7, Aim: 1.5, Ratio: true}
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// together writes documents so that they fall due together.
func (b *bench) together(ctx context.Context, round, n int) func(*side, load.Load) error {
	return func(s *side, ld load.Load) error {
		err := load.Bursts(ctx, n, func(from, to, ttl int) error {
			if err := s.write(ld, from, to, ttl); err != nil {
				return err
			}
			return s.flush()
		})
		if err != nil {
			return err
		}
		if s.l == nil {
			return nil
		}
		if err := s.l.Stored(ctx, rig.Orders, n); err != nil {
			return err
		}
		return b.profileSide(ctx, s, "due", round)
	}
}

// profileSide takes a profile of lapse, if it is lapse, until the side ends.
func (b *bench) profileSide(ctx context.Context, s *side, name string, round int) error {
	if s.l == nil {
		return nil
	}
	stop, err := s.l.Profile(ctx, name, round)
	if err != nil {
		return err
	}
	finish := s.done
	s.done = func() {
		if err := stop(); err != nil {
			b.note("no profile: %v", err)
		}
		finish()
	}
	return nil
}

// expire starts a side, warms it up, has documents written and waits for what
// is said of them.
func (b *bench) expire(ctx context.Context, name string, open opener, n int, write func(*side, load.Load) error) (load.Received, error) {
	r := load.NewReceipts(n)
	warmed := b.load(n, 1).Warm()
	r.Warm = load.NewReceipts(warmed.N)
	s, err := open(ctx, r)
	if err != nil {
		return load.Received{}, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { s.done() }()
	if err := errors.Join(s.write(warmed, 0, warmed.N, 1), s.flush(), r.Warm.Wait(ctx, patience)); err != nil {
		return load.Received{}, fmt.Errorf("%s: warm-up: %w", name, err)
	}
	used := s.usage()
	if err := write(s, b.load(n, 0)); err != nil {
		return load.Received{}, fmt.Errorf("%s: %w", name, err)
	}
	// The more there are, the later they are due (see together), and the longer that takes.
	long := patience + time.Duration(n)*100*time.Microsecond
	if err := errors.Join(s.flush(), r.Wait(ctx, long)); err != nil {
		return load.Received{}, fmt.Errorf("%s: %w", name, err)
	}
	used(fmt.Sprintf("%s: %d documents written and expired", name, n))
	x := r.Result()
	b.note("%s: late by p50 %.2f ms, p99 %.2f ms, max %.2f ms; %.0f a second; deadlines within %.0f ms; %d missing, %d early, %d twice",
		name, ms(x.P50), ms(x.P99), ms(x.Max), x.PerSecond, ms(x.Spread), x.Missing, x.Early, x.Doubled)
	if x.Wrong != nil {
		return x, fmt.Errorf("%s: %w", name, x.Wrong)
	}
	if s.l != nil && x.Missing+x.Early+x.Doubled > 0 {
		b.problem("of %d events %d are missing, %d were early and %d came twice", n, x.Missing, x.Early, x.Doubled)
	}
	return x, nil
}

// openLapse starts lapse, and a durable subscriber to its events: what it is told
// is stored.
func (b *bench) openLapse(partitions int) opener {
	return func(ctx context.Context, r *load.Receipts) (*side, error) {
		l, err := b.rig.StartLapse(ctx, partitions)
		if err != nil {
			return nil, err
		}
		s := &side{l: l, usage: l.Usage, done: l.Stop}
		if err := l.Configure(ctx, rig.Orders, -1); err != nil {
			l.Stop()
			return nil, err
		}
		events, err := l.NATS.JS.OrderedConsumer(ctx, wire.DefaultPrefix.EventsStream(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
		if err != nil {
			l.Stop()
			return nil, err
		}
		all := b.load(r.N, 0)
		receiving, err := events.Consume(func(m jetstream.Msg) { receive(m, r, all) }, jetstream.PullMaxMessages(2000))
		if err != nil {
			l.Stop()
			return nil, err
		}
		s.done = func() { receiving.Stop(); l.Stop() }
		s.write, s.flush = writer(l.NATS.JS, func(ld load.Load, i, ttl int) *nats.Msg { return ld.Upsert(rig.Orders, i, ttl) })
		return s, nil
	}
}

// writer publishes documents without waiting; flush waits for what is not yet
// acknowledged.
func writer(js jetstream.JetStream, message func(ld load.Load, i, ttl int) *nats.Msg) (write func(load.Load, int, int, int) error, flush func() error) {
	var waits []func() error
	write = func(ld load.Load, from, to, ttl int) error {
		w, err := load.Publish(js, from, to, func(i int) *nats.Msg { return message(ld, i, ttl) })
		waits = append(waits, w)
		return err
	}
	flush = func() error {
		for _, w := range waits {
			if err := w(); err != nil {
				return err
			}
		}
		waits = nil
		return nil
	}
	return write, flush
}

// receive reads an event as a subscriber would: the document in it has to be the
// one that was written.
func receive(m jetstream.Msg, r *load.Receipts, ld load.Load) {
	at := time.Now()
	subject := m.Subject()
	if strings.HasPrefix(subject, string(wire.DefaultPrefix)+".rejected.") {
		r.Fail(fmt.Errorf("a write was rejected: %v", m.Headers()))
		return
	}
	i, warmed, err := load.Index(subject[strings.LastIndexByte(subject, '.')+1:])
	if err != nil {
		r.Fail(err)
		return
	}
	body := string(m.Data())
	const mark = `"expiredAt":"`
	var deadline wire.Time
	if k := strings.LastIndex(body, mark); k < 0 {
		r.Fail(fmt.Errorf("an event without expiredAt: %s", body))
	} else if err := deadline.UnmarshalText([]byte(body[k+len(mark) : k+len(mark)+24])); err != nil {
		r.Fail(fmt.Errorf("event %s: %w", body, err))
	}
	when := time.UnixMilli(int64(deadline))
	if warmed {
		r.Warm.Got(i, when, at)
		return
	}
	if !ld.In(body, i) {
		r.Fail(fmt.Errorf("event without its document: %s", body))
	}
	r.Got(i, when, at)
}

// openKV starts a bucket and its watcher, which sees what is put (and the server's
// own stamp of it) and the markers of what expires.
func (b *bench) openKV(ctx context.Context, r *load.Receipts) (*side, error) {
	srv, err := b.rig.StartNATS(ctx)
	if err != nil {
		return nil, err
	}
	s := &side{usage: func() func(string) { return b.rig.Usage(srv.Process) }, done: srv.Stop}
	kv, err := srv.Bucket(ctx, rig.Orders)
	if err != nil {
		srv.Stop()
		return nil, err
	}
	watcher, err := kv.WatchAll(ctx, jetstream.UpdatesOnly())
	if err != nil {
		srv.Stop()
		return nil, err
	}
	s.done = func() { _ = watcher.Stop(); srv.Stop() }
	type key struct {
		i    int
		warm bool
	}
	// How long documents live is known here; since when, the watcher says.
	ttls, warmTTLs := make([]atomic.Int32, r.N), make([]atomic.Int32, r.Warm.N)
	ttlOf := func(k key) *atomic.Int32 {
		if k.warm {
			return &warmTTLs[k.i]
		}
		return &ttls[k.i]
	}
	go func() {
		written := make(map[key]time.Time, r.N)
		for e := range watcher.Updates() {
			at := time.Now()
			if e == nil {
				continue
			}
			i, warmed, err := load.Index(e.Key())
			if err != nil {
				r.Fail(err)
				continue
			}
			k, of := key{i, warmed}, r
			if warmed {
				of = r.Warm
			}
			if e.Operation() == jetstream.KeyValuePut {
				written[k] = e.Created()
			} else {
				of.Got(i, written[k].Add(time.Duration(ttlOf(k).Load())*time.Second), at)
			}
		}
	}()
	s.write, s.flush = writer(srv.JS, func(ld load.Load, i, ttl int) *nats.Msg {
		ttlOf(key{i, ld.Warming()}).Store(int32(ttl))
		return ld.Put(rig.Orders, i, ttl)
	})
	return s, nil
}

// openRedis starts Redis with notifications of expired keys, and a subscriber.
func (b *bench) openRedis(args ...string) opener {
	return func(ctx context.Context, r *load.Receipts) (*side, error) {
		srv, err := b.rig.StartRedis(ctx, append([]string{"--notify-keyspace-events", "Ex"}, args...)...)
		if err != nil {
			return nil, err
		}
		sub := srv.Client.Subscribe(ctx, "__keyevent@0__:expired")
		s := &side{usage: func() func(string) { return b.rig.Usage(srv.Process) }, flush: func() error { return nil }}
		s.done = func() { _ = sub.Close(); srv.Stop() }
		if _, err := sub.Receive(ctx); err != nil {
			s.done()
			return nil, err
		}
		deadlines, warmDeadlines := make([]atomic.Int64, r.N), make([]atomic.Int64, r.Warm.N)
		of := func(warmed bool) ([]atomic.Int64, *load.Receipts) {
			if warmed {
				return warmDeadlines, r.Warm
			}
			return deadlines, r
		}
		go func() {
			for {
				m, err := sub.ReceiveMessage(ctx)
				if err != nil {
					return // closed; what is missing by then is missed
				}
				at := time.Now()
				i, warmed, err := load.Index(strings.TrimPrefix(m.Payload, rig.Orders+":"))
				if err != nil {
					r.Fail(err)
					continue
				}
				d, to := of(warmed)
				to.Got(i, time.UnixMilli(d[i].Load()), at)
			}
		}()
		s.write = func(ld load.Load, from, to, ttl int) error {
			at := time.Now().Add(time.Duration(ttl) * time.Second).Truncate(time.Millisecond)
			d, _ := of(ld.Warming())
			for i := from; i < to; i++ {
				d[i].Store(at.UnixMilli())
			}
			return srv.SetAt(ctx, ld, from, to, at)
		}
		return s, nil
	}
}
