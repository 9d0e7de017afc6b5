package processor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink/wire"
)

// slowReads holds up each request that reads the stream of events.
type slowReads struct {
	net.Conn
	by    time.Duration
	reads *atomic.Int32
}

func (c slowReads) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("$JS.API.DIRECT.GET."+theEvents)) {
		c.reads.Add(1)
		<-time.After(c.by)
	}
	return c.Conn.Write(b)
}

// slow is a connection on which each read of the stream of events takes a while.
func (r *rig) slow(by time.Duration) (nc *nats.Conn, reads *atomic.Int32) {
	r.t.Helper()
	reads = &atomic.Int32{}
	nc, err := nats.Connect(r.url, nats.SetCustomDialer(dialerOf(func(network, address string) (net.Conn, error) {
		conn, err := net.Dial(network, address)
		return slowReads{conn, by, reads}, err
	})))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(nc.Close)
	return nc, reads
}

type dialerOf func(network, address string) (net.Conn, error)

func (d dialerOf) Dial(network, address string) (net.Conn, error) { return d(network, address) }

// forgetPlaces removes from the checkpoints where the stream of events has the outputs, as a restore may.
func (r *rig) forgetPlaces() {
	r.t.Helper()
	bucket, err := r.js.KeyValue(r.t.Context(), prefix.CheckpointBucket())
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range 1 {
		entry, err := bucket.Get(r.t.Context(), shard.CheckpointKey(i))
		if err != nil {
			r.t.Fatal(err)
		}
		var c map[string]json.RawMessage
		if err := json.Unmarshal(entry.Value(), &c); err != nil {
			r.t.Fatal(err)
		}
		if c["from"] == nil || c["last"] == nil {
			r.t.Fatalf("the checkpoint %s names no place: the test shows nothing", entry.Value())
		}
		delete(c, "from")
		delete(c, "last")
		value, err := json.Marshal(c)
		if err == nil {
			_, err = bucket.Put(r.t.Context(), entry.Key(), value)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestG12_ATailOfAnyLength: after a restore a checkpoint may name no place in the stream of events, so the first
// takeover reads all of it. That takes longer than a takeover may stand still, and succeeds at once.
//
// It fails if the reading has a limit in all.
func TestG12_ATailOfAnyLength(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, backends[1], Options{})
	p := r.start(nil)
	p.ready(t)
	r.config("c", `{"defaultTtl":-1}`)
	for i := range 20 {
		r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{"ttl":1}`)
	}
	for i := range 2*4096 + 100 { // more than two requests read
		r.sendAsync(prefix.Write("frob", "c", "x"), fmt.Sprint(i))
	}
	r.flush()
	r.waitEvents("c", 20)
	r.caughtUp(p)
	p.stop(t)
	r.forgetPlaces()
	const each = time.Second
	bounds := shard.DefaultBounds
	bounds.Examine = 2 * each
	r.bounds = &bounds
	nc, reads := r.slow(each)
	started := make(chan struct{})
	p = r.startOn(nc, r.redis, func(here crash.Point) error {
		<-started
		if here == crash.AfterTake && p.TakenOver() {
			t.Error("the first takeover has failed")
		}
		return nil
	})
	close(started)
	p.ready(t)
	if n := reads.Load(); n < 3 {
		t.Errorf("%d requests have read the stream, want 3: the test shows nothing", n)
	}
	r.sendAsync(prefix.Write(wire.Upsert, "c", "more"), `{"ttl":1}`)
	r.waitEvents("c", 21)
	r.caughtUp(p)
	r.agrees()
	p.stop(t)
}
