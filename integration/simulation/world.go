package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
	"github.com/seed18712806/lapse/integration/simulation/pipe"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/integration/simulation/trace"
	"github.com/seed18712806/lapse/integration/simulation/transit"
)

// World is everything that a history happens in: the servers, the network, the processes,
// their clocks. Its run is the only scheduler: it lets one thing happen at a time, and goes
// on when every goroutine of the bubble waits.
type World struct {
	site             // the first region
	second   *second // the one that follows it; nil if there is none
	plan     *plan.Plan
	random   *rand.Rand
	queue    transit.Queue
	clocks   struct{ nats, redis time.Duration } // ahead of the processes'
	lateness lateness
	lost     map[string]time.Time // when a stream last lost its end, by its name
	hosts    []*process           // the present process of each, or the last
	running  sync.WaitGroup
	client   client
	trace    *trace.Trace
	inbox    inbox
	saved    *redismodel.Snapshot
	lists    []keptState
	queries  []*query
}

// inbox is what processes have given to the world since it looked.
type inbox struct {
	mu      sync.Mutex
	calls   []*call
	dialled []*conn
	conns   []*conn // that are open
	arrived chan struct{}

	away      time.Time // until then nobody can connect
	losses    int       // of power: what was sent before is lost
	redialled bool      // a process has connected again
}

// conn is a connection of a process to the model of nats-server.
type conn struct {
	*pipe.Pipe
	process *process
	server  *natsmodel.Client // the other end; nil before the server has accepted it, and after

	// When the last message of each direction arrives: the network keeps their order.
	lastOut, lastIn time.Time
	// After how long arrives what was sent when the connection was lost; 0 if it is lost too.
	fate   time.Duration
	losses int // of the inbox when it was made
}

// newWorld makes the world of a plan. It has to be called in a bubble.
func newWorld(p *plan.Plan, t *trace.Trace) *World {
	w := &World{plan: p, trace: t, lateness: newLateness(p), lost: map[string]time.Time{}}
	w.random = rand.New(rand.NewPCG(p.Seed, 1))
	domain := ""
	if p.Region {
		domain = firstDomain
	}
	w.site = w.newSite(domain, nil)
	usual := []time.Duration{50 * time.Microsecond, 300 * time.Microsecond, 3 * time.Millisecond}[w.random.IntN(3)]
	w.lines.nats = transit.Network{Random: w.random, Usual: usual, Sometimes: 20 * time.Millisecond}
	w.lines.redis, w.lines.objects = w.lines.nats, w.lines.nats
	w.lines.objects.Random = rand.New(rand.NewPCG(p.Seed, 3))
	w.inbox.arrived = make(chan struct{}, 1)
	return w
}

func (w *World) natsClock() time.Time { return time.Now().Add(w.clocks.nats) }

func (w *World) redisClock() time.Time { return time.Now().Add(w.clocks.redis) }

// wake lets the world look at what the processes have given to it.
func (w *World) wake() {
	select {
	case w.inbox.arrived <- struct{}{}:
	default:
	}
}

func (w *World) submit(c *call) {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	w.inbox.calls = append(w.inbox.calls, c)
	w.wake()
}

func (w *World) dial(p *process) (*conn, error) {
	w.inbox.mu.Lock()
	defer w.inbox.mu.Unlock()
	if p.site == &w.site && time.Now().Before(w.inbox.away) {
		return nil, errAway
	}
	c := &conn{Pipe: pipe.New(p.site.greeting, w.wake), process: p, losses: w.inbox.losses}
	w.inbox.dialled = append(w.inbox.dialled, c)
	w.wake()
	return c, nil
}

// run lets things happen, one at a time, until done reports true.
func (w *World) run(done func() bool) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		synctest.Wait()
		w.collect()
		w.mirror()
		w.notePromotion()
		if done() {
			return
		}
		at, ok := w.queue.First()
		for _, s := range w.sites() {
			if next, some := s.nats.Next(); some {
				if next = next.Add(-w.clocks.nats); !ok || next.Before(at) {
					at, ok = next, true
				}
			}
		}
		if !ok {
			at = time.Now().Add(time.Second)
		}
		if rest := time.Until(at); rest > 0 {
			timer.Reset(rest)
			select {
			case <-timer.C:
			case <-w.inbox.arrived:
				continue
			}
		}
		w.happen()
	}
}

// happen lets the next thing happen.
func (w *World) happen() {
	now := time.Now()
	for _, s := range w.sites() {
		if next, some := s.nats.Next(); some && !next.Add(-w.clocks.nats).After(now) {
			w.deliverAt(s, s.nats.Timers())
			return
		}
	}
	if at, ok := w.queue.First(); ok && !at.After(now) {
		w.queue.Next()
	}
}

// collect sends what the processes have written since the last time on its way. Goroutines
// that ran at the same instant may have written in any order, so collect brings it into one.
func (w *World) collect() {
	w.inbox.mu.Lock()
	calls, dialled := w.inbox.calls, w.inbox.dialled
	w.inbox.calls, w.inbox.dialled = nil, nil
	w.inbox.mu.Unlock()
	slices.SortStableFunc(dialled, func(a, b *conn) int { return strings.Compare(a.process.name, b.process.name) })
	for _, c := range dialled {
		w.accept(c)
	}
	slices.SortStableFunc(calls, func(a, b *call) int {
		return cmp.Or(strings.Compare(a.process.name, b.process.name), strings.Compare(a.lane, b.lane))
	})
	for i := 0; i < len(calls); {
		// Calls that cannot be told apart share their fate.
		same := []*call{calls[i]}
		for i++; i < len(calls) && calls[i].process == same[0].process && calls[i].lane == same[0].lane; i++ {
			same = append(same, calls[i])
		}
		w.carry(same)
	}
	open := w.inbox.conns[:0]
	for _, c := range w.inbox.conns {
		w.read(c)
		if c.IsClosed() {
			c.process.site.nats.Disconnect(c.server)
			continue
		}
		open = append(open, c)
	}
	w.inbox.conns = open
}

// accept lets the server accept a connection.
func (w *World) accept(c *conn) {
	if c.process.isDead() {
		_ = c.Close()
		return
	}
	w.inbox.redialled = w.inbox.redialled || c.process.conn != nil
	c.server = c.process.site.nats.Connect()
	c.process.conn = c
	w.inbox.conns = append(w.inbox.conns, c)
}

// carry carries calls to Redis or to the objects, and the answers back.
func (w *World) carry(calls []*call) {
	p, fail := calls[0].process, w.fail
	line := &p.site.lines.redis
	if calls[0].silent {
		line, fail = &p.site.lines.objects, func([]*call) {}
	}
	if p.isDead() {
		return
	}
	at, lost := line.Arrival(transit.Request)
	if lost {
		w.trace.Printf("%s: %s: the request is lost", p.name, calls[0].lane)
		w.queue.Add(transit.Later(at, p.stands), func() { fail(calls) })
		return
	}
	w.queue.Add(transit.Later(at, p.stands), func() {
		for _, c := range calls {
			c.do()
		}
		w.trace.Printf("%s: %s", p.name, calls[0].lane)
		p.site.observer.Look()
		back, lost := line.Arrival(transit.Answer)
		w.queue.Add(transit.Later(back, p.stands), func() {
			if p.stands.After(time.Now()) {
				w.queue.Add(p.stands, func() { w.answer(calls) })
			} else if lost {
				fail(calls)
			} else {
				w.answer(calls)
			}
		})
	})
}

func (w *World) answer(calls []*call) {
	for _, c := range calls {
		close(c.done)
	}
}

// fail lets calls fail, as when the connection to Redis is lost.
func (w *World) fail(calls []*call) {
	w.trace.Printf("%s: %s: the connection is lost", calls[0].process.name, calls[0].lane)
	for _, c := range calls {
		c.err = errConnection
	}
	w.answer(calls)
}

// read reads what a client has written, and carries the publications to the server.
func (w *World) read(c *conn) {
	commands, err := c.server.Parse(c.Take())
	if err != nil {
		panic(err)
	}
	var published []natsmodel.Command
	for _, command := range commands {
		if command.Kind == natsmodel.Publish {
			published = append(published, command)
		} else {
			w.deliverAt(c.process.site, c.process.site.nats.Do(c.server, command))
		}
	}
	slices.SortStableFunc(published, func(a, b natsmodel.Command) int { return strings.Compare(w.lane(a), w.lane(b)) })
	for i := 0; i < len(published); {
		same := published[i : i+1]
		for i++; i < len(published) && isQuery(same[0]) && sameQuery(same[0], published[i]); i++ {
			same = published[i-len(same) : i+1]
		}
		w.publish(c, same)
	}
}

// lane is a text that is the same for publications of one goroutine of a process.
func (w *World) lane(c natsmodel.Command) string {
	kind, _, _ := strings.Cut(strings.TrimPrefix(c.Subject, string(prefix)+"."), ".")
	if kind == "expired" || kind == "expiring" || kind == "due" || kind == "changed" || kind == "rejected" {
		return fmt.Sprintf("outputs, in a batch: %t", c.Header["Nats-Batch-Id"] != nil)
	}
	if isQuery(c) {
		return shown(c.Subject) + " " + anonymous(c.Subject, c.Data)
	}
	return shown(c.Subject)
}

// shown is a subject without the name of a consumer or of an inbox, which is random.
func shown(subject string) string {
	if strings.HasPrefix(subject, "_INBOX.") {
		return "_INBOX"
	}
	if strings.HasPrefix(subject, "$JS.API.CONSUMER.") {
		return subject[:strings.LastIndexByte(subject, '.')]
	}
	return subject
}

// anonymous is the body of a request without the name of a consumer.
func anonymous(subject string, body []byte) string {
	if name := subject[strings.LastIndexByte(subject, '.')+1:]; shown(subject) != subject {
		return strings.ReplaceAll(string(body), name, "")
	}
	return string(body)
}

func isQuery(c natsmodel.Command) bool {
	return strings.HasPrefix(c.Subject, "$JS.API.") || c.ForeignTo() != ""
}

func sameQuery(a, b natsmodel.Command) bool {
	return shown(a.Subject) == shown(b.Subject) && anonymous(a.Subject, a.Data) == anonymous(b.Subject, b.Data)
}

// publish carries publications that cannot be told apart to the server.
func (w *World) publish(c *conn, commands []natsmodel.Command) {
	at, lost := c.process.site.lines.nats.Arrival(transit.Request)
	at = transit.Later(transit.Later(at, c.process.stands), c.lastOut.Add(1))
	c.lastOut = at
	subject := shown(commands[0].Subject)
	if lost {
		w.trace.Printf("%s: %s is lost", c.process.name, subject)
		return
	}
	w.queue.Add(at, func() { w.arrive(c, commands, false) })
}

// arrive lets publications arrive at the server. What a connection had sent when it was lost
// is lost too, or arrives much later.
func (w *World) arrive(c *conn, commands []natsmodel.Command, ghost bool) {
	subject := shown(commands[0].Subject)
	w.inbox.mu.Lock()
	losses := w.inbox.losses
	w.inbox.mu.Unlock()
	switch {
	case c.process.site == &w.site && c.losses != losses:
		w.trace.Printf("%s: %s is lost with the power", c.process.name, subject)
		return
	case ghost:
		w.trace.Printf("%s: %s arrives after all", c.process.name, subject)
	case c.IsClosed() && c.fate == 0:
		w.trace.Printf("%s: %s is lost with the connection", c.process.name, subject)
		return
	case c.IsClosed():
		w.queue.Add(time.Now().Add(c.fate), func() { w.arrive(c, commands, true) })
		return
	default:
		w.trace.Printf("%s: %s", c.process.name, subject)
	}
	s := c.process.site
	var sent []natsmodel.Sent
	for _, command := range commands {
		s.observer.Publishes(command.Subject)
		if !w.crosses(c, command) {
			sent = append(sent, s.nats.Do(c.server, command)...)
			w.answersAcross(s, command)
		}
	}
	s.observer.Look()
	if len(commands) > 1 {
		w.deliverAtOnce(c, sent)
	} else {
		w.deliverAt(s, sent)
	}
}

// deliverAtOnce carries answers that cannot be told apart to their client.
func (w *World) deliverAtOnce(c *conn, sent []natsmodel.Sent) {
	if len(sent) == 0 {
		return
	}
	at, lost := c.process.site.lines.nats.Arrival(transit.Answer)
	at = transit.Later(transit.Later(at, c.process.stands), c.lastIn.Add(1))
	c.lastIn = at
	if lost {
		w.trace.Printf("%s: %d equal answers are lost", c.process.name, len(sent))
		return
	}
	var all []byte
	for _, m := range sent {
		all = append(all, m.Bytes()...)
	}
	w.queue.Add(at, func() { w.hand(c, all) })
}

// deliver carries what the server of the first region sends to its clients.
func (w *World) deliver(sent []natsmodel.Sent) { w.deliverAt(&w.site, sent) }

// deliverAt carries what the server of a region sends to its clients.
func (w *World) deliverAt(s *site, sent []natsmodel.Sent) {
	for _, m := range sent {
		c := w.clientOf(m.To)
		if c == nil {
			s.observer.Received(m)
			continue
		}
		at, lost := s.lines.nats.Arrival(transit.Answer)
		at = transit.Later(transit.Later(at, c.process.stands), c.lastIn.Add(1))
		c.lastIn = at
		if lost {
			w.trace.Printf("%s: an answer is lost", c.process.name)
			continue
		}
		if m.Close {
			w.queue.Add(at, func() { _ = c.Close() })
			continue
		}
		b := m.Bytes()
		w.queue.Add(at, func() { w.hand(c, b) })
	}
}

// hand gives bytes to a client, unless its process stands still.
func (w *World) hand(c *conn, b []byte) {
	if c.process.stands.After(time.Now()) {
		w.queue.Add(c.process.stands, func() { w.hand(c, b) })
		return
	}
	c.Receive(b)
}

func (w *World) clientOf(client *natsmodel.Client) *conn {
	for _, c := range w.inbox.conns {
		if c.server == client {
			return c
		}
	}
	return nil
}

// end ends all processes, so that the bubble can end.
func (w *World) end() {
	for _, p := range w.processes() {
		p.kill()
	}
	w.queue = transit.Queue{} // a step of the plan could start a process
	over := make(chan struct{})
	go func() { w.running.Wait(); close(over) }()
	w.run(func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
}
