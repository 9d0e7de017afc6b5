package simulation

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

// queue holds the events to come.
type queue struct {
	events []event
	next   int
}

func (q *queue) Len() int      { return len(q.events) }
func (q *queue) Swap(i, j int) { q.events[i], q.events[j] = q.events[j], q.events[i] }
func (q *queue) Push(x any)    { q.events = append(q.events, x.(event)) }
func (q *queue) Less(i, j int) bool {
	a, b := q.events[i], q.events[j]
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.order < b.order
}

func (q *queue) Pop() any {
	last := q.events[len(q.events)-1]
	q.events = q.events[:len(q.events)-1]
	return last
}

// add lets something happen at an instant.
func (q *queue) add(at time.Time, do func()) {
	q.next++
	heap.Push(q, event{at: at, order: q.next, do: do})
}

// first is the instant of the next event.
func (q *queue) first() (at time.Time, ok bool) {
	if len(q.events) == 0 {
		return at, false
	}
	return q.events[0].at, true
}

// pop removes the next event.
func (q *queue) pop() event { return heap.Pop(q).(event) }
