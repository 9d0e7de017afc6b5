package sink

import (
	"context"
	"sync"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

// leadScript reads the head alone. It takes the keys of the state and the configurations.
var leadScript = layout.NewHeadScript("return {head(KEYS[1], KEYS[2])}")

// leadTimeout limits a question that several reads share. Each read leaves it when its own
// context ends.
const leadTimeout = 5 * time.Second

// leads asks the master about one shard. At most one question is under way. Reads that
// begin meanwhile share the next one, because the master may have answered the present one
// before they began.
type leads struct {
	master *layout.Runner

	mu       sync.Mutex
	underWay bool
	began    time.Time        // when the question under way began
	next     *replicaQuestion // nil if no read waits for one
}

// replicaQuestion is a question that has not begun yet, or its answer once done is closed.
type replicaQuestion struct {
	keys    []string
	waiting int
	done    chan struct{}
	head    layout.Head
	err     error
}

// get returns the head that the master had after get was called.
func (l *leads) get(ctx context.Context, keys []string) (layout.Head, error) {
	l.mu.Lock()
	if !l.underWay {
		l.underWay, l.began = true, time.Now()
		l.mu.Unlock()
		defer l.finish()
		return l.ask(ctx, keys)
	}
	if l.next == nil {
		l.next = &replicaQuestion{keys: keys, done: make(chan struct{})}
	}
	q := l.next
	if q.waiting >= layout.MostWaiting && time.Since(l.began) > layout.SilentAfter {
		l.mu.Unlock()
		return layout.Head{}, layout.ErrSilent
	}
	q.waiting++
	l.mu.Unlock()
	select {
	case <-q.done:
		return q.head, q.err
	case <-ctx.Done():
		return layout.Head{}, ctx.Err()
	}
}

// finish ends a question. If reads wait for the next one, it begins.
func (l *leads) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.next
	l.next = nil
	if q == nil {
		l.underWay = false
		return
	}
	l.began = time.Now()
	go func() {
		defer l.finish()
		defer close(q.done)
		ctx, cancel := context.WithTimeout(context.Background(), leadTimeout)
		defer cancel()
		q.head, q.err = l.ask(ctx, q.keys)
	}()
}

func (l *leads) ask(ctx context.Context, keys []string) (layout.Head, error) {
	reply, err := l.master.Run(ctx, leadScript, keys)
	return reply.Head(0), err
}

// fresh reports whether a replica that has head is not behind a master that had lead. A
// version names one state. With another version, the replica must have applied more of the
// log.
func fresh(head, lead layout.Head) bool {
	if head.Version == lead.Version {
		return true
	}
	same := head.Log == lead.Log && head.Format == lead.Format && head.Shards == lead.Shards && head.Rebuild == ""
	return same && (head.Offset > lead.Offset || head.Offset == lead.Offset && head.Watermark > lead.Watermark)
}

// newLeads makes the leads of each shard, by the key of its state.
func newLeads(master *layout.Runner) func(key string) *leads {
	var all sync.Map
	return func(key string) *leads {
		one, ok := all.Load(key)
		if !ok {
			one, _ = all.LoadOrStore(key, &leads{master: master})
		}
		return one.(*leads)
	}
}
