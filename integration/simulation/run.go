package simulation

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/integration/simulation/pauses"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/integration/simulation/trace"
)

const (
	restWithin   = time.Minute            // of the world's time, after the last fault
	noticeWithin = 15 * time.Second       // that the log has lost its end
	restEvery    = 250 * time.Millisecond // the world looks whether it has come to rest
	readEvery    = 32                     // events: how often readers read everything
)

// Result is what came of a history.
type Result struct {
	Broken   error // the first thing that must not be; nil if there is none
	Messages int   // in the log at the end
	Events   int   // that happened in the world
	Took     time.Duration
	Faults   map[string]int

	redialled bool        // a connection was made again
	lists     []keptState // to be checked
	queries   []*query    // to be checked
}

// Options say what Run writes down.
type Options struct {
	Trace *strings.Builder // what happens; nil: nothing
	Logs  io.Writer        // what the processes log; nil: nothing
}

// Run lets a plan happen in a bubble of its own.
func Run(t *testing.T, p *plan.Plan, o Options) (r Result) {
	defer func() {
		if failed := recover(); failed != nil {
			panic(fmt.Sprintf("seed %d: %v", p.Seed, failed))
		}
	}()
	synctest.Test(t, func(*testing.T) { r = run(p, o) })
	if r.Broken == nil {
		r.Broken = checkLists(r.lists)
	}
	if r.Broken == nil {
		r.Broken = checkQueries(r.queries, r.Faults)
	}
	if r.redialled {
		// The client library keeps timers in a sync.Pool, and a timer must not leave its
		// bubble. Two collections empty the pool.
		runtime.GC()
		runtime.GC()
	}
	return r
}

func run(p *plan.Plan, o Options) Result {
	w := newWorld(p, &trace.Trace{Began: time.Now(), Lines: o.Trace, Logs: o.Logs})
	for i := range max(p.Processes, 1) {
		w.hosts = append(w.hosts, w.start(fmt.Sprintf("p%d", i), i == 0))
	}
	if p.Region {
		w.follow()
	}
	pauses.Begin(p.Seed)
	left := len(p.Steps)
	for _, s := range p.Steps {
		w.queue.Add(w.trace.Began.Add(s.At), func() { left--; w.do(s) })
	}
	happened := 0
	goOn := func(until func() bool) {
		w.run(func() bool {
			if happened++; happened%readEvery == 0 {
				for _, s := range w.sites() {
					s.observer.ReadAll()
				}
			}
			w.checkLateness()
			return w.broken() != nil || until()
		})
	}
	goOn(func() bool { return left == 0 })
	stood := pauses.End()
	healed := w.heal()
	rests := false
	var look func()
	look = func() {
		rests = w.rests() || time.Since(healed) > restWithin
		if w.observer.Reason() != "" && time.Since(healed) < noticeWithin {
			rests = false
		}
		w.queue.Add(time.Now().Add(restEvery), look)
	}
	w.queue.Add(time.Now().Add(3*time.Second), look)
	goOn(func() bool { return rests })
	if w.broken() == nil {
		w.judge()
	}
	w.observer.Faults()["pause"] = stood
	took := time.Since(w.trace.Began)
	w.end()
	return Result{Broken: w.broken(), Messages: w.observer.Messages(), Events: happened, Took: took,
		Faults: w.observer.Faults(), redialled: w.inbox.redialled, lists: w.lists, queries: w.queries}
}
