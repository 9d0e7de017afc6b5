package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Documents of the load, and of the warm-up before it.
const (
	realKind = "doc-"
	warmKind = "wrm-"
	warmUp   = 5000
	minBody  = 64
	longTTL  = 24 * 3600 // seconds; it does not pass while anything is measured
)

// load is a number of documents, the same in every run with the same seed.
type load struct {
	kind string
	n    int
	size int // of a body
	ttl  int // the item's own, in seconds; 0 if it has none
	text string
}

func (b *bench) load(n, ttl int) load {
	return newLoad(realKind, n, b.body, ttl, b.seed)
}

func newLoad(kind string, n, size, ttl int, seed uint64) load {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	r := rand.New(rand.NewPCG(seed, uint64(size)))
	text := make([]byte, size+8192)
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return load{kind: kind, n: n, size: size, ttl: ttl, text: string(text)}
}

// warm is the load of a warm-up.
func (l load) warm() load {
	l.kind, l.n = warmKind, min(warmUp, l.n)
	return l
}

func (l load) id(i int) string {
	b := append(make([]byte, 0, 16), l.kind...)
	for limit := 10_000_000; limit > 1 && i < limit; limit /= 10 {
		b = append(b, '0')
	}
	return string(strconv.AppendInt(b, int64(i), 10))
}

// index is the document of an id, and whether it is one of the warm-up.
func index(id string) (i int, warm bool, err error) {
	if len(id) < 5 || id[:4] != realKind && id[:4] != warmKind {
		return 0, false, fmt.Errorf("%q is no document that was written", id)
	}
	i, err = strconv.Atoi(id[4:])
	return i, id[:4] == warmKind, err
}

func (l load) body(i int) []byte { return l.bodyWith(i, l.ttl) }

// bodyWith is a document of the exact size, with a TTL of its own unless that is 0.
func (l load) bodyWith(i, ttl int) []byte {
	b := append(make([]byte, 0, l.size), `{"n":`...)
	b = strconv.AppendInt(b, int64(i), 10)
	if ttl != 0 {
		b = strconv.AppendInt(append(b, `,"ttl":`...), int64(ttl), 10)
	}
	b = append(b, `,"data":"`...)
	from := i * 7 % 8192
	b = append(b, l.text[from:from+l.size-len(b)-2]...)
	return append(b, `"}`...)
}

// upsert is the message that writes a document to a collection.
func (l load) upsert(collection string, i, ttl int) *nats.Msg {
	return &nats.Msg{Subject: prefix.Write(wire.Upsert, collection, l.id(i)), Data: l.bodyWith(i, ttl)}
}

// put is the message that puts a document into a bucket, with a TTL of its own
// unless that is 0: what KeyValue.Put sends, and can only send one at a time.
func (l load) put(bucket string, i, ttl int) *nats.Msg {
	m := &nats.Msg{Subject: "$KV." + bucket + "." + l.id(i), Data: l.bodyWith(i, ttl)}
	if ttl != 0 {
		m.Header = nats.Header{jetstream.MsgTTLHeader: {strconv.Itoa(ttl) + "s"}}
	}
	return m
}

// publisher is how every load is published, to lapse and to what it is held against.
func publisher(nc *nats.Conn) (jetstream.JetStream, error) {
	return jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(8192), jetstream.WithPublishAsyncTimeout(time.Minute))
}

// publish publishes messages asynchronously. The function that it returns waits
// for the acknowledgements; every message has to have one.
func publish(js jetstream.JetStream, from, to int, message func(i int) *nats.Msg) (func() error, error) {
	futures := make([]jetstream.PubAckFuture, 0, to-from)
	for i := from; i < to; i++ {
		f, err := js.PublishMsgAsync(message(i), jetstream.WithStallWait(time.Minute))
		if err != nil {
			return nil, err
		}
		futures = append(futures, f)
	}
	return func() error {
		for _, f := range futures {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return fmt.Errorf("publish to %s: %w", f.Msg().Subject, err)
			}
		}
		return nil
	}, nil
}

// publishAll publishes messages and waits until all are acknowledged.
func publishAll(js jetstream.JetStream, n int, message func(i int) *nats.Msg) error {
	const some = 10_000 // so that futures do not pile up
	waits := func() error { return nil }
	for from := 0; from < n; from += some {
		next, err := publish(js, from, min(n, from+some), message)
		if err != nil {
			return err
		}
		if err := waits(); err != nil {
			return err
		}
		waits = next
	}
	return waits()
}

// pace calls send with the documents that are due at a steady rate, about once a
// millisecond.
func pace(ctx context.Context, n, perSecond int, send func(from, to int) error) error {
	began := time.Now()
	for sent := 0; sent < n; {
		due := min(n, int(time.Since(began).Seconds()*float64(perSecond))+1)
		if due > sent {
			if err := send(sent, due); err != nil {
				return err
			}
			sent = due
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// perBurst is how many documents are written at once so that they share a deadline
// as well as whole seconds allow.
const perBurst = 10_000

// bursts calls send once a second, with a TTL that is a second shorter each time:
// all documents fall due together, spread only by how long one burst takes.
func bursts(ctx context.Context, n int, send func(from, to, ttl int) error) error {
	last := (n + perBurst - 1) / perBurst
	began := time.Now()
	for i := range last {
		if err := sleep(ctx, time.Until(began.Add(time.Duration(i)*time.Second))); err != nil {
			return err
		}
		if err := send(i*perBurst, min(n, (i+1)*perBurst), last-i+2); err != nil {
			return err
		}
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// receipts are the expirations that a subscriber was told of.
type receipts struct {
	mu          sync.Mutex
	n           int
	times       []uint8 // how often each document came
	late        []time.Duration
	first, last time.Time // deadlines
	lastAt      time.Time // when the last came
	early       int
	doubled     int
	wrong       error // the first that could not be right
	all         chan struct{}
	warm        *receipts
}

func newReceipts(n int) *receipts {
	return &receipts{n: n, times: make([]uint8, n), late: make([]time.Duration, 0, n), all: make(chan struct{})}
}

// got notes that a document came. at is when, by this machine's clock.
func (r *receipts) got(i int, deadline, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < 0 || i >= r.n {
		r.wrong = fmt.Errorf("document %d of %d", i, r.n)
		return
	}
	r.times[i]++
	if r.times[i] > 1 {
		r.doubled++
		return
	}
	late := at.Sub(deadline)
	if late < 0 {
		r.early++
	}
	if len(r.late) == 0 || deadline.Before(r.first) {
		r.first = deadline
	}
	if deadline.After(r.last) {
		r.last = deadline
	}
	r.lastAt = at
	r.late = append(r.late, late)
	if len(r.late) == r.n {
		close(r.all)
	}
}

// fail notes what should not have come.
func (r *receipts) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wrong == nil {
		r.wrong = err
	}
}

// wait waits until all have come, and then a little for what should not come; or
// until the limit.
func (r *receipts) wait(ctx context.Context, limit time.Duration) error {
	select {
	case <-r.all:
		return sleep(ctx, 200*time.Millisecond)
	case <-time.After(limit):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// received is what came, once it was waited for.
type received struct {
	p50, p99, max           time.Duration
	perSecond               float64 // from the first deadline to the last to come
	spread                  time.Duration
	missing, early, doubled int
	wrong                   error
}

func (r *receipts) result() received {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.late)
	x := received{missing: r.n - len(r.late), early: r.early, doubled: r.doubled, wrong: r.wrong, spread: r.last.Sub(r.first)}
	if len(r.late) > 0 {
		x.p50, x.p99, x.max = quantile(r.late, 0.5), quantile(r.late, 0.99), r.late[len(r.late)-1]
		x.perSecond = float64(len(r.late)) / r.lastAt.Sub(r.first).Seconds()
	}
	return x
}

// quantile is a quantile of sorted durations.
func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
