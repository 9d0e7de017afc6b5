package live

import (
	"cmp"
	"slices"
	"sync"
)

// The most that a ring keeps.
const (
	ringMessages = 8192
	ringBytes    = 16 << 20
)

// topic is what a client follows: the messages of a kind, of all collections if the name is empty.
type topic struct {
	kind       Kind
	collection string
}

// covers reports whether the topic has the messages of another.
func (t topic) covers(of topic) bool {
	return t.kind == of.kind && (t.collection == "" || t.collection == of.collection)
}

// message is a message of the stream, written for the clients.
type message struct {
	seq   uint64
	topic topic
	frame []byte
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
		r.wake(m.topic, m.seq)
		r.wake(topic{kind: m.topic.kind}, m.seq)
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

func (r *ring) wake(t topic, seq uint64) {
	if w := r.waiting[t]; w != nil {
		w.first = seq
		close(w.come)
		delete(r.waiting, t)
	}
}

// read returns frames of a topic behind a position, at most size bytes and one frame, and the
// new position. If there are none, it returns what to wait for. ok = false means that the ring
// no longer has all that is behind the position.
func (r *ring) read(t topic, position uint64, size int) (frames [][]byte, next uint64, wait *waiter, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if position < r.from {
		return nil, position, nil, false
	}
	i, _ := slices.BinarySearchFunc(r.messages, position+1, func(m message, seq uint64) int { return cmp.Compare(m.seq, seq) })
	for ; i < len(r.messages) && size > 0; i++ {
		m := r.messages[i]
		position = m.seq
		if t.covers(m.topic) {
			frames = append(frames, m.frame)
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
