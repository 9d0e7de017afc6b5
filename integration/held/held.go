// Package held lets something happen within an operation of lapse: between two of its calls to Redis or NATS.
// Command insert finds the operations that make more than one call, and writes a copy of lapse that calls [Begin]
// in each of them, and [Operation.Call] in front of each of its calls. lapse itself knows nothing of it.
//
// LAPSE_HELD_CUT names operations within which a process loses its connections, whatever test it runs in (cut.go).
//
// A test names an operation, and what happens ([Each]). It runs once for each gap between two calls: the call behind
// the gap is held until that has happened. In the simulation much happens all the time; it says so ([Happened]), and
// each operation notices what has happened since its last call.
//
// Each gap in which something has happened is noted in the file that LAPSE_HELD names. Then insert lists the
// operations within which nothing has.
package held

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// mostGaps is in how many gaps of an operation a test lets something happen: a page has as many as it has calls.
const mostGaps = 6

// Kind is what can happen within an operation.
type Kind int

// The kinds.
const (
	Write        Kind = iota // somebody writes, configures, or changes what the operation is about
	Takeover                 // another process takes the shard, or the lease
	Restart                  // a server or a process starts anew, or loses something
	Reconnection             // a connection is lost, and made again
	kinds
)

// String returns the name of a kind.
func (k Kind) String() string { return [...]string{"write", "takeover", "restart", "reconnection"}[k] }

var (
	happened [kinds]atomic.Uint64 // how often each kind has happened

	mu    sync.Mutex
	noted = map[string]bool{}
	wait  *plan // what a test waits for
)

// plan is what a test lets happen.
type plan struct {
	operation string
	gap       int // the number of the gap, from 1 on
	kind      Kind
	happen    func()
	done      bool
}

// Calls is noted of an operation that has made more than one call, whether something has happened in between or not.
const Calls = "calls"

// Operation is one run of an operation.
type Operation struct {
	name string

	mu     sync.Mutex
	calls  int
	before [kinds]uint64
}

// Begin is at the beginning of an operation.
func Begin(name string) *Operation { return &Operation{name: name} }

// Call is in front of a call of the operation.
func (o *Operation) Call() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls++; o.calls > 1 {
		if happen := due(o.name, o.calls-1); happen != nil {
			happen()
		}
		if o.calls == 2 && once(o.name, "cut") && mayCut(o.name) {
			LoseConnections()
			Happened(Reconnection)
		}
	}
	for k := range kinds {
		now := happened[k].Load()
		if o.calls > 1 && now != o.before[k] {
			note(o.name, k.String())
		}
		o.before[k] = now
	}
	if o.calls > 1 {
		note(o.name, Calls)
	}
}

// due returns what is to happen in a gap of an operation, once; nil if nothing is.
func due(operation string, gap int) func() {
	mu.Lock()
	defer mu.Unlock()
	w := wait
	if w == nil || w.done || w.operation != operation || w.gap != gap {
		return nil
	}
	w.done = true
	return func() { w.happen(); Happened(w.kind) }
}

// Happened says that something has happened.
func Happened(k Kind) { happened[k].Add(1) }

// once reports whether it is asked for the first time.
func once(operation, what string) bool {
	mu.Lock()
	defer mu.Unlock()
	key := operation + " " + what
	if noted[key] {
		return false
	}
	noted[key] = true
	return true
}

// note writes that something has happened within an operation, or [Calls].
func note(operation, what string) {
	to := os.Getenv("LAPSE_HELD")
	if to == "" || !once(operation, what) {
		return
	}
	line := operation + " " + what + "\n"
	f, err := os.OpenFile(to, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // one write: other processes do the same
	if err == nil {
		_, err = f.WriteString(line)
		_ = f.Close()
	}
	if err != nil {
		panic(err)
	}
}

// Each runs a test once for each gap of the named operation, up to the sixth. The test makes what it needs, calls
// during with what is to happen, runs the operation, and checks what must hold; that one goroutine's operation may
// begin only after the call of during, and once it has happened it does not happen again. Each fails if the
// operation has no gap.
func Each(t *testing.T, operation string, kind Kind, test func(t *testing.T, during func(happen func()))) {
	t.Helper()
	for gap := 1; gap <= mostGaps; gap++ {
		p := &plan{operation: operation, gap: gap, kind: kind}
		ok := t.Run(fmt.Sprintf("gap %d", gap), func(t *testing.T) {
			t.Cleanup(func() { set(nil) })
			test(t, func(happen func()) {
				p.happen = happen
				set(p)
			})
		})
		if !ok || !p.isDone() {
			if gap == 1 && ok {
				t.Errorf("%s made no second call: nothing could happen within it", operation)
			}
			return
		}
	}
}

// set sets what a test waits for.
func set(p *plan) {
	mu.Lock()
	defer mu.Unlock()
	wait = p
}

// isDone reports whether it has happened.
func (p *plan) isDone() bool {
	mu.Lock()
	defer mu.Unlock()
	return p.done
}

// Kinds returns what is noted in lines of LAPSE_HELD, by operation.
func Kinds(lines []string) map[string][]string {
	of := map[string][]string{}
	for _, line := range lines {
		var operation, kind string
		if n, _ := fmt.Sscan(line, &operation, &kind); n == 2 && !slices.Contains(of[operation], kind) {
			of[operation] = append(of[operation], kind)
		}
	}
	return of
}
