package serve

import (
	"context"
	"errors"
	"time"

	"github.com/seed18712806/lapse/processor/health"
)

// gateLongest is for how long clients wait at most while the process starts. A process that takes longer answers why.
const gateLongest = 3 * time.Second

// gate keeps clients waiting while the process starts, which would otherwise answer the first ones with 503: until
// it is open, the embedded NATS server does not listen, and requests wait. It opens once the process is ready, and
// for good.
type gate struct{ opened chan struct{} }

func newGate() *gate { return &gate{make(chan struct{})} }

// run opens the gate when the process is ready, when gateLongest is over, or when ctx is done. listen lets the
// embedded NATS server listen before that; it is nil if there is none.
func (g *gate) run(ctx context.Context, ready func() (string, health.Problems), listen func() error) error {
	defer close(g.opened)
	waiting, cancel := context.WithTimeout(ctx, gateLongest)
	defer cancel()
	untilReady(waiting, ready)
	if listen == nil || ctx.Err() != nil {
		return nil
	}
	return listen()
}

// ready is the state of the process, which is not ready before the gate is open.
func (g *gate) ready(of func() (string, health.Problems)) func() (string, health.Problems) {
	return func() (string, health.Problems) {
		role, problems := of()
		select {
		case <-g.opened:
		default:
			problems.Add(health.Problem{Reason: errors.New("this process is starting"), Advice: "Wait some seconds."})
		}
		return role, problems
	}
}

// untilReady returns when the process is ready, or ctx is done.
func untilReady(ctx context.Context, ready func() (string, health.Problems)) {
	const interval = 10 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if _, problems := ready(); problems == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
