package serve

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink/credentials"
)

var problemPermissions = health.Problem{Name: "permissions in NATS", Advice: "Give the NATS user of lapse the " +
	"permission that is named."}

const (
	deniedEvery = time.Second

	// lapse repeats what is denied, so a permission that has not been missed for so long is
	// there again.
	deniedFor = 20 * time.Second
	// The server does not take up a subscription again that it has denied, so after this the
	// connection is made anew.
	subscribeAgain = 5 * time.Second

	deniedAtMost = 100 // one missing permission can deny any number of subjects
)

// natsPermissions keeps what the NATS server denies to this process. The server does not answer
// a request that it denies: without this, all that shows is that no answer comes.
type natsPermissions struct {
	mu       sync.Mutex
	denied   map[credentials.Denied]*denied
	starting context.CancelCauseFunc // ends the start; nil once the process runs
}

type denied struct {
	last      time.Time
	subscribe *nats.Conn // on which to subscribe again; nil if that was done
}

// newPermissions makes permissions that know of no denial.
func newPermissions() *natsPermissions {
	return &natsPermissions{denied: make(map[credentials.Denied]*denied)}
}

// Note notes an error of a connection. It reports whether that is a denial.
func (p *natsPermissions) Note(nc *nats.Conn, err error) bool {
	what := credentials.AsDenied(err)
	if what == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.denied[*what]
	if d == nil {
		if len(p.denied) == deniedAtMost {
			return true
		}
		d = &denied{}
		p.denied[*what] = d
	}
	d.last = time.Now()
	if what.Subscribe {
		d.subscribe = nc
	}
	if p.starting != nil {
		p.starting(explain(what))
	}
	return true
}

func explain(what error) error {
	return fmt.Errorf("%w: give lapse this permission (deploy/nats/accounts.conf lists all that it needs)", what)
}

// Start runs a part of the start. It ends it at the first denial, which then is the error.
func (p *natsPermissions) Start(ctx context.Context, part func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p.mu.Lock()
	p.starting = cancel
	p.mu.Unlock()
	err := part(ctx)
	p.mu.Lock()
	p.starting = nil
	p.mu.Unlock()
	if err != nil && errors.As(context.Cause(ctx), new(*credentials.Denied)) {
		return context.Cause(ctx)
	}
	return err
}

// Watch reports the denials on the board, until ctx is done.
func (p *natsPermissions) Watch(ctx context.Context, board *health.Board) {
	tick := time.NewTicker(deniedEvery)
	defer tick.Stop()
	for {
		again, err := p.check(time.Now())
		board.Set(problemPermissions, err)
		for _, nc := range again {
			_ = nc.ForceReconnect() // it fails only if the connection is closed
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// check forgets denials that are over. It returns the others, and the connections that have
// to subscribe again.
func (p *natsPermissions) check(now time.Time) (again []*nats.Conn, err error) {
	const most = 3 // that are named
	p.mu.Lock()
	defer p.mu.Unlock()
	var texts []string
	for what, d := range p.denied {
		age := now.Sub(d.last)
		if age > deniedFor {
			delete(p.denied, what)
			continue
		}
		texts = append(texts, what.Error())
		if d.subscribe != nil && age > subscribeAgain {
			if !slices.Contains(again, d.subscribe) {
				again = append(again, d.subscribe)
			}
			d.subscribe = nil
		}
	}
	slices.Sort(texts)
	var all []error
	for _, text := range texts[:min(len(texts), most)] {
		all = append(all, explain(errors.New(text)))
	}
	if n := len(texts) - most; n > 0 {
		all = append(all, fmt.Errorf("and %d more", n))
	}
	return again, errors.Join(all...)
}
