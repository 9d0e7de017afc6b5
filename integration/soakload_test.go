package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle/follow"
	"github.com/seed18712806/lapse/sink/wire"
)

// byDefault and byOwn are the collections of a steady load. In the one a document expires by the default, in the
// other by a TTL of its own.
const byDefault, byOwn = "sessions", "offers"

// steadyLoad publishes writes at a constant rate, without waiting for each acknowledgement, and
// keeps nothing of them. It goes on while servers are down.
type steadyLoad struct {
	c       *harness.Client
	rate    int // messages a second
	longest int // TTL of its own, in seconds
	r       *rand.Rand
	made    int
	acked   atomic.Int64
	futures chan jetstream.PubAckFuture
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// steadyTick is how often the load publishes.
const steadyTick = 10 * time.Millisecond

func startSteadyLoad(t *testing.T, c *harness.Client, f *follow.Follower, rate, longest int, seed uint64) *steadyLoad {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	js, err := jetstream.New(c.NC, jetstream.WithPublishAsyncMaxPending(8192),
		jetstream.WithPublishAsyncTimeout(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	l := &steadyLoad{c: c, rate: rate, longest: longest, r: rand.New(rand.NewPCG(seed, 0)),
		futures: make(chan jetstream.PubAckFuture, 8192), stop: stop}
	l.done.Go(func() {
		defer close(l.futures)
		ticker := time.NewTicker(steadyTick)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for range rate * int(steadyTick) / int(time.Second) {
				if future, err := js.PublishMsgAsync(l.message()); err == nil { // else a server is down
					l.futures <- future
				}
			}
		}
	})
	l.done.Go(func() {
		for future := range l.futures {
			select {
			case ack := <-future.Ok():
				l.acked.Add(1)
				if err := f.Acked(ack.Sequence, future.Msg().Subject, future.Msg().Data); err != nil {
					t.Error(err)
				}
			case <-future.Err(): // the log may hold the message or not
			}
		}
	})
	t.Cleanup(l.end)
	return l
}

func (l *steadyLoad) end() {
	l.stop()
	l.done.Wait()
}

// message makes a write: most are of new documents, some of one that was written lately.
func (l *steadyLoad) message() *nats.Msg {
	collection, ttl := byDefault, ""
	if l.r.IntN(2) == 0 {
		collection, ttl = byOwn, fmt.Sprintf(`,"ttl":%d`, 1+l.r.IntN(l.longest))
	}
	l.made++
	id, op := l.made, wire.Upsert
	switch n := l.r.IntN(100); {
	case n < 85:
	case n < 90:
		id -= l.r.IntN(10 * l.rate)
	case n < 94:
		id, op, ttl = id-l.r.IntN(10*l.rate), wire.Patch, ""
	case n < 97:
		id, op = id-l.r.IntN(10*l.rate), wire.Touch
	default:
		id, op = id-l.r.IntN(10*l.rate), wire.Delete
	}
	var body string
	if op.HasBody() {
		body = fmt.Sprintf(`{"n":%d,"text":"%s"%s}`, l.made, strings.Repeat("x", 100+l.r.IntN(200)), ttl)
	}
	return &nats.Msg{Subject: l.c.Prefix.Write(op, collection, fmt.Sprint(id)), Data: []byte(body)}
}

// wait waits until so many more messages are acknowledged.
func (l *steadyLoad) wait(t *testing.T, more int) {
	t.Helper()
	until := l.acked.Load() + int64(more)
	harness.Until(t, harness.Limit, fmt.Sprintf("%d messages are acknowledged", until), func(context.Context) error {
		if n := l.acked.Load(); n < until {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}
