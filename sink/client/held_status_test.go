//go:build held

package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestHeldStatus: a stream or a bucket is deleted, or a process takes a shard, between two questions of a status. It
// shows the rest, and a shard as it was or as it is.
func TestHeldStatus(t *testing.T) {
	p := wire.DefaultPrefix
	for _, deleted := range []string{p.LogStream(), p.EventsStream(), "KV_" + p.MembersBucket(), ""} {
		t.Run("deleted "+deleted, func(t *testing.T) {
			held.Each(t, "sink/client.readStatus", held.Write, func(t *testing.T, during func(func())) {
				b := newBench(t, true)
				b.put(t, "member.a", wire.Member{ID: "a", Name: "a", Owns: []int{0}})
				b.put(t, "member.b", wire.Member{ID: "b", Name: "b"})
				b.put(t, "lease.0", wire.Lease{Owner: "a", Name: "a"})
				during(func() {
					if deleted == "" {
						b.put(t, "lease.0", wire.Lease{Owner: "b", Name: "b"})
						b.put(t, "member.b", wire.Member{ID: "b", Name: "b", Owns: []int{0}})
						return
					}
					if err := b.js.DeleteStream(context.WithoutCancel(t.Context()), deleted); err != nil {
						t.Error(err)
					}
				})
				s, err := b.client(t, limit).Status(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{p.LogStream(), p.EventsStream()} {
					if name != deleted && !slices.ContainsFunc(s.Streams, func(one client.StreamStatus) bool {
						return one.Name == name
					}) {
						t.Errorf("the status does not show %s", name)
					}
				}
				switch {
				case deleted == "KV_"+p.MembersBucket() && len(s.Shards) == 0:
				case len(s.Shards) != 1 || len(s.Members) != 2:
					t.Errorf("%d shards, %d members", len(s.Shards), len(s.Members))
				case s.Shards[0].Owner != "a" && (deleted != "" || s.Shards[0].Owner != "b"):
					t.Errorf("the owner is %s", s.Shards[0].Owner)
				case s.Members[0].Role != client.RoleOwner || s.Members[0].Name != s.Shards[0].Owner:
					t.Errorf("the first member is %+v, the owner %s", s.Members[0], s.Shards[0].Owner)
				}
			})
		})
	}
}

// TestHeldMembers: the bucket of the processes is deleted, or a process leaves and another one takes its shard, after
// the status has found the bucket and before it reads the entries. The status shows each shard with an owner that it
// has, or says that the bucket cannot be read: it does not show a lapse without processes.
func TestHeldMembers(t *testing.T) {
	p := wire.DefaultPrefix
	for name, happen := range map[string]func(t *testing.T, b *bench){
		"deleted": func(t *testing.T, b *bench) {
			if err := b.js.DeleteStream(context.WithoutCancel(t.Context()), "KV_"+p.MembersBucket()); err != nil {
				t.Error(err)
			}
		},
		"taken over": func(t *testing.T, b *bench) {
			kv, err := b.js.KeyValue(context.WithoutCancel(t.Context()), p.MembersBucket())
			if err == nil {
				err = kv.Delete(context.WithoutCancel(t.Context()), "member.a")
			}
			if err != nil {
				t.Error(err)
			}
			b.put(t, "lease.0", wire.Lease{Owner: "b", Name: "b"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "sink/client.Status.members", held.Takeover, func(t *testing.T, during func(func())) {
				b, happened := newBench(t, true), false
				b.put(t, "member.a", wire.Member{ID: "a", Name: "a", Owns: []int{0}})
				b.put(t, "member.b", wire.Member{ID: "b", Name: "b"})
				b.put(t, "lease.0", wire.Lease{Owner: "a", Name: "a"})
				during(func() { happened = true; happen(t, b) })
				s, err := b.client(t, limit).Status(t.Context())
				if err != nil {
					if !happened || name != "deleted" {
						t.Error(err)
					}
					return
				}
				want := "a"
				if happened && name == "taken over" {
					want = "b"
				}
				if len(s.Shards) != 1 || s.Shards[0].Owner != want || !s.Shards[0].Alive {
					t.Errorf("the shards are %+v, want the owner %s", s.Shards, want)
				}
			})
		})
	}
}

// TestHeldShards: lapse makes its streams while somebody asks for their number. The answer is that of the streams, or
// that there are none.
func TestHeldShards(t *testing.T) {
	held.Each(t, "sink/client.readShards", held.Write, func(t *testing.T, during func(func())) {
		const shards = 3
		url := startMapped(t, shards, natstest.Options{})
		var b *bench
		during(func() { b = newLogs(t, url, shards, nil) })
		b2 := &bench{url: url}
		s, err := b2.client(t, limit).Status(t.Context())
		if errors.Is(err, client.ErrUnavailable) {
			return
		}
		if err != nil || b == nil || len(s.Streams) != shards+1 {
			t.Errorf("%+v, %v", s.Streams, err)
		}
	})
}

// TestHeldConsumers: durable consumers of the stream of events, and of its mirror in another account, are deleted and
// created while they are listed. Those that stay are in the list once, with their account.
func TestHeldConsumers(t *testing.T) {
	for _, operation := range []string{"Client.Consumers", "readConsumers"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, "sink/client."+operation, held.Write, func(t *testing.T, during func(func())) {
				b := &bench{url: natstest.StartMapped(t, natstest.Options{}, "$JS.OTHER.API.>", "$JS.API.>")}
				var err error
				if b.nc, err = nats.Connect(b.url, natstest.Patient); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(b.nc.Close)
				b.js = natstest.JetStream(t, b.nc)
				stream := natstest.CreateStream(t, b.js, eventsConfig())
				create := func(name string) {
					if _, err := stream.CreateConsumer(context.WithoutCancel(t.Context()), jetstream.ConsumerConfig{Durable: name,
						AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
						t.Error(err)
					}
				}
				create("stays")
				create("goes")
				during(func() {
					create("comes")
					if err := stream.DeleteConsumer(context.WithoutCancel(t.Context()), "goes"); err != nil {
						t.Error(err)
					}
				})
				all, err := b.client(t, limit).Consumers(t.Context(), "OTHER")
				if err != nil {
					t.Fatal(err)
				}
				seen := map[string]int{}
				for _, one := range all {
					seen[one.Account+" "+one.Name]++
				}
				for name, n := range seen {
					if n != 1 {
						t.Errorf("%s is listed %d times", name, n)
					}
				}
				if seen[" stays"] != 1 || seen["OTHER stays"] != 1 {
					t.Errorf("listed: %v", seen)
				}
			})
		})
	}
}

// TestHeldSnapshots: the owner of the shard goes between two questions about an order, and another process takes over,
// which does not know the order. It takes it anew, and stores the snapshot.
func TestHeldSnapshots(t *testing.T) {
	held.Each(t, "sink/client.takeSnapshots", held.Takeover, func(t *testing.T, during func(func())) {
		k := newKillable(t)
		during(func() { k.stop(); k.start() })
		k.checkSnapshots()
	})
}

// TestHeldForget: the owner of the shard goes between two questions about an order to forget, and another process takes
// over, which does not know the order. It takes it anew, and carries it out: the order does not wait for ever.
//
// The servers here lose no power. Where NATS may take its sync interval to have a snapshot on disk, a new owner waits as
// long before it takes the place of one that it has found.
func TestHeldForget(t *testing.T) {
	held.Each(t, "sink/client.takeSnapshots", held.Takeover, func(t *testing.T, during func(func())) {
		k := &killable{t: t, nats: harness.StartNATS(t, harness.NATSOptions{}), redis: harness.StartRedis(t,
			harness.RedisOptions{Persistent: true}), options: processor.Options{SyncInterval: new(time.Duration)}}
		k.start()
		during(func() { k.stop(); k.start() })
		c, err := client.Connect(client.Options{Server: k.nats.URL(), Timeout: limit})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		ctx, stop := context.WithTimeout(t.Context(), limit)
		defer stop()
		p, err := c.Forget(ctx, func(client.SnapshotProgress) {})
		if err != nil || p.Done != 1 || p.Forgotten == nil {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// TestHeldOrder: nobody owns a shard when a snapshot is ordered; somebody takes it over before the next try.
func TestHeldOrder(t *testing.T) {
	held.Each(t, "sink/client.ask", held.Restart, func(t *testing.T, during func(func())) {
		k := newKillable(t)
		k.stop()
		during(k.start)
		k.checkSnapshots()
	})
}

// checkSnapshots orders snapshots, and checks that they are stored.
func (k *killable) checkSnapshots() {
	k.t.Helper()
	c, err := client.Connect(client.Options{Server: k.nats.URL(), Timeout: limit})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(c.Close)
	ctx, stop := context.WithTimeout(k.t.Context(), limit)
	defer stop()
	p, err := c.Snapshot(ctx, func(client.SnapshotProgress) {})
	if err != nil || p.Done != 1 || p.Shards != 1 {
		k.t.Errorf("%+v, %v", p, err)
	}
}
