package processor

import (
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/shard"
)

// TestG11_ASlowStepSaysWhatItDoes: the reason of a step that takes long names what the step does now, and blames
// nobody else.
func TestG11_ASlowStepSaysWhatItDoes(t *testing.T) {
	p, now := &shard.Status{}, time.Now()
	check := func(want string) {
		t.Helper()
		got := ""
		if err := slowStep(p, now); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	check("")
	p.Begun.Store(now.Add(-slowAfter).UnixNano())
	check("")
	p.Begun.Store(now.Add(-6 * time.Second).UnixNano())
	check("a step has taken 6s so far, and is computing")
	end := p.Works("waiting for NATS (publish)")
	check("a step has taken 6s so far, and is waiting for NATS (publish)")
	inner := p.Works("waiting for Redis (verify)")
	check("a step has taken 6s so far, and is waiting for Redis (verify)")
	inner()
	check("a step has taken 6s so far, and is waiting for NATS (publish)")
	end()
	p.Works("merging patches into orders/42, a document of 3.2 MB")
	check("a step has taken 6s so far, and is merging patches into orders/42, a document of 3.2 MB")
}
