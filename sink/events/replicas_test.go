package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/proxy"
)

// newCluster is newRig on three servers. It returns the addresses of the servers too.
func newCluster(t *testing.T, config jetstream.StreamConfig) (*rig, []string) {
	t.Helper()
	servers := natstest.StartCluster(t, 3)
	r := &rig{t: t, nc: connect(t, servers[0])}
	r.js = natstest.JetStream(t, r.nc)
	r.stream = natstest.CreateStream(t, r.js, eventsConfig(config))
	r.p = r.publisher(r.nc)
	return r, servers
}

// connect connects to a server, or to a proxy, until the test ends.
func connect(t *testing.T, address string, options ...nats.Option) *nats.Conn {
	t.Helper()
	closed := make(chan struct{})
	options = append(options, natstest.Patient, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	nc, err := nats.Connect("nats://"+address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close(); <-closed })
	return nc
}

func (r *rig) publisher(nc *nats.Conn) *Publisher {
	r.t.Helper()
	p, err := NewPublisher(nc, prefix, r.stream.CachedInfo().Config)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// stepDown moves the leader of the stream to another server.
func (r *rig) stepDown() {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; _ = pause(r.t.Context(), 6, nil) {
		ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
		m, err := r.nc.RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+prefix.EventsStream(), nil)
		cancel()
		if err == nil && !strings.Contains(string(m.Data), `"error"`) {
			return
		}
		if time.Now().After(end) {
			r.t.Fatalf("the leader does not step down: %v", err)
		}
	}
}

// writer is one of several processes that believe that they own a shard.
type writer struct {
	*Publisher
	r       *rand.Rand
	name    string
	last    int // sequence in the log of its last message
	all     []*publication
	fences  atomic.Int32
	fenced  atomic.Int32 // publications that were refused for a newer fence
	unknown atomic.Int32 // publications without an answer
}

// publication is one call of Publish.
type publication struct {
	sent  []Message
	fence string
	acked bool
}

// write publishes behind a fence of its own, and makes another after each failure, until ctx is
// done.
func (w *writer) write(ctx context.Context) {
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		fence, err := w.Fence(limited, 0)
		cancel()
		if err != nil {
			continue
		}
		w.fences.Add(1)
		for range 1 + w.r.IntN(6) {
			if err := w.publish(ctx, fence); err != nil {
				break
			}
		}
	}
}

func (w *writer) publish(ctx context.Context, fence Fence) error {
	one := &publication{fence: fence.seq[0]}
	w.all = append(w.all, one)
	for range []int{1, 1, 2, 30, 200}[w.r.IntN(5)] {
		w.last++
		one.sent = append(one.sent, rejection(fmt.Sprintf("%s%d", w.name, w.r.IntN(3)), uint64(w.last), one.fence))
	}
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	_, err := w.Publish(ctx, fence, one.sent)
	switch {
	case err == nil:
		one.acked = true
	case errors.Is(err, ErrFenced):
		w.fenced.Add(1)
	default:
		w.unknown.Add(1)
	}
	return err
}

// TestG3_NothingBehindALaterFence: three processes believe that they own a shard of a
// stream with three replicas. Each publishes behind fences of its own, through a network that
// holds up what it sends. The leader of the stream moves. No message is stored behind a later fence
// than its own, none twice, none that was acknowledged is absent, and none is without those before
// it in its publication.
//
// Goes red if the first message of a batch, or a message alone, does not carry the fence.
func TestG3_NothingBehindALaterFence(t *testing.T) {
	t.Parallel()
	r, servers := newCluster(t, jetstream.StreamConfig{Replicas: 3})
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	t.Cleanup(func() { stop(); all.Wait() })
	var writers []*writer
	for i, name := range []string{"a", "b", "c"} {
		between := proxy.New(t, servers[i])
		w := &writer{
			Publisher: r.publisher(connect(t, between.Address())), r: rand.New(rand.NewPCG(1, uint64(i))),
			name: name, last: 1_000_000 * (i + 1),
		}
		writers = append(writers, w)
		all.Go(func() { w.write(ctx) })
		all.Go(func() {
			for r := rand.New(rand.NewPCG(2, uint64(i))); ctx.Err() == nil; {
				_ = pause(ctx, 1+r.IntN(7), nil)
				between.Hold(proxy.ToServer)
				for range r.IntN(12) {
					_ = pause(ctx, 7, nil)
				}
				between.Release()
			}
		})
	}
	fences, publications, fenced, unknown, moves := 0, 0, 0, 0, 0
	for end := time.Now().Add(time.Minute); moves < 5 || fences < 30 || fenced < 3 || unknown < 3; moves++ {
		if time.Now().After(end) {
			t.Errorf("too little happened: %d changes of the fence, %d publications were refused for a newer fence, %d had no "+
				"answer", fences, fenced, unknown)
			break
		}
		for range 10 {
			_ = pause(ctx, 7, nil)
		}
		r.stepDown()
		fences, fenced, unknown = 0, 0, 0
		for _, w := range writers {
			fences, fenced, unknown = fences+int(w.fences.Load()), fenced+int(w.fenced.Load()), unknown+int(w.unknown.Load())
		}
	}
	stop()
	all.Wait()
	for _, w := range writers {
		publications += len(w.all)
	}
	r.fence() // what is still on its way is refused from here on
	stored := r.stored()
	newest, times := "", map[string]int{} // how often a sequence of the log is stored
	for _, m := range stored {
		if m.Subject == prefix.Fence(0) {
			newest = strconv.FormatUint(m.Sequence, 10)
			continue
		}
		if own := string(m.Data); own != newest {
			t.Errorf("message %d was published behind fence %s, and is stored behind fence %s", m.Sequence, own, newest)
		}
		seq := m.Header.Get("Lapse-Seq")
		if times[seq]++; times[seq] > 1 {
			t.Errorf("%s is stored %d times", seq, times[seq])
		}
	}
	for _, w := range writers {
		for _, one := range w.all {
			ended := false // a message is absent
			for _, m := range one.sent {
				switch is := times[strconv.FormatUint(m.Key.Seq, 10)] > 0; {
				case !is && one.acked:
					t.Errorf("%d was acknowledged, and is absent", m.Key.Seq)
				case is && ended:
					t.Errorf("%d is stored without those before it", m.Key.Seq)
				case !is:
					ended = true
				}
			}
		}
	}
	t.Logf("%d publications with %d messages stored, against %d changes of the fence and %d of the leader: %d were "+
		"refused for a newer fence, %d had no answer",
		publications, len(stored), fences, moves, fenced, unknown)
}

// TestTheStreamGetsReplicas: somebody gives the stream replicas while the publisher runs. The
// next attempt of an owner, behind a new fence, stores everything once.
//
// Goes red if the publisher does not learn that the stream has replicas now.
func TestTheStreamGetsReplicas(t *testing.T) {
	t.Parallel()
	r, _ := newCluster(t, jetstream.StreamConfig{Replicas: 1})
	var messages []Message
	for i := range 500 {
		messages = append(messages, event(strconv.Itoa(i%100), uint64(i+1), "{}"))
	}
	if _, err := r.p.Publish(t.Context(), r.fence(), messages[:100]); err != nil {
		t.Fatal(err)
	}
	config := r.stream.CachedInfo().Config
	config.Replicas = 3
	if _, err := r.js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	attempt := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		fence, err := r.p.Fence(ctx, 0)
		if err != nil {
			return err // the leader changes
		}
		tail := r.p.NewTail(testLog)
		tail.Hold()
		if err := tail.Cover(ctx, 0, fence.Place().Seq); err != nil {
			return err
		}
		rest := slices.DeleteFunc(slices.Clone(messages), func(m Message) bool {
			_, found := tail.Find(m)
			return found
		})
		_, err = r.p.Publish(ctx, fence, rest)
		return err
	}
	for tries := 1; ; tries++ {
		err := attempt()
		if err == nil && r.p.replicated.Load() {
			t.Logf("after %d attempts: replicas", tries)
			break
		}
		if tries > 1000 {
			t.Fatalf("after %d attempts: %v", tries, err)
		}
		messages = append(messages, event(strconv.Itoa(tries%100), uint64(2*tries+1000), "{}"),
			event(strconv.Itoa((tries+1)%100), uint64(2*tries+1001), "{}"))
		_ = pause(t.Context(), 5, nil)
	}
	seen := map[string]bool{}
	for _, m := range r.stored() {
		if id := m.Header.Get(ceID); id != "" && seen[id] {
			t.Errorf("%s is stored twice", id)
		} else if id != "" {
			seen[id] = true
		}
	}
	for _, m := range messages {
		if !seen[m.msg.Header.Get(ceID)] {
			t.Errorf("%s is not stored", m.msg.Header.Get(ceID))
		}
	}
}
