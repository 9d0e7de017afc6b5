package plan

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Generate makes the plan of a seed.
func Generate(seed uint64) *Plan {
	r := rand.New(rand.NewPCG(seed, 0))
	g := generator{r: r, plan: &Plan{Seed: seed, Replicas: 1}}
	g.plan.Processes = pick(r, 1, 1, 1, 1, 1, 2, 2, 2, 3)
	g.plan.Window = pick(r, 100*time.Millisecond, time.Second, 10*time.Second, 2*time.Minute)
	if r.IntN(5) == 0 {
		g.plan.Replicas = 3
	}
	g.plan.ReadAhead = pick(r, 0, 0, 1, 5)
	g.messages = 50 + r.IntN(20)
	if r.IntN(6) == 0 {
		g.messages = pick(r, 100, 100, 100, 200, 200, 500)
	}
	g.collections, g.ids = 1+r.IntN(3), pick(r, 1, 3, 10, 100)
	g.length = time.Duration(500+r.IntN(4500)) * time.Millisecond
	if r.IntN(2) == 0 {
		g.moment = g.within(g.length)
	}
	g.traffic()
	// Many histories have faults of few kinds, so that each is seen by itself too.
	faults, some := r.IntN(12), 1+r.IntN(len(kinds))
	chosen := r.Perm(len(kinds))[:some]
	for range faults {
		g.fault(kinds[chosen[r.IntN(some)]])
	}
	// A log that loses its end and its beginning may hide the one by the other.
	if r.IntN(8) == 0 {
		g.fault(lasting[r.IntN(len(lasting))])
	} else if g.moment > 0 && r.IntN(3) == 0 {
		g.scenario()
	}
	// These have random numbers of their own: the rest of the plan is the same without them.
	if g.r = rand.New(rand.NewPCG(seed, 4)); g.r.IntN(3) == 0 {
		g.snapshots()
	}
	// Not after a loss that nobody heard of: see README.md.
	if g.r = rand.New(rand.NewPCG(seed, 5)); g.r.IntN(3) == 0 &&
		!slices.ContainsFunc(g.plan.Steps, func(s Step) bool { return s.Verb == "log-tail" }) {
		g.losses()
	}
	if g.r = rand.New(rand.NewPCG(seed, 6)); g.r.IntN(2) == 0 {
		g.clocks()
	}
	if g.r = rand.New(rand.NewPCG(seed, 7)); g.r.IntN(2) == 0 {
		g.reads()
	}
	if g.r = rand.New(rand.NewPCG(seed, 8)); g.r.IntN(2) == 0 {
		g.targets()
	}
	if g.r = rand.New(rand.NewPCG(seed, 9)); g.r.IntN(2) == 0 {
		g.changes()
	}
	if g.r = rand.New(rand.NewPCG(seed, 10)); g.r.IntN(4) == 0 {
		g.region()
	}
	if g.r = rand.New(rand.NewPCG(seed, 12)); g.r.IntN(30) == 0 && !g.plan.Region {
		g.flood()
	}
	if g.r = rand.New(rand.NewPCG(seed, 13)); g.r.IntN(2) == 0 {
		g.indexes()
	}
	if g.r = rand.New(rand.NewPCG(seed, 14)); g.r.IntN(3) == 0 {
		g.pauses()
	}
	if g.r = rand.New(rand.NewPCG(seed, 15)); g.r.IntN(2) == 0 {
		g.pair()
	}
	slices.SortStableFunc(g.plan.Steps, func(a, b Step) int { return int(a.At - b.At) })
	return g.plan
}

type generator struct {
	r           *rand.Rand
	plan        *Plan
	messages    int
	collections int
	ids         int
	length      time.Duration
	moment      time.Duration // at which much happens together; 0: there is none
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (g *generator) add(at time.Duration, verb string, args ...any) {
	s := Step{At: at.Round(time.Microsecond), Verb: verb}
	for _, a := range args {
		s.Args = append(s.Args, fmt.Sprint(a))
	}
	g.plan.Steps = append(g.plan.Steps, s)
}

// within is a random part of a duration.
func (g *generator) within(d time.Duration) time.Duration {
	return time.Duration(g.r.Int64N(int64(d)))
}

// when is an instant before an end, often just behind the moment.
func (g *generator) when(end time.Duration) time.Duration {
	if g.moment > 0 && g.r.IntN(2) == 0 {
		return g.moment + g.within(pick(g.r, time.Millisecond, 20*time.Millisecond, 200*time.Millisecond))
	}
	return g.within(end)
}

func (g *generator) collection() string { return fmt.Sprintf("c%d", g.r.IntN(g.collections)) }

func (g *generator) id() string {
	return fmt.Sprintf("d%d", g.r.IntN(g.ids))
}

func (g *generator) ifMatch() string {
	return pick(g.r, "-", "-", "-", "-", "-", "-", "last", "last", "*", "1")
}

// traffic is what clients send: bursts, and messages around the deadlines of others.
func (g *generator) traffic() {
	for c := range g.collections {
		if g.r.IntN(4) > 0 {
			g.add(time.Duration(g.r.IntN(1000))*time.Microsecond, "config", fmt.Sprintf("c%d", c), "-",
				pick(g.r, `{"defaultTtl":1}`, `{"defaultTtl":1}`, `{"defaultTtl":2}`, `{"defaultTtl":-1}`,
					`{"indexingMode":"none"}`))
		}
	}
	var deadlines []time.Duration
	for i := 0; i < g.messages; i++ {
		at := g.when(g.length)
		collection, id := g.collection(), g.id()
		if len(deadlines) > 0 && g.r.IntN(3) == 0 {
			at = max(0, pick(g.r, deadlines...)+time.Duration(g.r.IntN(5)-2)*time.Millisecond)
		}
		burst := 1
		if g.r.IntN(10) == 0 {
			burst = 2 + g.r.IntN(30)
		}
		for range burst {
			g.message(at, collection, id)
			at += time.Duration(g.r.IntN(1500)) * time.Microsecond
			if g.r.IntN(3) > 0 {
				collection, id = g.collection(), g.id()
			}
			i++
		}
		deadlines = append(deadlines, at+time.Second, at+2*time.Second)
	}
}

func (g *generator) message(at time.Duration, collection, id string) {
	switch n := g.r.IntN(100); {
	case n < 3:
		g.add(at, "drop", collection, pick(g.r, "-", "-", "last"))
	case n < 13:
		g.add(at, "config", collection, pick(g.r, "-", "-", "-", "last", "1"), pick(g.r,
			`{}`, `{"defaultTtl":1}`, `{"defaultTtl":2}`, `{"defaultTtl":3}`, `{"defaultTtl":-1}`,
			`{"defaultTtl":3600}`, `{"indexingMode":"none"}`, `{"indexingMode":"lazy","defaultTtl":1}`,
			`{"defaultTtl":0}`))
	case n < 15:
		g.add(at, "raw", pick(g.r, "lapse.write.upsert.c0", "lapse.write.steal.c0.x", "lapse.config.c0.x",
			"lapse.write.upsert.c0.%zz"), pick(g.r, `{}`, ``, `x`))
	case n < 17:
		g.add(at, "repeat")
	case n < 25:
		g.add(at, "write", "delete", collection, id, g.ifMatch(), "")
	case n < 31:
		g.add(at, "write", "touch", collection, id, g.ifMatch(), "")
	case n < 41:
		g.add(at, "write", "patch", collection, id, g.ifMatch(),
			pick(g.r, `{"b":2}`, `{"ttl":2}`, `{"ttl":null}`, `{"a":null}`, `{"ttl":-1}`))
	case n < 51:
		g.add(at, "write", pick(g.r, "create", "replace"), collection, id, "-", g.body())
	default:
		g.add(at, "write", "upsert", collection, id, g.ifMatch(), g.body())
	}
}

// clocks lets some writes keep the clock or name a deadline, and some configurations have more
// properties. Some operations refuse that.
func (g *generator) clocks() {
	r := g.r
	for _, s := range g.plan.Steps {
		switch {
		case s.Verb == "write" && r.IntN(2) == 0:
			s.Args[3] += pick(r, "+keep", "+keep", "+keep", fmt.Sprint(pick(r, "+at", "+till"),
				pick(r, 0, 1, 500, 999, 1000, 1001, 2000)))
		case s.Verb == "config" && strings.Contains(s.Args[2], `"defaultTtl":`) && r.IntN(3) == 0:
			s.Args[2] = strings.TrimSuffix(s.Args[2], "}") + pick(r, `,"maxTtl":2}`, `,"minTtl":2}`,
				`,"warnBefore":[1]}`, `,"slideOnRead":true}`, `,"slideOnRead":0.5}`, `,"maxLife":2}`,
				`,"eventBody":false}`)
		}
	}
}

// targets lets some writes have a target. Some operations refuse that.
func (g *generator) targets() {
	for _, s := range g.plan.Steps {
		if s.Verb == "write" && g.r.IntN(2) == 0 && (s.Args[0] != "touch" && s.Args[0] != "patch" ||
			g.r.IntN(10) == 0) {
			s.Args[3] += "+to:" + pick(g.r, "mail", "mail.send", "mail.send", "mail.0", "a.b.c", "a..b")
		}
	}
}

// changes lets most configurations have the changes of their collection published.
func (g *generator) changes() {
	for _, s := range g.plan.Steps {
		if s.Verb == "config" && g.r.IntN(4) > 0 {
			s.Args[2] = strings.Replace(strings.TrimSuffix(s.Args[2], "}")+`,"changes":true}`, "{,", "{", 1)
		}
	}
}

// pauses lets some configurations pause their collection, and the next ones that do not, resume it.
func (g *generator) pauses() {
	for _, s := range g.plan.Steps {
		if s.Verb == "config" && g.r.IntN(2) == 0 {
			s.Args[2] = strings.Replace(strings.TrimSuffix(s.Args[2], "}")+`,"paused":true}`, "{,", "{", 1)
		}
	}
}

// reads lets reads renew clocks, in configurations that then have warnings too, and lists what there is.
func (g *generator) reads() {
	r := g.r
	for _, s := range g.plan.Steps {
		if s.Verb == "config" && strings.Contains(s.Args[2], `"defaultTtl":`) && !strings.Contains(s.Args[2], ",") {
			s.Args[2] = strings.TrimSuffix(s.Args[2], "}") + pick(r, `}`, `,"slideOnRead":true}`,
				`,"slideOnRead":0.4,"maxLife":4}`, `,"slideOnRead":true,"warnBefore":[1]}`, `,"warnBefore":[1,2]}`)
		}
	}
	for range 10 + r.IntN(50) {
		process := fmt.Sprintf("p%d", r.IntN(g.plan.Processes))
		g.add(g.when(g.length+time.Second), "read", process, g.collection(), g.id(),
			pick(r, 0, 0, 10*time.Millisecond, 300*time.Millisecond, time.Second))
	}
	for range r.IntN(3) {
		g.add(g.when(g.length+time.Second), "list")
	}
}

// flood lets more documents be due at once than one step reaps, and clients change some of them meanwhile.
func (g *generator) flood() {
	r, at, c := g.r, g.within(g.length), g.collection()
	g.add(at, "flood", 300+r.IntN(500), c, pick(r, `{}`, `{"ttl":1}`, `{"ttl":1}`))
	for range r.IntN(30) {
		then, id := at+time.Second+g.within(pick(r, 10*time.Millisecond, 100*time.Millisecond)),
			fmt.Sprint("f", r.IntN(800))
		switch r.IntN(4) {
		case 0:
			g.add(then, "write", "delete", c, id, "-", "")
		case 1:
			g.add(then, "write", "upsert", c, id, fmt.Sprint("-+at", r.IntN(20)), `{}`)
		case 2:
			g.add(then-g.within(time.Second), "write", "upsert", c, id, "-", pick(r, `{}`, `{"ttl":1}`))
		default:
			g.add(then, "config", c, "-", pick(r, `{"defaultTtl":1}`, `{"defaultTtl":2}`, `{}`))
		}
	}
}

func (g *generator) body() string {
	size := 0
	if g.r.IntN(200) == 0 {
		size = 100 << 10
	}
	return fmt.Sprintf(`{"a":%d,"x":"~%d~"%s}`, g.r.IntN(100), size,
		pick(g.r, ``, ``, ``, `,"ttl":1`, `,"ttl":1`, `,"ttl":2`, `,"ttl":3`, `,"ttl":-1`, `,"ttl":null`, `,"ttl":1.5`))
}

// scenario adds faults at the moment, which by chance would meet too rarely, with what clients
// send meanwhile.
func (g *generator) scenario() {
	r, second := g.r, time.Second
	add := func(after time.Duration, verb string, args ...any) { g.add(max(0, g.moment+after), verb, args...) }
	short := func() time.Duration { return g.within(20 * time.Millisecond) }
	restart := func(after time.Duration) {
		add(0, "kill", "p0")
		add(after, "start", "p0")
	}
	damage := func(after time.Duration) {
		add(after, "redis-damage", pick(r, "document", "index", "config", "config"), r.IntN(100))
	}
	burst := func(from, to time.Duration) { // of messages that have outputs
		for range 5 + r.IntN(10) {
			add(from+g.within(to-from), "write", pick(r, "create", "create", "replace", "upsert"), g.collection(),
				g.id(), "-", pick(r, `{}`, `{"ttl":1}`))
		}
	}
	contested := func() { // two owners believe
		g.plan.Processes = max(g.plan.Processes, 2)
		add(0, "believe", "p0", "yes")
		add(short(), "believe", "p1", "yes")
		burst(0, second)
	}
	g.plan.Window = pick(r, g.plan.Window, 100*time.Millisecond)
	switch r.IntN(9) {
	case 0: // a log that has lost its end, and has grown again
		restart(400 * time.Millisecond)
		add(short(), "log-tail", 1+r.IntN(5))
		burst(20*time.Millisecond, 300*time.Millisecond)
	case 1: // the log loses its end while a process begins to read
		after := g.within(300 * time.Millisecond)
		restart(after)
		add(after, "nats-slow", pick(r, 5, 100), second)
		add(after+g.within(pick(r, 20*time.Millisecond, 300*time.Millisecond)), "log-tail", 1+r.IntN(5))
		burst(after+20*time.Millisecond, after+2*second)
	case 2: // a log that was truncated long ago, and a shard that is damaged
		add(0, "log-truncate", 0)
		long := 16*second + g.within(5*second)
		damage(long)
		add(long+short(), "kill", "p0")
		add(long+second, "start", "p0")
	case 3: // a takeover is slow
		contested()
		add(0, pick(r, "redis-slow", "nats-slow"), pick(r, 100, 2000), second)
	case 4: // Redis loses what another owner has committed
		contested()
		add(g.within(300*time.Millisecond), "redis-save")
		add(300*time.Millisecond+g.within(second), "redis-rollback")
	case 5: // servers answer out of date when a process takes over
		g.plan.Replicas = 3
		burst(-20*time.Millisecond, 20*time.Millisecond)
		add(0, "nats-lag", pick(r, 1, 5, 100), 2*second)
		restart(100*time.Millisecond + g.within(second))
	case 6: // what was sent arrives after a takeover
		g.plan.Replicas = max(g.plan.Replicas, pick(r, 1, 3)) // servers may lag already
		burst(-20*time.Millisecond, 20*time.Millisecond)
		add(0, "disconnect", "p0", pick(r, 200*time.Millisecond, second, 3*second))
	case 7: // the shard lacks something when it is taken over
		damage(0)
		restart(short())
	case 8: // commits take effect, and nobody hears of it
		burst(0, 300*time.Millisecond)
		add(0, "redis-lose", "answers", 30, 300*time.Millisecond)
		add(g.within(300*time.Millisecond), "nats-lose", "answers", 30, 300*time.Millisecond)
	}
}

// snapshots lets lapse take snapshots, and truncate the log behind them, in a part of the history or
// in all of it. Often something is lost in the end, so that they are needed. One generation
// may be harmed: lapse can do without it.
func (g *generator) snapshots() {
	r, second := g.r, time.Second
	from, over := g.within(g.length), g.length+2*second
	for range 2 + r.IntN(6) {
		g.add(from+g.within(over-from), "snapshot")
	}
	if r.IntN(3) == 0 {
		g.add(from+g.within(over-from), pick(r, "snapshot-lose", "snapshot-damage"), r.IntN(100))
	}
	switch at := from + g.within(over+second-from); r.IntN(5) {
	case 0:
		g.add(at, "redis-flush")
	case 1:
		g.add(from+g.within(max(at-from, 1)), "redis-save")
		g.add(at, "redis-rollback")
	case 2:
		g.add(at, "redis-damage", pick(r, "document", "index", "config"), r.IntN(100))
	case 3:
		g.add(at, "redis-flush")
		g.add(at, "kill", "p0")
		g.add(at+g.within(second), "start", "p0")
	}
}

// losses lets NATS lose the end of streams, each back to an instant of its own, in a loss of power or a
// change of leaders. The loss of power often hits a process too, and a Redis that keeps nothing.
func (g *generator) losses() {
	r := g.r
	for range 1 + r.IntN(2) {
		at := g.when(g.length + 2*time.Second)
		var lost []string
		for _, stream := range pick(r, []string{"log", "events", "checkpoints", "snapshots"}, []string{"events"},
			[]string{"events", "checkpoints"}, []string{"checkpoints", "snapshots"}, []string{"log"}) {
			if n := pick(r, 0, 1, 1, 2, 5, 20, 100); n > 0 {
				lost = append(lost, stream, fmt.Sprint(n))
			}
		}
		if len(lost) == 0 {
			continue
		}
		process := fmt.Sprintf("p%d", r.IntN(g.plan.Processes))
		after := at + g.within(time.Second)
		switch n := r.IntN(4); {
		case g.plan.Replicas > 1 && n == 0:
			g.add(at, "leader-change", strings.Join(lost, " "))
			continue
		case n == 1:
			g.add(at, "redis-flush")
			fallthrough
		case n == 2:
			g.add(at, "kill", process)
			g.add(after, "start", process)
		}
		g.add(at, "power-loss", strings.Join(lost, " "))
		for range r.IntN(6) {
			g.add(at+g.within(2*time.Second), "write", pick(r, "create", "replace", "upsert", "patch"), g.collection(), g.id(), "-",
				pick(r, `{}`, `{"ttl":1}`))
		}
	}
	g.plan.Sync = pick(r, 100*time.Millisecond, 500*time.Millisecond, 2*time.Second, 2*time.Minute)
}

// kinds are faults after which everything goes on as if nothing had been.
var kinds = []string{
	"crash", "crash", "end", "stand", "owners", "handover", "disconnect", "ghost",
	"nats-lose", "nats-slow", "nats-hang", "nats-lag", "nats-mute", "nats-clock",
	"events-refuse", "events-age", "events-size",
	"redis-lose", "redis-slow", "redis-hang", "redis-clock", "redis-flush",
	"rollback", "redis-restart", "redis-full", "redis-damage",
}

// lasting are faults after which a person may have to decide.
var lasting = []string{"log-tail", "log-truncate", "log-anew"}

// fault adds a fault of a kind.
func (g *generator) fault(kind string) {
	r := g.r
	at := g.when(g.length + 2*time.Second)
	long := pick(r, 10*time.Millisecond, 300*time.Millisecond, time.Second, 2*time.Second)
	if r.IntN(12) == 0 {
		long = pick(r, 12*time.Second, 25*time.Second, time.Minute)
	}
	process := fmt.Sprintf("p%d", r.IntN(g.plan.Processes))
	soon := func() time.Duration { return at + g.within(pick(r, 20*time.Millisecond, 3*time.Second)) }
	side := pick(r, "requests", "answers")
	switch kind {
	case "crash":
		g.add(at, "kill", process)
		g.add(soon(), "start", process)
	case "end":
		g.add(at, "end", process)
		g.add(soon(), "start", process)
	case "stand":
		g.add(at, "stand", process, long)
	case "owners":
		g.add(at, "believe", process, "yes")
		g.add(soon(), "believe", fmt.Sprintf("p%d", r.IntN(g.plan.Processes)), "no")
	case "handover":
		g.add(at, "believe", process, "no")
		next := fmt.Sprintf("p%d", r.IntN(g.plan.Processes))
		g.add(at+g.within(pick(r, 10*time.Millisecond, 600*time.Millisecond)), "believe", next, "yes")
	case "disconnect":
		g.add(at, "disconnect", process, "lost")
	case "ghost":
		after := pick(r, time.Millisecond, 200*time.Millisecond, 3*time.Second, 3*time.Minute)
		g.add(at, "disconnect", process, after)
	case "nats-lose", "redis-lose":
		g.add(at, kind, side, pick(r, 1, 5, 30), long)
	case "nats-slow", "redis-slow":
		g.add(at, kind, pick(r, 5, 100, 2000), long)
	case "nats-hang", "redis-hang", "nats-mute", "events-refuse", "redis-full":
		g.add(at, kind, long)
	case "nats-lag":
		if g.plan.Replicas > 1 { // one server is never behind itself
			g.add(at, kind, pick(r, 1, 5, 100), long)
		}
	case "nats-clock", "redis-clock":
		g.add(at, kind, pick(r, -time.Minute, -3*time.Second, -30*time.Millisecond, 0, 30*time.Millisecond,
			3*time.Second, 9*time.Second, 30*time.Second))
	case "events-age", "redis-flush", "redis-restart", "log-anew":
		g.add(at, kind)
	case "events-size":
		g.add(at, kind, pick(r, 9<<10, 20<<10), long)
	case "rollback":
		g.add(at, "redis-save")
		g.add(at+time.Duration(r.IntN(500))*time.Millisecond, "redis-rollback")
	case "redis-damage":
		g.add(at, kind, pick(r, "document", "document", "index", "index", "config", "config", "state"), r.IntN(100))
	case "log-tail":
		g.add(at, kind, pick(r, 1, 2, 10, 100))
	case "log-truncate":
		g.add(at, kind, pick(r, 0, 5, 50))
	}
}
