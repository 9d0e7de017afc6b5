package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
	"github.com/seed18712806/lapse/integration/bench/internal/sides"
	"github.com/seed18712806/lapse/integration/bench/internal/table"
	"github.com/seed18712806/lapse/sink/wire"
)

// The names of the other sides.
const (
	redisShipped = "Redis PX + notifications"
	redisTuned   = "the same, hz 500, effort 10"
	kvWatcher    = "NATS KV TTL watcher"
	latenessTTL  = 5 // seconds
)

const patience = 2 * time.Minute // an event that comes later counts as missing

// received runs sides in turn, and returns what their subscribers received.
func received(round int, expire func(name string, open sides.Opener) (load.Received, error), sides map[string]sides.Opener) (map[string]load.Received, error) {
	all := map[string]load.Received{}
	var runs []func() error
	for _, name := range slices.Sorted(maps.Keys(sides)) {
		runs = append(runs, func() (err error) {
			all[name], err = expire(name, sides[name])
			return err
		})
	}
	return all, inTurn(round, runs...)
}

// lateness times the events of documents that fall due at a steady rate, while others are
// written.
func (b *bench) lateness(ctx context.Context, round int) ([]table.Figure, error) {
	n := b.n / 3
	sides, err := received(round, func(name string, open sides.Opener) (load.Received, error) {
		return b.expire(ctx, name, open, n, b.paced(ctx, round, n))
	}, map[string]sides.Opener{
		"lapse": b.openLapse(0), kvWatcher: sides.KV(b.rig), redisShipped: sides.Redis(b.rig),
		redisTuned: sides.Redis(b.rig, "--hz", "500", "--active-expire-effort", "10"),
	})
	if err != nil {
		return nil, err
	}
	lapse := ms(sides["lapse"].P99)
	others := []string{redisTuned, kvWatcher, redisShipped}
	best := slices.MinFunc(others, func(a, b string) int { return cmp.Compare(sides[a].P99, sides[b].P99) })
	figures := []table.Figure{
		{What: "p99", Unit: "ms", Lapse: lapse, Goal: table.Goal{Aim: 5, AtMost: true}},
		table.LowerBetter(
			table.Figure{What: "p99", Unit: "ms", Lapse: lapse, Against: "the best of the three", Other: ms(sides[best].P99), Goal: table.Goal{Must: 30, Ratio: true}},
		),
	}
	for _, name := range others {
		figures = append(figures, table.LowerBetter(table.Figure{What: "p99", Unit: "ms", Lapse: lapse, Against: name, Other: ms(sides[name].P99)}))
	}
	return figures, nil
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// due times the events of documents that fall due together.
func (b *bench) due(ctx context.Context, round int) ([]table.Figure, error) {
	sides, err := received(round, func(name string, open sides.Opener) (load.Received, error) {
		return b.expire(ctx, name, open, b.n, b.together(ctx, round, b.n))
	}, map[string]sides.Opener{"lapse": b.openLapse(0), kvWatcher: sides.KV(b.rig)})
	if err != nil {
		return nil, err
	}
	return []table.Figure{table.HigherBetter(table.Figure{
		What: "events a second", Unit: "/s", Lapse: sides["lapse"].PerSecond, Against: kvWatcher, Other: sides[kvWatcher].PerSecond,
		Goal: table.Goal{Must: 0.95, Aim: 1.5, Ratio: true},
	})}, nil
}

// changed times the events of documents that a changed default makes due, beside nothing else.
func (b *bench) changed(ctx context.Context, round int) ([]table.Figure, error) {
	other := b.together(ctx, round, b.n)
	sides, err := received(round, func(name string, open sides.Opener) (load.Received, error) {
		return b.expire(ctx, name, open, b.n, func(s *sides.Side, ld load.Load) error {
			if s.Lapse == nil {
				return other(s, ld)
			}
			return b.madeDue(ctx, round, s, ld)
		})
	}, map[string]sides.Opener{"lapse": b.openLapse(0), kvWatcher: sides.KV(b.rig)})
	if err != nil {
		return nil, err
	}
	return []table.Figure{table.HigherBetter(table.Figure{
		What: "events a second", Unit: "/s", Lapse: sides["lapse"].PerSecond, Against: kvWatcher, Other: sides[kvWatcher].PerSecond,
		Goal: table.Goal{Must: 0.9, Aim: 1, Ratio: true},
	})}, nil
}

// madeDue writes documents that never expire, and makes them due by a changed default.
func (b *bench) madeDue(ctx context.Context, round int, s *sides.Side, ld load.Load) error {
	if err := errors.Join(s.Write(ld, 0, ld.N, 0), s.Flush(), s.Lapse.Stored(ctx, rig.Orders, ld.N)); err != nil {
		return err
	}
	if err := load.Sleep(ctx, 2*time.Second); err != nil { // all are older than the default, and lapse is idle
		return err
	}
	if err := b.profileSide(ctx, s, "changed", round); err != nil {
		return err
	}
	return s.Lapse.NATS.NC.PublishMsg(rig.ConfigMessage(rig.Orders, 1))
}

// paced writes documents at the rate of the flags. Each falls due a few seconds later.
func (b *bench) paced(ctx context.Context, round, n int) func(*sides.Side, load.Load) error {
	return func(s *sides.Side, ld load.Load) error {
		if err := b.profileSide(ctx, s, "lateness", round); err != nil {
			return err
		}
		ld.TTL = latenessTTL
		return load.Pace(ctx, n, b.rate, func(from, to int) error { return s.Write(ld, from, to, latenessTTL) })
	}
}

// together writes documents so that they fall due together.
func (b *bench) together(ctx context.Context, round, n int) func(*sides.Side, load.Load) error {
	return func(s *sides.Side, ld load.Load) error {
		err := load.Bursts(ctx, n, func(from, to, ttl int) error {
			if err := s.Write(ld, from, to, ttl); err != nil {
				return err
			}
			return s.Flush()
		})
		if err != nil {
			return err
		}
		if s.Lapse == nil {
			return nil
		}
		if err := s.Lapse.Stored(ctx, rig.Orders, n); err != nil {
			return err
		}
		return b.profileSide(ctx, s, "due", round)
	}
}

// profileSide takes a profile of the side until it stops, if it is lapse.
func (b *bench) profileSide(ctx context.Context, s *sides.Side, name string, round int) error {
	if s.Lapse == nil {
		return nil
	}
	stop, err := s.Lapse.Profile(ctx, name, round)
	if err != nil {
		return err
	}
	finish := s.Done
	s.Done = func() {
		if err := stop(); err != nil {
			b.note("no profile: %v", err)
		}
		finish()
	}
	return nil
}

// expire starts a side, warms it up, writes documents, and waits until the subscriber has
// received their expirations.
func (b *bench) expire(ctx context.Context, name string, open sides.Opener, n int, write func(*sides.Side, load.Load) error) (load.Received, error) {
	r := load.NewReceipts(n)
	warmed := b.load(n, 1).Warm()
	r.Warm = load.NewReceipts(warmed.N)
	s, err := open(ctx, r)
	if err != nil {
		return load.Received{}, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { s.Done() }()
	if err := errors.Join(s.Write(warmed, 0, warmed.N, 1), s.Flush(), r.Warm.Wait(ctx, patience)); err != nil {
		return load.Received{}, fmt.Errorf("%s: warm-up: %w", name, err)
	}
	scripts := b.scriptsOf(ctx, s)
	used := s.Usage()
	if err := write(s, b.load(n, 0)); err != nil {
		return load.Received{}, fmt.Errorf("%s: %w", name, err)
	}
	// More documents are due later (see load.Bursts), and take longer.
	long := patience + time.Duration(n)*100*time.Microsecond
	if err := errors.Join(s.Flush(), r.Wait(ctx, long)); err != nil {
		return load.Received{}, fmt.Errorf("%s: %w", name, err)
	}
	b.cpu = used(fmt.Sprintf("%s: %d documents written and expired", name, n))
	b.scripts = b.scriptsOf(ctx, s) - scripts
	x := r.Result()
	b.note("%s: late by p50 %.2f ms, p99 %.2f ms, max %.2f ms; %.0f a second; deadlines within %.0f ms; %d missing, %d early, %d twice",
		name, ms(x.P50), ms(x.P99), ms(x.Max), x.PerSecond, ms(x.Spread), x.Missing, x.Early, x.Doubled)
	if x.Wrong != nil {
		return x, fmt.Errorf("%s: %w", name, x.Wrong)
	}
	if s.Lapse != nil && x.Missing+x.Early+x.Doubled > 0 {
		b.problem("of %d events %d are missing, %d were early and %d came twice", n, x.Missing, x.Early, x.Doubled)
	}
	return x, nil
}

// scriptsOf returns how many scripts have run in the Redis of a side; 0 if it is not lapse.
func (b *bench) scriptsOf(ctx context.Context, s *sides.Side) int {
	if s.Lapse == nil {
		return 0
	}
	n, err := s.Lapse.Scripts(ctx)
	if err != nil {
		b.note("the scripts in Redis are not counted: %v", err)
	}
	return n
}

// openLapse starts lapse, and a JetStream consumer of its events: they are stored.
func (b *bench) openLapse(shards int) sides.Opener {
	return b.openEvents(shards, ".expired.>", receive, func(ld load.Load, i, ttl int) *nats.Msg { return ld.Upsert(rig.Orders, i, ttl) })
}

// openEvents is openLapse for some events, and for the messages that write documents.
func (b *bench) openEvents(
	shards int,
	filter string,
	receive func(jetstream.Msg, *load.Receipts, load.Load),
	message func(ld load.Load, i, ttl int) *nats.Msg,
) sides.Opener {
	return func(ctx context.Context, r *load.Receipts) (*sides.Side, error) {
		l, err := b.rig.StartLapse(ctx, shards)
		if err != nil {
			return nil, err
		}
		s := &sides.Side{Lapse: l, Usage: l.Usage, Memory: l.Memory, Done: l.Stop}
		if err := l.ConfigureWarning(ctx, rig.Orders, -1, b.warn); err != nil {
			l.Stop()
			return nil, err
		}
		events, err := l.NATS.JS.OrderedConsumer(ctx, wire.DefaultPrefix.EventsStream(), jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverAllPolicy, FilterSubjects: []string{string(wire.DefaultPrefix) + filter},
		})
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
		s.Done = func() { receiving.Stop(); l.Stop() }
		s.Write, s.Flush = load.Writer(l.NATS.JS, message)
		return s, nil
	}
}

// receive receives an event like a subscriber, and checks that it has its document.
func receive(m jetstream.Msg, r *load.Receipts, ld load.Load) {
	at := time.Now()
	i, warmed, err := load.Index(m.Headers().Get("ce-subject")) // the stream keeps no id in the subject
	if err != nil {
		r.Fail(err)
		return
	}
	body := string(m.Data())
	const mark = `"expiredAt":"`
	var deadline wire.Time
	if k := strings.LastIndex(body, mark); k < 0 {
		r.Fail(fmt.Errorf("event without expiredAt: %s", body))
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
