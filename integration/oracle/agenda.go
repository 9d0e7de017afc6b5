package oracle

import (
	"container/heap"
	"slices"

	"github.com/seed18712806/lapse/sink/wire"
)

// agenda says when the model has to look at a document. An instant that is too early costs a look, and nothing else:
// so a new version needs an entry only if it is due before the one that is there.
type agenda struct {
	queue visits
	first map[Name]wire.Time // of each document in the queue
}

// visit is when to look at a document.
type visit struct {
	at   wire.Time
	name Name
}

// add lets until return a document at an instant at the latest.
func (a *agenda) add(name Name, at wire.Time) {
	if first, there := a.first[name]; there && first <= at {
		return
	}
	if a.first == nil {
		a.first = map[Name]wire.Time{}
	}
	a.first[name] = at
	heap.Push(&a.queue, visit{at, name})
}

// until removes the documents that are to be looked at by an instant, and returns them.
func (a *agenda) until(now wire.Time) (names []Name) {
	for len(a.queue) > 0 && a.queue[0].at <= now {
		v := heap.Pop(&a.queue).(visit)
		if a.first[v.name] == v.at { // or it was returned at an earlier instant
			delete(a.first, v.name)
			names = append(names, v.name)
		}
	}
	return names
}

// visits is a [heap.Interface], the earliest first.
type visits []visit

func (v visits) Len() int           { return len(v) }
func (v visits) Less(i, j int) bool { return v[i].at < v[j].at }
func (v visits) Swap(i, j int)      { v[i], v[j] = v[j], v[i] }
func (v *visits) Push(x any)        { *v = append(*v, x.(visit)) }
func (v *visits) Pop() any {
	last := (*v)[len(*v)-1]
	*v = slices.Delete(*v, len(*v)-1, len(*v))
	return last
}
