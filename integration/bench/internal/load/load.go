// Package load makes the documents of the bench, publishes them to each side in the same
// way, and records the expirations that a side tells its subscriber.
package load

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/jetstreamext"

	"github.com/seed18712806/lapse/sink/wire"
)

// The documents of a load, and of the warm-up before it.
const (
	realKind = "doc-"
	warmKind = "wrm-"
	warmUp   = 5000
	MinBody  = 64        // bytes
	LongTTL  = 24 * 3600 // seconds; longer than any run
)

// Load is a number of documents. They are the same in each run with the same seed.
type Load struct {
	kind string
	N    int // documents
	Size int // bytes of a document
	TTL  int // the item's own, in seconds; 0 if it has none
	// Groups is in how many groups the documents are, each in the one of its number modulo Groups, with the property group; 0
	// for no such property.
	Groups int
	text   string
}

// New makes a load of n documents of size bytes. Their own TTL is ttl seconds, or none if 0.
func New(n, size, ttl int, seed uint64) Load {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	r := rand.New(rand.NewPCG(seed, uint64(size)))
	text := make([]byte, size+8192)
	for i := range text {
		text[i] = letters[r.IntN(len(letters))]
	}
	return Load{kind: realKind, N: n, Size: size, TTL: ttl, text: string(text)}
}

// Warm returns the load of the warm-up.
func (l Load) Warm() Load {
	l.kind, l.N = warmKind, min(warmUp, l.N)
	return l
}

// Warming reports whether it is the load of a warm-up.
func (l Load) Warming() bool { return l.kind == warmKind }

// ID returns the id of document i.
func (l Load) ID(i int) string {
	b := append(make([]byte, 0, 16), l.kind...)
	for limit := 10_000_000; limit > 1 && i < limit; limit /= 10 {
		b = append(b, '0')
	}
	return string(strconv.AppendInt(b, int64(i), 10))
}

// Index returns the number of the document with an id, and whether it is one of the warm-up.
func Index(id string) (i int, warm bool, err error) {
	if len(id) < 5 || id[:4] != realKind && id[:4] != warmKind {
		return 0, false, fmt.Errorf("the bench has written no document %q", id)
	}
	i, err = strconv.Atoi(id[4:])
	return i, id[:4] == warmKind, err
}

// Body returns document i.
func (l Load) Body(i int) []byte { return l.BodyWith(i, l.TTL) }

// In reports whether a text contains document i, with any TTL.
func (l Load) In(text string, i int) bool {
	from := i * 7 % 8192
	return strings.Contains(text, l.text[from:from+l.Size-MinBody])
}

// BodyWith returns document i with another TTL of its own; 0 for none.
func (l Load) BodyWith(i, ttl int) []byte {
	b := append(make([]byte, 0, l.Size), `{"n":`...)
	b = strconv.AppendInt(b, int64(i), 10)
	if ttl != 0 {
		b = strconv.AppendInt(append(b, `,"ttl":`...), int64(ttl), 10)
	}
	if l.Groups > 0 {
		b = append(append(append(b, `,"group":"`...), l.Group(i)...), '"')
	}
	b = append(b, `,"data":"`...)
	from := i * 7 % 8192
	b = append(b, l.text[from:from+l.Size-len(b)-2]...)
	return append(b, `"}`...)
}

// Group returns the group of document i.
func (l Load) Group(i int) string { return "g" + strconv.Itoa(i%l.Groups) }

// Upsert returns the message that writes a document to a collection of lapse.
func (l Load) Upsert(collection string, i, ttl int) *nats.Msg {
	return &nats.Msg{Subject: wire.DefaultPrefix.Write(wire.Upsert, collection, l.ID(i)), Data: l.BodyWith(i, ttl)}
}

// Put returns the message that puts a document into a bucket. It is the one that
// KeyValue.Put publishes, with a TTL unless that is 0.
func (l Load) Put(bucket string, i, ttl int) *nats.Msg {
	m := &nats.Msg{Subject: "$KV." + bucket + "." + l.ID(i), Data: l.BodyWith(i, ttl)}
	if ttl != 0 {
		m.Header = nats.Header{jetstream.MsgTTLHeader: {strconv.Itoa(ttl) + "s"}}
	}
	return m
}

// Publisher makes the client that publishes every load, to lapse and to NATS KV.
func Publisher(nc *nats.Conn) (jetstream.JetStream, error) {
	return jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(8192), jetstream.WithPublishAsyncTimeout(time.Minute))
}

// Publish publishes messages asynchronously. The function that it returns waits until each
// is acknowledged.
func Publish(js jetstream.JetStream, from, to int, message func(i int) *nats.Msg) (func() error, error) {
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

// PublishAll publishes messages and waits until each is acknowledged. It limits those
// without an acknowledgement, since the server refuses more than 10,000 or 128 MB.
func PublishAll(js jetstream.JetStream, n int, message func(i int) *nats.Msg) error {
	some := min(10_000, 40_000_000/len(message(0).Data))
	waits := func() error { return nil }
	for from := 0; from < n; from += some {
		next, err := Publish(js, from, min(n, from+some), message)
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

// PublishBatch publishes messages in one fast batch, and waits until all are stored.
func PublishBatch(js jetstream.JetStream, n int, message func(i int) *nats.Msg) error {
	const flow = 500 // messages for each acknowledgement; the server allows no more
	unacknowledged := min(max(32_000_000/flow/len(message(0).Data), 1), 8)
	var failed atomic.Pointer[error]
	batch, err := jetstreamext.NewFastPublisher(js,
		jetstreamext.FastPublishFlowControl{Flow: flow, MaxOutstandingAcks: uint16(unacknowledged), AckTimeout: time.Minute},
		jetstreamext.WithFastPublisherErrorHandler(func(err error) { failed.CompareAndSwap(nil, &err) }))
	if err != nil {
		return err
	}
	for i := range n {
		if _, err := batch.AddMsg(message(i)); err != nil {
			return fmt.Errorf("publish message %d of a batch: %w", i, err)
		}
	}
	ack, err := batch.Close(context.Background())
	if failed := failed.Load(); failed != nil {
		err = *failed
	}
	if err != nil {
		return fmt.Errorf("publish a batch: %w", err)
	}
	if ack.BatchSize != n {
		return fmt.Errorf("the server has stored %d messages of a batch of %d", ack.BatchSize, n)
	}
	return nil
}

// Pace calls send about once a millisecond, so that documents are sent at a steady rate.
func Pace(ctx context.Context, n, perSecond int, send func(from, to int) error) error {
	began := time.Now()
	for sent := 0; sent < n; {
		due := min(n, int(time.Since(began).Seconds()*float64(perSecond))+1)
		if due > sent {
			if err := send(sent, due); err != nil {
				return err
			}
			sent = due
		}
		if err := Sleep(ctx, time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// perBurst is how many documents are written at once, to have nearly the same deadline.
const perBurst = 10_000

// Bursts calls send once a second, with a TTL that is one second shorter each time. So all
// documents fall due within the time that one burst takes. After a burst that takes more
// than a second, the next one begins a second later.
func Bursts(ctx context.Context, n int, send func(from, to, ttl int) error) error {
	bursts := (n + perBurst - 1) / perBurst
	last := bursts + bursts/3 + 3 // the second in which all are due
	began := time.Now()
	for i := range bursts {
		second := int(math.Ceil(time.Since(began).Seconds()))
		if i == 0 {
			second = 0
		}
		if last-second < 2 {
			return fmt.Errorf("this machine does not write %d documents a second: use a smaller -n", perBurst)
		}
		if err := Sleep(ctx, time.Until(began.Add(time.Duration(second)*time.Second))); err != nil {
			return err
		}
		if err := send(i*perBurst, min(n, (i+1)*perBurst), last-second); err != nil {
			return err
		}
	}
	return nil
}

// Sleep waits for a time, or until ctx is done.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
