package access

import (
	"container/list"
	"context"
	"crypto/sha256"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Client is the sender of a request. The zero value is a client that needs no token.
type Client [sha256.Size]byte

// ClientOf is the client with a token. It has a hash, so that a dump of the memory shows no token.
func ClientOf(token string) Client { return sha256.Sum256([]byte(token)) }

// Limit is the most of something that all clients have at a time. A client with a token may not
// have more than it leaves free, so one alone never has more than half. Several goroutines may use
// it.
type Limit struct {
	name string // ends the code of the problem
	what string
	most int64

	mu      sync.Mutex
	used    int64
	refused int64 // how often
	by      map[Client]int64
	waiting list.List // of *waiter, in the order in which they came
}

// waiter waits for its part of a limit.
type waiter struct {
	client Client
	n      int64
	taken  chan struct{}
}

const (
	mostWaiting = 2048            // for a limit
	waitWithin  = 1 * time.Second // so long
)

// NewLimit makes a limit. what is the text for people.
func NewLimit(name, what string, most int64) *Limit {
	return &Limit{name: name, what: what, most: most, by: make(map[Client]int64)}
}

// Take takes n until they are given back. An error is a problem that names the limit; then
// nothing was taken.
func (l *Limit) Take(c Client, n int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.take(c, n)
	if err != nil {
		l.refused++
	}
	return err
}

func (l *Limit) take(c Client, n int64) error {
	mine, free := l.by[c], l.most-l.used
	switch {
	case n > free:
		return NewProblem(http.StatusServiceUnavailable, TooMany+l.name,
			"this process has %d %s under way, and allows %d: try again, or ask another process", l.used, l.what, l.most)
	case c != (Client{}) && mine+n > free:
		return NewProblem(http.StatusServiceUnavailable, TooMany+l.name,
			"this token has %d %s under way, and the %d that are free are not for it alone: wait for some of its requests to "+
				"end, or ask another process", mine, l.what, free)
	}
	l.used += n
	l.by[c] = mine + n
	return nil
}

// Wait is Take for what will soon be free: it waits for that up to a second, or until ctx is done.
func (l *Limit) Wait(ctx context.Context, c Client, n int64) error {
	l.mu.Lock()
	err := l.take(c, n)
	if err == nil || l.waiting.Len() >= mostWaiting {
		if err != nil {
			l.refused++
		}
		l.mu.Unlock()
		return err
	}
	w := &waiter{c, n, make(chan struct{})}
	place := l.waiting.PushBack(w)
	l.mu.Unlock()
	end := time.NewTimer(waitWithin)
	defer end.Stop()
	select {
	case <-w.taken:
		return nil
	case <-end.C:
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-w.taken: // just now
		return nil
	default:
	}
	l.waiting.Remove(place)
	l.refused++
	return err
}

// Give returns n of what a client has taken to the limit, and lets others have it that wait.
func (l *Limit) Give(c Client, n int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used -= n
	if l.by[c] -= n; l.by[c] == 0 {
		delete(l.by, c)
	}
	for place := l.waiting.Front(); place != nil && l.used < l.most; {
		w, next := place.Value.(*waiter), place.Next()
		if l.take(w.client, w.n) == nil {
			l.waiting.Remove(place)
			close(w.taken)
		}
		place = next
	}
}

// Used is how much is taken.
func (l *Limit) Used() int64 { l.mu.Lock(); defer l.mu.Unlock(); return l.used }

var (
	limitUsed = prometheus.NewDesc("lapse_http_taken", "What the requests over HTTP have of a limit now.",
		[]string{"limit"}, nil)
	limitMost = prometheus.NewDesc("lapse_http_allowed", "What the requests over HTTP may have of a limit.",
		[]string{"limit"}, nil)
	limitRefused = prometheus.NewDesc("lapse_http_refused_total", "Requests over HTTP that this process has refused "+
		"because they would exceed a limit.", []string{"limit"}, nil)
)

// Limits are a [prometheus.Collector] of several limits.
type Limits []*Limit

// Describe implements [prometheus.Collector].
func (Limits) Describe(c chan<- *prometheus.Desc) { c <- limitUsed; c <- limitMost; c <- limitRefused }

// Collect implements [prometheus.Collector].
func (ls Limits) Collect(c chan<- prometheus.Metric) {
	for _, l := range ls {
		l.mu.Lock()
		used, refused := l.used, l.refused
		l.mu.Unlock()
		c <- prometheus.MustNewConstMetric(limitUsed, prometheus.GaugeValue, float64(used), l.name)
		c <- prometheus.MustNewConstMetric(limitMost, prometheus.GaugeValue, float64(l.most), l.name)
		c <- prometheus.MustNewConstMetric(limitRefused, prometheus.CounterValue, float64(refused), l.name)
	}
}

// Hold is what one request has taken of limits. One goroutine uses it.
type Hold struct {
	client Client
	bytes  *Limit
	size   int64
	slot   *Limit // nil if it has none
}

// NewHold makes the hold of a request that has taken nothing.
func NewHold(c Client, bytes *Limit) *Hold { return &Hold{client: c, bytes: bytes} }

// Enter takes a slot.
func (h *Hold) Enter(l *Limit) error {
	if err := l.Take(h.client, 1); err != nil {
		return err
	}
	h.slot = l
	return nil
}

// Size is how many bytes the request holds.
func (h *Hold) Size() int64 { return h.size }

// Bytes makes the bytes that the request holds n. After an error it holds as many as before.
func (h *Hold) Bytes(n int64) error {
	if n == h.size {
		return nil
	}
	if n < h.size {
		h.bytes.Give(h.client, h.size-n)
	} else if err := h.bytes.Take(h.client, n-h.size); err != nil {
		return err
	}
	h.size = n
	return nil
}

// Expect makes the bytes that the request holds n, before it reads what may be so large: what it does not need it gives
// back later. It waits a while if others have them, for at most a sixteenth of all, beside what it holds already.
func (h *Hold) Expect(ctx context.Context, n int64) error {
	n = min(n, max(h.size, h.bytes.most/16))
	if n <= h.size {
		return h.Bytes(n)
	}
	if err := h.bytes.Wait(ctx, h.client, n-h.size); err != nil {
		return err
	}
	h.size = n
	return nil
}

// leastBytes is what a request holds at least while its body comes: its connection needs buffers.
const leastBytes = 64 << 10

// Body is the body of a request. The request holds the bytes that have come.
func (h *Hold) Body(from io.ReadCloser) io.ReadCloser { return &body{ReadCloser: from, hold: h} }

type body struct {
	io.ReadCloser
	hold *Hold
	come int64
}

// Read implements [io.Reader]. Its error is a problem if a limit is reached.
func (b *body) Read(p []byte) (int, error) {
	if err := b.hold.Bytes(max(leastBytes, b.come)); err != nil {
		return 0, err
	}
	n, err := b.ReadCloser.Read(p)
	b.come += int64(n)
	return n, err
}

// Leave gives everything back.
func (h *Hold) Leave() {
	if h.slot != nil {
		h.slot.Give(h.client, 1)
		h.slot = nil
	}
	_ = h.Bytes(0) // to give back cannot fail
}
