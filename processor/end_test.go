package processor

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
)

// takenAway is a lease that is lost at some time. The request that shows it got no answer in time.
type takenAway struct{ lost atomic.Bool }

func (l *takenAway) OK(context.Context) error {
	if l.lost.Load() {
		return fmt.Errorf("%w: %w", ErrNotOwner, context.DeadlineExceeded)
	}
	return nil
}

func (l *takenAway) Fenced(ctx context.Context) error { return l.OK(ctx) }

// A processor that nobody has stopped ends with the reason, also if that comes from a request that got no answer. Its
// caller would take nil for a clean end, and end the process.
func TestG1_NobodyStoppedIt(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[0], Options{})
	p, err := New(r.nc, r.redis, r.opts)
	if err != nil {
		t.Fatal(err)
	}
	lease, ended := &takenAway{}, make(chan error, 1)
	go func() { ended <- p.RunAs(t.Context(), lease) }()
	eventually(t, "the processor is ready", func() bool { return p.TakenOver() && p.Ready() == nil })
	lease.lost.Store(true)
	if err := <-ended; !errors.Is(err, ErrNotOwner) {
		t.Errorf("it ended with %v", err)
	}
}
