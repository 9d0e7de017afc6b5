package simulation

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/dial"
	"github.com/seed18712806/lapse/sink/wire"
)

// reconnectAfter and runAgain: the latter is that of lapse serve after an error that is not final.
const reconnectAfter, runAgain = 50 * time.Millisecond, time.Second

// process is one lapse process from its start to its end, with a connection of its own.
type process struct {
	world  *World
	site   *site
	name   string
	stop   context.CancelFunc // a clean end
	leaves bool               // it was told to end
	dead   chan struct{}      // closed when it is killed
	stands time.Time          // it stands still until then
	conn   *conn              // the present one; nil before it is made
	clock  redismodel.Clock   // what it knows of Redis's

	mu      sync.Mutex
	nc      *nats.Conn // nil before it is made
	proc    *processor.Processor
	owns    bool          // whether it believes that it owns the shard
	changed chan struct{} // closed when owns changes
	ended   bool
	final   error // why it ended by itself
}

// again starts a process anew that has ended, or is killed because it does not end.
func (w *World) again(i int, owns bool) {
	p := w.hosts[i]
	if p.leaves {
		p.kill()
	}
	if ended, _ := p.state(); ended {
		w.hosts[i] = w.start(p.name, owns)
	}
}

// start starts a process that believes something of its ownership.
func (w *World) start(name string, owns bool) *process { return w.startAt(&w.site, name, owns) }

// startAt is start in a region.
func (w *World) startAt(s *site, name string, owns bool) *process {
	return w.startAs(s, name, owns, (*process).run)
}

func (w *World) startAs(s *site, name string, owns bool, run func(*process, context.Context) error) *process {
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{world: w, site: s, name: name, stop: cancel, dead: make(chan struct{}), owns: owns,
		changed: make(chan struct{})}
	w.running.Go(func() {
		defer cancel()
		err := run(p, ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.ended = true
		if ctx.Err() == nil {
			p.final = err
		}
		w.wake()
	})
	return p
}

// run is the life of the process.
func (p *process) run(ctx context.Context) error {
	nc, err := nats.Connect("nats://127.0.0.1", nats.SetCustomDialer(dial.New(p)), nats.MaxReconnects(-1), nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true), nats.ReconnectWait(reconnectAfter), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return err
	}
	defer nc.Close()
	p.mu.Lock()
	p.nc = nc
	p.mu.Unlock()
	w := p.world
	proc,
		err := processor.NewWith(nc, remote{p, p.site.redis},
		processor.Options{OpenCollections: true, Follow: p.follows(), Prefix: wire.DefaultPrefix, Objects: objects{p},
			Replicas: w.plan.Replicas, DuplicateWindow: &w.plan.Window, SyncInterval: &w.plan.Sync,
			ReadAhead: w.plan.ReadAhead, Logger: w.trace.Logger(p.name)})
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.proc = proc
	p.mu.Unlock()
	for p.untilOwner(ctx) {
		switch err := proc.RunAs(ctx, p); {
		case err == nil || errors.Is(err, processor.ErrNotOwner):
		case errors.As(err, new(*processor.Refusal)), errors.Is(err, processor.ErrConnectionClosed):
			return err
		default:
			select {
			case <-time.After(runAgain):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// follows is the JetStream domain of the region that the process is to follow; "" if it is to follow none.
func (p *process) follows() string {
	if p.site == &p.world.site {
		return ""
	}
	return firstDomain
}

// untilOwner waits until the process believes that it owns the shard.
func (p *process) untilOwner(ctx context.Context) bool {
	for ctx.Err() == nil {
		p.mu.Lock()
		owns, changed := p.owns, p.changed
		p.mu.Unlock()
		if owns {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return false
}

// believe sets whether the process believes that it owns the shard.
func (p *process) believe(owns bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owns = owns
	close(p.changed)
	p.changed = make(chan struct{})
}

// OK implements processor.Lease.
func (p *process) OK(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.owns {
		return fmt.Errorf("%w: %s was told so", processor.ErrNotOwner, p.name)
	}
	return nil
}

// Fenced implements processor.Lease.
func (p *process) Fenced(ctx context.Context) error { return p.OK(ctx) }

// Dial implements nats.CustomDialer.
func (p *process) Dial(string, string) (net.Conn, error) {
	if p.isDead() {
		return nil, errKilled
	}
	c, err := p.world.dial(p)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// kill ends the process at once: nothing that it does from now on has an effect.
func (p *process) kill() {
	if p.isDead() {
		return
	}
	close(p.dead)
	p.disconnect()
	p.stop()
}

// disconnect loses the connection to NATS.
func (p *process) disconnect() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// state reports whether the process has ended, and why it did so by itself.
func (p *process) state() (ended bool, final error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ended || p.isDead(), p.final
}

// connection is the client's connection; nil before it is made.
func (p *process) connection() *nats.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.nc
}

// processor is the processor of the process; nil before it is made.
func (p *process) processor() *processor.Processor {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.proc
}
