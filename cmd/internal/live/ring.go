package live

import (
	"cmp"
	"slices"
	"sync"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// The most that a ring keeps.
const (
	ringMessages = 8192
	ringBytes    = 16 << 20
)

// topic is what a client follows: the messages of a kind, of all collections if the name is empty; with an id those
// about one document, and drops.
type topic struct {
	kind       Kind
	collection string
	id         string
}

// covers reports whether the topic has a message.
func (t topic) covers(a wire.About) bool {
	return (t.kind == a.Kind || t.kind == Changed && (a.Kind == Expired || a.Kind == Due)) &&
		(t.collection == "" || t.collection == a.Collection) && (t.id == "" || a.ID == "" || t.id == a.ID)
}

// message is a message of the stream, written for the clients.
type message struct {
	seq   uint64
	about wire.About
	name  string // of the event, for clients that follow changes
	frame []byte // without the name
}

// frames are what a client of a topic gets of a message that the topic covers.
func (m message) frames(t topic) [][]byte {
	if t.kind == Changed {
		return [][]byte{[]byte("event: " + m.name + "\n"), m.frame}
	}
	return [][]byte{m.frame}
}

// ring is the last messages of the stream. All messages behind the sequence from, up to the
// sequence last, are in it.
type ring struct {
	mu         sync.Mutex
	messages   []message
	bytes      int
	from, last uint64
	waiting    map[topic]*waiter
}

// waiter is what the clients of a topic wait for: the next message of it.
type waiter struct {
	come    chan struct{}
	first   uint64 // the sequence of that message, once it has come
	clients int
}

func newRing(from uint64) *ring {
	return &ring{from: from, last: from, waiting: make(map[topic]*waiter)}
}

// add adds messages, in order, and wakes the clients that wait for one of them.
func (r *ring) add(messages []message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range messages {
		if m.seq <= r.last {
			continue
		}
		r.messages = append(r.messages, m)
		r.bytes += len(m.frame)
		r.last = m.seq
		r.wakeFor(m.about, m.seq)
	}
	over := 0
	for len(r.messages)-over > ringMessages || r.bytes > ringBytes && over < len(r.messages) {
		r.bytes -= len(r.messages[over].frame)
		r.from = r.messages[over].seq
		r.messages[over] = message{}
		over++
	}
	r.messages = r.messages[over:] // append makes room by copying the rest from time to time
}

// wakeFor wakes the clients of each topic that covers a message.
func (r *ring) wakeFor(a wire.About, seq uint64) {
	r.wake(topic{kind: a.Kind, collection: a.Collection}, seq)
	r.wake(topic{kind: a.Kind}, seq)
	if a.Kind != Expired && a.Kind != Due && a.Kind != Changed {
		return
	}
	r.wake(topic{kind: Changed, collection: a.Collection}, seq)
	if a.ID != "" {
		r.wake(topic{kind: Changed, collection: a.Collection, id: a.ID}, seq)
		return
	}
	for t := range r.waiting { // a drop is about each document
		if t.covers(a) {
			r.wake(t, seq)
		}
	}
}

func (r *ring) wake(t topic, seq uint64) {
	if w := r.waiting[t]; w != nil {
		w.first = seq
		close(w.come)
		delete(r.waiting, t)
	}
}

// read returns frames of a topic behind a position, at most size bytes and one message, and the
// new position. It passes over messages that the state has, which may be nil. If there are none, it returns what to
// wait for. ok = false means that the ring no longer has all that is behind the position.
func (r *ring) read(
	t topic, position uint64, size int, state *client.State,
) (frames [][]byte, next uint64, wait *waiter, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if position < r.from {
		return nil, position, nil, false
	}
	i, _ := slices.BinarySearchFunc(r.messages, position+1, func(m message, seq uint64) int {
		return cmp.Compare(m.seq,
			seq)
	})
	for ; i < len(r.messages) && size > 0; i++ {
		m := r.messages[i]
		position = m.seq
		if t.covers(m.about) && !state.Has(m.seq, m.about) {
			frames = append(frames, m.frames(t)...)
			size -= len(m.frame)
		}
	}
	if len(frames) > 0 {
		return frames, position, nil, true
	}
	if wait = r.waiting[t]; wait == nil {
		wait = &waiter{come: make(chan struct{})}
		r.waiting[t] = wait
	}
	wait.clients++
	return nil, max(position, r.last), wait, true
}

// leave ends a wait for a message that has not come.
func (r *ring) leave(t topic, w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.clients--; w.clients == 0 && r.waiting[t] == w {
		delete(r.waiting, t)
	}
}

// bounds are the sequences between which the ring has all messages.
func (r *ring) bounds() (from, last uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from, r.last
}
