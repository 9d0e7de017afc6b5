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
	write func(ld load, from, to, ttl int) error // some documents, with a TTL in seconds
	flush func() error                           // waits until all are stored
	usage func() func(what string)               // see lapseServer.usage
	done  func()                                 // ends it
	l     *lapseServer                           // if it is lapse
}

// opener starts a side, which tells the receipts what expires.
type opener func(context.Context, *receipts) (*side, error)

// limits of waiting: what has not come by then is lost, or as good as lost.
const patience = 2 * time.Minute

// lateness times events of documents that fall due at a steady rate, while others
// are written.
func (b *bench) lateness(ctx context.Context, round int) ([]figure, error) {
	n := b.n / 3
	sides := map[string]received{}
	run := func(name string, open opener) func() error {
		return func() (err error) {
			sides[name], err = b.expire(ctx, name, open, n, func(s *side, ld load) error {
				stop := func() error { return nil }
				if s.l != nil {
					if stop, err = s.l.profile(ctx, "lateness", round); err != nil {
						return err
					}
				}
				ld.ttl = latenessTTL
				if err := pace(ctx, n, b.rate, func(from, to int) error { return s.write(ld, from, to, latenessTTL) }); err != nil {
					return err
				}
				return stop()
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
	var figures []figure
	best := ""
	for _, name := range []string{redisShipped, redisTuned, kvWatcher} {
		if best == "" || sides[name].p99 < sides[best].p99 {
			best = name
		}
	}
	aim := ms(5 * time.Millisecond)
	figures = append(figures,
		figure{What: "p99", Unit: "ms", Lapse: ms(l.p99), Goal: goal{Aim: aim, AtMost: true}},
		sooner(figure{What: "p99", Unit: "ms", Lapse: ms(l.p99), Against: "the best of the three", Other: ms(sides[best].p99), Goal: goal{Must: 30, Ratio: true}}),
	)
	for _, name := range []string{redisShipped, redisTuned, kvWatcher} {
		o := sides[name]
		figures = append(figures,
			sooner(figure{What: "p50", Unit: "ms", Lapse: ms(l.p50), Against: name, Other: ms(o.p50)}),
			sooner(figure{What: "p99", Unit: "ms", Lapse: ms(l.p99), Against: name, Other: ms(o.p99)}),
			sooner(figure{What: "max", Unit: "ms", Lapse: ms(l.max), Against: name, Other: ms(o.max)}))
	}
	return figures, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// due times events of documents that fall due together.
func (b *bench) due(ctx context.Context, round int) ([]figure, error) {
	sides := map[string]received{}
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
	var figures []figure
	for _, name := range []string{kvWatcher, redisShipped, redisTuned} {
		f := times(figure{What: "events a second", Unit: "/s", Lapse: sides["lapse"].perSecond, Against: name, Other: sides[name].perSecond})
		if name == kvWatcher {
			f.Goal = goal{Must: 0.7, Aim: 1.5, Ratio: true}
		}
		figures = append(figures, f)
	}
	return figures, nil
}

// together writes documents so that they fall due together.
func (b *bench) together(ctx context.Context, round, n int) func(*side, load) error {
	return func(s *side, ld load) error {
		if err := bursts(ctx, n, func(from, to, ttl int) error { return s.write(ld, from, to, ttl) }); err != nil {
			return err
		}
		if err := s.flush(); err != nil {
			return err
		}
		if s.l == nil {
			return nil
		}
		if err := s.l.stored(ctx, orders, n); err != nil {
			return err
		}
		stop, err := s.l.profile(ctx, "due", round)
		if err != nil {
			return err
		}
		// It has begun before anything is due, and ends with the side.
		finish := s.done
		s.done = func() {
			if err := stop(); err != nil {
				b.note("no profile: %v", err)
			}
			finish()
		}
		return nil
	}
}

// expire starts a side, warms it up, has documents written and waits for what
// is said of them.
func (b *bench) expire(ctx context.Context, name string, open opener, n int, write func(*side, load) error) (received, error) {
	r := newReceipts(n)
	warmed := b.load(n, 1).warm()
	r.warm = newReceipts(warmed.n)
	s, err := open(ctx, r)
	if err != nil {
		return received{}, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { s.done() }()
	if err := errors.Join(s.write(warmed, 0, warmed.n, 1), s.flush(), r.warm.wait(ctx, patience)); err != nil {
		return received{}, fmt.Errorf("%s: warm-up: %w", name, err)
	}
	used := s.usage()
	if err := write(s, b.load(n, 0)); err != nil {
		return received{}, fmt.Errorf("%s: %w", name, err)
	}
	if err := errors.Join(s.flush(), r.wait(ctx, patience)); err != nil {
		return received{}, fmt.Errorf("%s: %w", name, err)
	}
	used(fmt.Sprintf("%s, %d documents written and expired", name, n))
	x := r.result()
	b.note("%s: late by p50 %.2f ms, p99 %.2f ms, max %.2f ms; %.0f a second; deadlines within %.0f ms; %d missing, %d early, %d twice",
		name, ms(x.p50), ms(x.p99), ms(x.max), x.perSecond, ms(x.spread), x.missing, x.early, x.doubled)
	if x.wrong != nil {
		return x, fmt.Errorf("%s: %w", name, x.wrong)
	}
	if s.l != nil && x.missing+x.early+x.doubled > 0 {
		b.problem("of %d events %d are missing, %d were early and %d came twice", n, x.missing, x.early, x.doubled)
	}
	return x, nil
}

// openLapse starts lapse, and a durable subscriber to its events: what it is told
// is stored.
func (b *bench) openLapse(partitions int) opener {
	return func(ctx context.Context, r *receipts) (*side, error) {
		l, err := b.startLapse(ctx, partitions)
		if err != nil {
			return nil, err
		}
		s := &side{l: l, usage: l.usage, done: l.stop}
		if err := l.configure(ctx, orders, -1); err != nil {
			l.stop()
			return nil, err
		}
		events, err := l.nats.js.OrderedConsumer(ctx, prefix.EventsStream(), jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy})
		if err != nil {
			l.stop()
			return nil, err
		}
		all := b.load(r.n, 0)
		receiving, err := events.Consume(func(m jetstream.Msg) { receive(m, r, all) }, jetstream.PullMaxMessages(2000))
		if err != nil {
			l.stop()
			return nil, err
		}
		s.done = func() { receiving.Stop(); l.stop() }
		s.write, s.flush = l.nats.writer(func(ld load, i, ttl int) *nats.Msg { return ld.upsert(orders, i, ttl) })
		return s, nil
	}
}

// writer publishes documents without waiting; flush waits for what is not yet
// acknowledged.
func (s *natsServer) writer(message func(ld load, i, ttl int) *nats.Msg) (write func(load, int, int, int) error, flush func() error) {
	var waits []func() error
	write = func(ld load, from, to, ttl int) error {
		w, err := publish(s.js, from, to, func(i int) *nats.Msg { return message(ld, i, ttl) })
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
func receive(m jetstream.Msg, r *receipts, ld load) {
	at := time.Now()
	subject := m.Subject()
	if strings.HasPrefix(subject, string(prefix)+".rejected.") {
		r.fail(fmt.Errorf("a write was rejected: %v", m.Headers()))
		return
	}
	i, warmed, err := index(subject[strings.LastIndexByte(subject, '.')+1:])
	if err != nil {
		r.fail(err)
		return
	}
	body := string(m.Data())
	const mark = `"expiredAt":"`
	var deadline wire.Time
	if k := strings.LastIndex(body, mark); k < 0 {
		r.fail(fmt.Errorf("an event without expiredAt: %s", body))
	} else if err := deadline.UnmarshalText([]byte(body[k+len(mark) : k+len(mark)+24])); err != nil {
		r.fail(fmt.Errorf("event %s: %w", body, err))
	}
	when := time.UnixMilli(int64(deadline))
	if warmed {
		r.warm.got(i, when, at)
		return
	}
	// The text is all of the document but its number and TTL.
	if tail := ld.text[i*7%8192:]; !strings.Contains(body, tail[:ld.size-minBody]) {
		r.fail(fmt.Errorf("event without its document: %s", body))
	}
	r.got(i, when, at)
}

// openKV starts a bucket and its watcher, which sees what is put (and the server's
// own stamp of it) and the markers of what expires.
func (b *bench) openKV(ctx context.Context, r *receipts) (*side, error) {
	srv, err := b.startNATS(ctx)
	if err != nil {
		return nil, err
	}
	s := &side{usage: func() func(string) { return func(string) {} }, done: srv.stop}
	kv, err := srv.bucket(ctx, orders)
	if err != nil {
		srv.stop()
		return nil, err
	}
	watcher, err := kv.WatchAll(ctx, jetstream.UpdatesOnly())
	if err != nil {
		srv.stop()
		return nil, err
	}
	s.done = func() { _ = watcher.Stop(); srv.stop() }
	type key struct {
		i    int
		warm bool
	}
	// How long documents live is known here; since when, the watcher says.
	ttls, warmTTLs := make([]atomic.Int32, r.n), make([]atomic.Int32, r.warm.n)
	ttlOf := func(k key) *atomic.Int32 {
		if k.warm {
			return &warmTTLs[k.i]
		}
		return &ttls[k.i]
	}
	go func() {
		written := make(map[key]time.Time, r.n)
		for e := range watcher.Updates() {
			at := time.Now()
			if e == nil {
				continue
			}
			i, warmed, err := index(e.Key())
			if err != nil {
				r.fail(err)
				continue
			}
			k, of := key{i, warmed}, r
			if warmed {
				of = r.warm
			}
			if e.Operation() == jetstream.KeyValuePut {
				written[k] = e.Created()
			} else {
				of.got(i, written[k].Add(time.Duration(ttlOf(k).Load())*time.Second), at)
			}
		}
	}()
	s.write, s.flush = srv.writer(func(ld load, i, ttl int) *nats.Msg {
		ttlOf(key{i, ld.kind == warmKind}).Store(int32(ttl))
		return ld.put(orders, i, ttl)
	})
	return s, nil
}

// openRedis starts Redis with notifications of expired keys, and a subscriber.
func (b *bench) openRedis(args ...string) opener {
	return func(ctx context.Context, r *receipts) (*side, error) {
		srv, err := b.startRedis(ctx, append([]string{"--notify-keyspace-events", "Ex"}, args...)...)
		if err != nil {
			return nil, err
		}
		sub := srv.client.Subscribe(ctx, "__keyevent@0__:expired")
		s := &side{usage: func() func(string) { return func(string) {} }, flush: func() error { return nil }}
		s.done = func() { _ = sub.Close(); srv.stop() }
		if _, err := sub.Receive(ctx); err != nil {
			s.done()
			return nil, err
		}
		deadlines, warmDeadlines := make([]atomic.Int64, r.n), make([]atomic.Int64, r.warm.n)
		of := func(warmed bool) ([]atomic.Int64, *receipts) {
			if warmed {
				return warmDeadlines, r.warm
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
				i, warmed, err := index(strings.TrimPrefix(m.Payload, orders+":"))
				if err != nil {
					r.fail(err)
					continue
				}
				d, to := of(warmed)
				to.got(i, time.UnixMilli(d[i].Load()), at)
			}
		}()
		s.write = func(ld load, from, to, ttl int) error {
			at := time.Now().Add(time.Duration(ttl) * time.Second).Truncate(time.Millisecond)
			d, _ := of(ld.kind == warmKind)
			for i := from; i < to; i++ {
				d[i].Store(at.UnixMilli())
			}
			return srv.setAt(ctx, ld, from, to, at)
		}
		return s, nil
	}
}
