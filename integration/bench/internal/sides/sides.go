// Package sides has the systems that are compared with lapse: they expire documents, and tell a
// subscriber.
package sides

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
	"github.com/seed18712806/lapse/integration/bench/internal/rig"
)

// Side is a system that expires documents and tells a subscriber.
type Side struct {
	Write  func(ld load.Load, from, to, ttl int) error // writes some documents, with a TTL in seconds
	Flush  func() error                                // waits until all are stored
	Usage  func() func(what string) []time.Duration    // see [rig.Rig.Usage]
	Memory func() int                                  // of all processes, in bytes; nil if nobody asks
	Done   func()                                      // stops the side
	Lapse  *rig.Lapse                                  // nil if it is not lapse
}

// Opener starts a side, which gives its expirations to the receipts.
type Opener func(context.Context, *load.Receipts) (*Side, error)

// KV starts a bucket of NATS and its watcher, which receives each key with the server's stamp,
// and a marker when it expires.
func KV(r *rig.Rig) Opener {
	return func(ctx context.Context, receipts *load.Receipts) (*Side, error) {
		srv, err := r.StartNATS(ctx)
		if err != nil {
			return nil, err
		}
		s := &Side{Usage: func() func(string) []time.Duration { return r.Usage(srv.Process) }, Done: srv.Stop}
		kv, err := srv.Bucket(ctx, rig.Orders)
		if err != nil {
			srv.Stop()
			return nil, err
		}
		watcher, err := kv.WatchAll(ctx, jetstream.UpdatesOnly())
		if err != nil {
			srv.Stop()
			return nil, err
		}
		s.Done = func() { _ = watcher.Stop(); srv.Stop() }
		type key struct {
			i    int
			warm bool
		}
		// The TTL is known here; the watcher receives the stamp from which it counts.
		ttls, warmTTLs := make([]atomic.Int32, receipts.N), make([]atomic.Int32, receipts.Warm.N)
		ttlOf := func(k key) *atomic.Int32 {
			if k.warm {
				return &warmTTLs[k.i]
			}
			return &ttls[k.i]
		}
		go func() {
			written := make(map[key]time.Time, receipts.N)
			for e := range watcher.Updates() {
				at := time.Now()
				if e == nil {
					continue
				}
				i, warmed, err := load.Index(e.Key())
				if err != nil {
					receipts.Fail(err)
					continue
				}
				k, of := key{i, warmed}, receipts
				if warmed {
					of = receipts.Warm
				}
				if e.Operation() == jetstream.KeyValuePut {
					written[k] = e.Created()
				} else {
					of.Got(i, written[k].Add(time.Duration(ttlOf(k).Load())*time.Second), at)
				}
			}
		}()
		s.Write, s.Flush = load.Writer(srv.JS, func(ld load.Load, i, ttl int) *nats.Msg {
			ttlOf(key{i, ld.Warming()}).Store(int32(ttl))
			return ld.Put(rig.Orders, i, ttl)
		})
		return s, nil
	}
}

// Redis starts Redis with notifications of expired keys, and a subscriber.
func Redis(r *rig.Rig, args ...string) Opener {
	return func(ctx context.Context, receipts *load.Receipts) (*Side, error) {
		srv, err := r.StartRedis(ctx, append([]string{"--notify-keyspace-events", "Ex"}, args...)...)
		if err != nil {
			return nil, err
		}
		sub := srv.Client.Subscribe(ctx, "__keyevent@0__:expired")
		s := &Side{Usage: func() func(string) []time.Duration { return r.Usage(srv.Process) }, Flush: func() error { return nil }}
		s.Done = func() { _ = sub.Close(); srv.Stop() }
		if _, err := sub.Receive(ctx); err != nil {
			s.Done()
			return nil, err
		}
		deadlines, warmDeadlines := make([]atomic.Int64, receipts.N), make([]atomic.Int64, receipts.Warm.N)
		of := func(warmed bool) ([]atomic.Int64, *load.Receipts) {
			if warmed {
				return warmDeadlines, receipts.Warm
			}
			return deadlines, receipts
		}
		go func() {
			for {
				m, err := sub.ReceiveMessage(ctx)
				if err != nil {
					return // the subscription is closed
				}
				at := time.Now()
				i, warmed, err := load.Index(strings.TrimPrefix(m.Payload, rig.Orders+":"))
				if err != nil {
					receipts.Fail(err)
					continue
				}
				d, to := of(warmed)
				to.Got(i, time.UnixMilli(d[i].Load()), at)
			}
		}()
		s.Write = func(ld load.Load, from, to, ttl int) error {
			at := time.Now().Add(time.Duration(ttl) * time.Second).Truncate(time.Millisecond)
			d, _ := of(ld.Warming())
			for i := from; i < to; i++ {
				d[i].Store(at.UnixMilli())
			}
			return srv.SetAt(ctx, ld, from, to, at)
		}
		return s, nil
	}
}
