package partition

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"github.com/seed18712806/lapse/processor/health"
)

// ProblemPartitions: partitions cannot go on.
var ProblemPartitions = health.Problem{Name: "partitions", Advice: "Look at the reason: mostly Redis or NATS refuses something. lapse tries again by itself."}

// Status is what the owner of a partition tells the rest of the process: the metrics, /readyz, the
// monitor, and the senders of outcomes. The owner writes, everybody reads. Each value is read by itself:
// two values may be from different steps.
type Status struct {
	Applied atomic.Uint64         // offset that was applied
	Rebuild atomic.Uint64         // as [fold.Progress.Rebuild]
	Owned   atomic.Bool           // whether this process has ever taken the partition over
	Trouble atomic.Pointer[error] // why the partition cannot go on
	Due     atomic.Int64          // since when a document is due, Unix milliseconds; 0 if none is
	Next    atomic.Int64          // when the next document is due, Unix milliseconds; math.MaxInt64 if none is, or it was not looked up yet
	Reaped  atomic.Uint64         // documents that were reaped
	// Configured is the sequence of the stream of configurations up to which that was applied.
	Configured atomic.Uint64
	Begun      atomic.Int64 // when the present step was begun, Unix nanoseconds; 0 if there is none
	work       atomic.Pointer[string]
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

// Statuses are the statuses of all partitions of a shard.
type Statuses struct {
	Partitions []*Status
	first      int
	health     *health.Board
	mu         sync.Mutex // of Report
}

// NewStatuses makes the statuses of n partitions. first is the number of the first of them, among
// the partitions of all shards.
func NewStatuses(first, n int, board *health.Board) *Statuses {
	s := &Statuses{Partitions: make([]*Status, n), first: first, health: board}
	for i := range s.Partitions {
		s.Partitions[i] = &Status{}
		s.Partitions[i].Next.Store(math.MaxInt64)
	}
	return s
}

// Number is the number of the i-th partition, among those of all shards.
func (s *Statuses) Number(i int) int { return s.first + i }

// Applied is the offset that all partitions have applied.
func (s *Statuses) Applied() uint64 {
	applied := uint64(math.MaxUint64)
	for _, one := range s.Partitions {
		applied = min(applied, one.Applied.Load())
	}
	return applied
}

// Configured is the sequence of the stream of configurations up to which all partitions have
// applied it.
func (s *Statuses) Configured() uint64 {
	configured := uint64(math.MaxUint64)
	for _, one := range s.Partitions {
		configured = min(configured, one.Configured.Load())
	}
	return configured
}

// Missing counts the partitions that have not applied the log up to a sequence, and those
// that are being rebuilt.
func (s *Statuses) Missing(start uint64) (behind, lacking int) {
	for _, one := range s.Partitions {
		if start == 0 || !one.Owned.Load() || one.Applied.Load() < start {
			behind++
		} else if one.Rebuild.Load() > 0 {
			lacking++
		}
	}
	return behind, lacking
}

// Report sets or clears the problem that partitions cannot go on. It is one problem, as
// they mostly fail together.
func (s *Statuses) Report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first error
	n := 0
	for _, one := range s.Partitions {
		if err := one.Trouble.Load(); err != nil {
			if n++; first == nil {
				first = *err // which names the partition
			}
		}
	}
	if n > 1 {
		first = fmt.Errorf("%d of %d partitions cannot go on; the first: %w", n, len(s.Partitions), first)
	}
	s.health.Set(ProblemPartitions, first)
}
