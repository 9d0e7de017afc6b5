package simulation

import (
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/processor"
)

// latenessShown is how long NATS's clock is behind the others before lapse has to say so: by G11
// that is 10 s, and a pause may add some.
const latenessShown = 15 * time.Second

// ready stands for nothing to say, in a step says.
const ready = "ready"

// lateness watches whether lapse finds out that NATS's clock is behind, where nothing else is wrong.
type lateness struct {
	watched bool
	since   time.Time // when NATS's clock fell behind
}

func newLateness(p *plan.Plan) lateness {
	harmless := func(s plan.Step) bool {
		return slices.Contains([]string{"write", "config", "drop", "raw", "nats-clock"}, s.Verb)
	}
	return lateness{watched: !slices.ContainsFunc(p.Steps, func(s plan.Step) bool { return !harmless(s) })}
}

// checkLateness fails the history if lapse is ready although NATS's clock has been behind for long.
func (w *World) checkLateness() {
	behind := -w.clocks.nats
	switch l := &w.lateness; {
	case !l.watched:
	case min(behind, behind+w.clocks.redis) <= processor.DefaultMaxClockLead:
		l.since = time.Time{}
	case l.since.IsZero():
		l.since = time.Now()
	case time.Since(l.since) > latenessShown:
		proc := w.hosts[0].processor()
		if proc == nil {
			return
		}
		if err := proc.Ready(); err == nil || !strings.Contains(err.Error(), "clock behind") {
			w.observer.Fail("H15", "NATS's clock is %s behind, and lapse says: %v", behind, err)
		}
	}
}

// says fails the history unless the first process says something of its health now.
func (w *World) says(what string) {
	proc := w.hosts[0].processor()
	if proc == nil {
		w.observer.Fail("H16", "the process has not begun")
		return
	}
	err := proc.Ready()
	if what == ready && err == nil || err != nil && strings.Contains(err.Error(), what) {
		return
	}
	w.observer.Fail("H16", "lapse says: %v; and it is to say: %s", err, what)
}
