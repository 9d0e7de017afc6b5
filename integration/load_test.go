package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// ignore returns nil for an error that is expected.
func ignore(err, expected error) error {
	if errors.Is(err, expected) {
		return nil
	}
	return err
}

// load is a user that publishes messages of every kind at random, and records those that
// were acknowledged. It goes on while servers are down.
type load struct {
	c       *harness.Client
	stop    context.CancelFunc
	done    sync.WaitGroup
	granted chan struct{} // holds one token for each message that may be sent

	mu    sync.Mutex
	acked []sent
}

type sent struct {
	stream  string
	seq     uint64
	subject string
	body    string
}

// startLoad starts a load of four writers, which send at most 1,000 messages a second. It
// sends little more than the test waits for, so that a slow machine has no more to do.
func startLoad(t *testing.T, c *harness.Client, seed uint64) *load {
	t.Helper()
	return startLoadAhead(t, c, seed, ahead)
}

// startLoadAhead is startLoad with another bound.
func startLoadAhead(t *testing.T, c *harness.Client, seed uint64, ahead int) *load {
	t.Helper()
	return (&load{c: c, granted: make(chan struct{}, ahead)}).start(t, seed)
}

// ahead is how many messages a load may send that the test does not wait for. So lapse is
// busy when a fault happens.
const ahead = 200

func (l *load) start(t *testing.T, seed uint64) *load {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l.stop = cancel
	for i := range uint64(4) {
		l.done.Go(func() { l.write(ctx, rand.New(rand.NewPCG(seed, i))) })
	}
	t.Cleanup(l.end)
	return l
}

func (l *load) end() {
	l.stop()
	l.done.Wait()
}

func (l *load) write(ctx context.Context, r *rand.Rand) {
	ticker := time.NewTicker(4 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-l.granted:
		}
		subject, body, header := randomMessage(l.c.Prefix, r)
		ack, err := l.c.TrySend(ctx, 2*time.Second, subject, body, header)
		if err != nil {
			continue // the log may hold the message or not
		}
		l.mu.Lock()
		l.acked = append(l.acked, sent{ack.Stream, ack.Sequence, subject, body})
		l.mu.Unlock()
	}
}

// wait waits until so many more messages are acknowledged.
func (l *load) wait(t *testing.T, more int) {
	t.Helper()
	count := func() int { l.mu.Lock(); defer l.mu.Unlock(); return len(l.acked) }
	until := count() + more
	harness.Until(t, harness.Limit, fmt.Sprintf("%d messages are acknowledged", until), func(context.Context) error {
		for len(l.granted) < cap(l.granted) {
			select {
			case l.granted <- struct{}{}:
			default:
			}
		}
		if n := count(); n < until {
			return fmt.Errorf("%d are", n)
		}
		return nil
	})
}

// verifyStored checks that the log (or those of all shards) holds every message that was
// acknowledged.
func (l *load) verifyStored(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	logs := map[string][]oracle.Message{}
	for _, s := range l.acked {
		if logs[s.stream] == nil {
			logs[s.stream] = l.c.Stream(s.stream)
		}
		log := logs[s.stream]
		if s.seq > uint64(len(log)) {
			t.Fatalf("message %d was acknowledged, but the log ends at %d", s.seq, len(log))
		}
		m := log[s.seq-1]
		_, tail, _ := strings.Cut(s.subject, ".write")
		if m.Seq != s.seq || string(m.Data) != s.body || !strings.HasSuffix(m.Subject, tail) {
			t.Errorf("message %d was %s %s, but the log has %d %s %s", s.seq, s.subject, s.body, m.Seq, m.Subject,
				m.Data)
		}
	}
}

// randomMessage makes a message, mostly a write. It uses few documents in few collections,
// so that messages meet live and expired versions.
func randomMessage(p wire.Prefix, r *rand.Rand) (subject, body string, header nats.Header) {
	collection := fmt.Sprintf("c%d", r.IntN(3))
	id := fmt.Sprintf("doc %d", r.IntN(40))
	header = nats.Header{}
	switch n := r.IntN(100); {
	case n < 2:
		defaults := []string{"null", "-1", "1", "2", "3", "60"}
		return p.Config(collection), `{"defaultTtl":` + defaults[r.IntN(len(defaults))] + `}`, header
	case n < 3 && r.IntN(4) == 0:
		return p.Drop(collection), "", header
	case n < 6:
		bad := []string{`{`, `[]`, `{"id":"other"}`, `{"ttl":1.5}`, ``, "{\"a\":\"\xff\"}"}
		return p.Write(wire.Upsert, collection, id), bad[r.IntN(len(bad))], header
	case n < 7:
		return string(p) + ".write.upsert." + collection, `{}`, header
	}
	op := []wire.Op{wire.Upsert, wire.Upsert, wire.Create, wire.Replace, wire.Patch, wire.Touch, wire.Delete}[r.IntN(7)]
	if op.HasBody() {
		body = fmt.Sprintf(`{"n": %d, "text": "<%s>"`, r.Int64(), strings.Repeat("é", r.IntN(40)))
		if ttls := []string{`,"ttl":1`, `,"ttl":2`, `,"ttl":-1`, `,"ttl":null`, ``, ``}; op != wire.Patch ||
			r.IntN(2) == 0 {
			body += ttls[r.IntN(len(ttls))]
		}
		body += "}"
	}
	if r.IntN(10) == 0 {
		header.Set(wire.HeaderIfMatch, []string{"*", "7"}[r.IntN(2)])
	}
	if r.IntN(10) == 0 {
		header.Set(wire.HeaderTrace, fmt.Sprintf("00-%032x-%016x-01", r.Uint64(), r.Uint64()))
	}
	return p.Write(op, collection, id), body, header
}
