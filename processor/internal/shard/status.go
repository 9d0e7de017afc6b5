package shard

import (
	"math"
	"sync/atomic"

	"github.com/seed18712806/lapse/processor/health"
)

// ProblemShard: the shard cannot go on.
var ProblemShard = health.Problem{Name: "shard", Advice: "Look at the reason: mostly Redis or NATS refuses " +
	"something. lapse tries again by itself."}

// ProblemIndexes: the property indexes that are being made wait.
var ProblemIndexes = health.Problem{
	Name: "indexes", Advice: "Make room in Redis, or raise its maxmemory. lapse goes on with the indexes by itself.",
	Minor: true,
}

// Status is what the owner tells the rest of the process: the metrics, /readyz, the monitor, and the regions. The
// owner writes, everybody reads. Each value is read by itself: two values may be from different steps.
type Status struct {
	Applied atomic.Uint64 // offset that was applied
	// Committed is the offset that Redis has. What is behind it may be Applied, and is applied again after a failure.
	Committed atomic.Uint64
	Rebuild   atomic.Uint64         // as [fold.Progress.Rebuild]
	Owned     atomic.Bool           // whether this process has ever taken the shard over
	Trouble   atomic.Pointer[error] // why the shard cannot go on
	Due       atomic.Int64          // since when a document is due, Unix milliseconds; 0 if none is
	// when the next document is due, Unix milliseconds; math.MaxInt64 if none is, or it was not looked up yet
	FirstDue atomic.Int64
	Reaped   atomic.Uint64 // documents that were reaped
	Paused   atomic.Int64  // collections that are paused
	Making   atomic.Int64  // property indexes that are being made
	// Configured is the sequence of the stream of configurations up to which that was applied.
	Configured atomic.Uint64
	Begun      atomic.Int64 // when the present step was begun, Unix nanoseconds; 0 if there is none

	waits  bool // the property indexes that are being made wait
	work   atomic.Pointer[string]
	health *health.Board
}

// Works notes what the present step does, which may take long, until the caller calls end.
func (s *Status) Works(what string) (end func()) {
	before := s.work.Swap(&what)
	return func() { s.work.Store(before) }
}

// Work is what the present step does, for people: it completes the sentence "the step is …".
func (s *Status) Work() string {
	if what := s.work.Load(); what != nil {
		return *what
	}
	return "computing"
}

// NewStatus makes the status of a shard.
func NewStatus(board *health.Board) *Status {
	s := &Status{health: board}
	s.FirstDue.Store(math.MaxInt64)
	return s
}

// Lacks tells what the shard lacks of the log up to a sequence, which is 0 until the shard was taken over: it has not
// applied all of it (behind), or it is being rebuilt.
func (s *Status) Lacks(start uint64) (behind, rebuilds bool) {
	if start == 0 || !s.Owned.Load() || s.Applied.Load() < start {
		return true, false
	}
	return false, s.Rebuild.Load() > 0
}

// trouble sets or clears the problem that the shard cannot go on.
func (s *Status) trouble(err error) {
	if err != nil {
		s.Trouble.Store(&err)
	} else if s.Trouble.Swap(nil) == nil {
		return
	}
	s.health.Set(ProblemShard, err)
}

// makes sets or clears the problem that the property indexes that are being made wait.
func (s *Status) makes(err error) {
	if err == nil && !s.waits {
		return
	}
	s.waits = err != nil
	s.health.Set(ProblemIndexes, err)
}
