package simulation

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
	"github.com/seed18712806/lapse/integration/simulation/observer"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/integration/simulation/transit"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/wire"
)

// firstDomain and secondDomain are the JetStream domains of the two regions.
const firstDomain, secondDomain = "a", "b"

// site is a region: its servers, what lies between them and its processes, and who watches it.
type site struct {
	nats     *natsmodel.Server
	redis    *redismodel.Server
	objects  shelf // the snapshots
	lines    struct{ nats, redis, objects transit.Network }
	observer *observer.Observer
	greeting []byte
}

// newSite makes the servers of a region. The clocks are the world's.
func (w *World) newSite(domain string, first *site) site {
	p := w.plan
	s := site{
		nats: natsmodel.New(natsmodel.Options{Now: w.natsClock, Steady: time.Now, Replicas: p.Replicas,
			Domain: domain}),
		redis: redismodel.New(redismodel.Options{Now: w.redisClock}),
	}
	// The lease of a process is no part of the simulation. The bucket has the regions that follow.
	members := wire.DefaultPrefix.MembersBucket()
	if err := s.nats.CreateStream(jetstream.StreamConfig{Name: "KV_" + members,
		Subjects: []string{"$KV." + members + ".>"}}); err != nil {
		panic(err)
	}
	s.greeting = slices.Clip(s.nats.Connect().Greeting())
	s.nats.Do(s.nats.Connect(), natsmodel.Command{Kind: natsmodel.Subscribe, Subject: "_INBOX.simulation.>", SID: "1"})
	servers := observer.Servers{NATS: s.nats, Redis: s.redis, NATSClock: w.natsClock, RedisClock: w.redisClock}
	if first != nil {
		servers.First = first.observer
	}
	s.observer = observer.New(servers)
	return s
}

// second is the region that follows the first, and what becomes of it.
type second struct {
	site
	link     link
	host     *process
	answers  *process // of the first region: it answers the second, whatever becomes of the others
	operator *process // who promotes; nil before somebody does
	promoted bool     // it is the first region now
}

// follow makes the second region of a plan that has one.
func (w *World) follow() {
	random := rand.New(rand.NewPCG(w.plan.Seed, 11))
	w.second = &second{site: w.newSite(secondDomain, &w.site), link: newLink(random)}
	line := transit.Network{Random: random, Usual: 300 * time.Microsecond, Sometimes: 20 * time.Millisecond}
	w.second.lines.nats, w.second.lines.redis, w.second.lines.objects = line, line, line
	w.second.answers = w.startAs(&w.site, "a0", true, (*process).answer)
	w.second.host = w.startAs(&w.second.site, "f0", true, func(p *process, ctx context.Context) error {
		time.Sleep(followAfter) // the first region makes its streams
		return p.run(ctx)
	})
}

// answer is the life of a process that applies no shard, and answers other regions.
func (p *process) answer(ctx context.Context) error {
	nc, err := nats.Connect("nats://127.0.0.1", nats.SetCustomDialer(p), nats.MaxReconnects(-1),
		nats.RetryOnFailedConnect(true), nats.ReconnectWait(reconnectAfter), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	defer nc.Close()
	return processor.AnswerRegions(ctx, nc, processor.Options{Prefix: wire.DefaultPrefix,
		Logger: p.world.trace.Logger(p.name)})
}

const followAfter = 100 * time.Millisecond

// sites are all regions.
func (w *World) sites() []*site {
	if w.second == nil {
		return []*site{&w.site}
	}
	return []*site{&w.site, &w.second.site}
}

// present is the region that is the first now: where clients write.
func (w *World) present() *site {
	if w.second != nil && w.second.promoted {
		return &w.second.site
	}
	return &w.site
}

// breakSecond breaks what belongs to the second region.
func (w *World) breakSecond(s plan.Step) {
	far := w.second
	if far == nil {
		return
	}
	switch s.Verb {
	case "far-start":
		if ended, _ := far.host.state(); ended {
			far.host = w.startAt(&far.site, far.host.name, true)
		}
	case "far-kill":
		far.host.kill()
	case "far-stand":
		far.host.stands = transit.Later(far.host.stands, over(s, 0))
	case "far-disconnect":
		if c := far.host.conn; c != nil {
			c.fate = 0
			far.host.disconnect()
		}
	case "far-slow":
		far.lines.redis.Slow = transit.Fault{Strength: s.Number(0), Over: over(s, 1)}
	case "far-flush":
		far.observer.Loses(true)
		far.redis.Flush()
	case "promote":
		w.promote(s)
	default:
		w.breakLink(s)
	}
}
