package transit

import (
	"container/heap"
	"time"
)

// event is something that happens at an instant.
type event struct {
	at    time.Time
	order int // of events at the same instant
	do    func()
}

// Queue holds the events to come. Its other methods are for package heap.
type Queue struct {
	events []event
	next   int
}

func (q *Queue) Len() int      { return len(q.events) }
func (q *Queue) Swap(i, j int) { q.events[i], q.events[j] = q.events[j], q.events[i] }
func (q *Queue) Push(x any)    { q.events = append(q.events, x.(event)) }
func (q *Queue) Less(i, j int) bool {
	a, b := q.events[i], q.events[j]
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.order < b.order
}

func (q *Queue) Pop() any {
	last := q.events[len(q.events)-1]
	q.events = q.events[:len(q.events)-1]
	return last
}

// Add lets something happen at an instant.
func (q *Queue) Add(at time.Time, do func()) {
	q.next++
	heap.Push(q, event{at: at, order: q.next, do: do})
}

// First is the instant of the next event.
func (q *Queue) First() (at time.Time, ok bool) {
	if len(q.events) == 0 {
		return at, false
	}
	return q.events[0].at, true
}

// Next removes the next event, and lets it happen.
func (q *Queue) Next() { heap.Pop(q).(event).do() }

// Later is the later of two instants.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
