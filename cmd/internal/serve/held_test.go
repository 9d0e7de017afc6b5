//go:build held

package serve

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/harness/storetest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestHeldApplyShard: a takeover fails, and before the owner tries again another process takes the shard. Fails if the
// process goes on to try, or if its problem stays.
func TestHeldApplyShard(t *testing.T) {
	held.Each(t, "cmd/internal/serve.node.applyShard", held.Takeover, func(t *testing.T, during func(happen func())) {
		tries, taken := 0, false
		n := newTestNode(statuses{mine}, applies{runs: func() error {
			switch tries++; {
			case taken:
				return processor.ErrNotOwner
			case tries == 1:
				return errors.New("i/o timeout")
			}
			return nil
		}})
		during(func() {
			if taken = true; n.board.Err() == nil {
				t.Error("the takeover has failed, and that is no problem")
			}
		})
		if err := n.applyShard(t.Context(), 0, nil); err != nil || tries != 2 || n.board.Err() != nil {
			t.Errorf("%v after %d attempts; %v", err, tries, n.board.Err())
		}
	})
}

// smallPages lists two collections at a time.
type smallPages struct{ *sink.Reader }

// Collections implements counter.
func (p smallPages) Collections(ctx context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error) {
	opts.Limit = 2
	return p.Reader.Collections(ctx, opts)
}

// TestHeldCount: a collection is dropped, another one gets documents, and a new one comes, between two pages of a count.
// Fails if a collection that is there all the time is not counted, or twice.
func TestHeldCount(t *testing.T) {
	held.Each(t, "cmd/internal/serve.collectionCensus.count", held.Write, func(t *testing.T, during func(happen func())) {
		r := storetest.New(t, redistest.StartMini(t), 1, 1000)
		r.Open()
		for _, c := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			r.PutMany(c, 10, 900)
		}
		happened := false
		during(func() {
			r.Commit(0, nil, store.CollectionChanges{Collection: "a", Drop: store.DropAll})
			r.Commit(0, nil, store.CollectionChanges{Collection: "d", Drop: store.DropAll})
			r.PutMany("aa", 1, 900)
			r.PutMany("ff", 1, 900)
			happened = true
		})
		got := newCensus(smallPages{r.Reader}).count(t.Context())
		if got == nil {
			t.Fatal("the count failed")
		}
		least, most := censusCounts{collections: 7, live: 70}, censusCounts{collections: 7, live: 70}
		if happened { // b, c, e, f and g stay, a was counted, d may have been, and ff
			least, most = censusCounts{collections: 6, live: 60}, censusCounts{collections: 8, live: 71}
		}
		if got.collections < least.collections || got.collections > most.collections || got.live < least.live ||
			got.live > most.live || got.expired != 0 {
			t.Errorf("counted %+v, want %+v to %+v", *got, least, most)
		}
		if again := newCensus(smallPages{r.Reader}).count(t.Context()); happened &&
			(again == nil || *again != censusCounts{collections: 7, live: 52}) {
			t.Errorf("the next count: %+v", again)
		}
	})
}

// TestHeldCensus: another process takes the shard over between two counts. Fails if the count stays among the metrics
// of this process: those of both would be added up.
func TestHeldCensus(t *testing.T) {
	held.Each(t, "cmd/internal/serve.collectionCensus.Run", held.Takeover, func(t *testing.T, during func(happen func())) {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			page := wire.CollectionsReply{Collections: []wire.Collection{collection(1, 0)}}
			reader := pages{page, page, page, page, page, page, page, page, page}
			census := newCensus(&reader)
			var taken atomic.Bool
			during(func() {
				if taken.Store(true); census.last.Load() == nil {
					t.Error("the owner has not counted")
				}
			})
			var running sync.WaitGroup
			running.Go(func() { census.Run(ctx, func() bool { return !taken.Load() }) })
			<-time.After(65 * time.Second) // of the test's clock: seven counts
			if got := census.last.Load(); got != nil {
				t.Errorf("another process owns the shard, and this one tells %+v", got)
			}
			stop()
			running.Wait()
		})
	})
}

// connected is a connection to a server in this process, which reconnects for ever.
func connected(t *testing.T, urls string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(urls, append(options, natstest.Patient, nats.MaxReconnects(-1),
		nats.ReconnectWait(10*time.Millisecond), nats.DontRandomize())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// TestHeldFirst: this region, which follows another one, is promoted between two looks at its role, or JetStream does
// not answer any more. Fails if writes still go to the former first region after a promotion, or if this region takes
// writes because it does not know.
func TestHeldFirst(t *testing.T) {
	for name, kind := range map[string]held.Kind{"promoted": held.Write, "JetStream ends": held.Restart} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, "cmd/internal/serve.first.run", kind, func(t *testing.T, during func(happen func())) {
				srv := inprocess.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
				js := natstest.JetStream(t, connected(t, srv.ClientURL()))
				config := jetstream.StreamConfig{Name: wire.DefaultPrefix.RootStream(1), Metadata: map[string]string{
					wire.RegionKey: wire.Region{Follows: "a"}.String()}}
				natstest.CreateStream(t, js, config)
				f := newFirst("http://first", func() *wire.Following { return nil }, connected(t, srv.ClientURL()),
					wire.DefaultPrefix, 1)
				happened := make(chan struct{})
				during(func() {
					defer close(happened)
					if url, domain := f.now(); url != "http://first" || domain != "a" {
						t.Errorf("writes go to %q in %q", url, domain)
					}
					if kind == held.Restart {
						srv.Shutdown()
						srv.WaitForShutdown()
						return
					}
					config.Metadata = map[string]string{wire.RegionKey: wire.Region{Identity: 7}.String()}
					if _, err := js.UpdateStream(t.Context(), config); err != nil {
						t.Error(err)
					}
				})
				ctx, stop := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { f.run(ctx) })
				<-happened
				if kind == held.Write {
					wait(t, "this region takes writes", func() bool { url, domain := f.now(); return url == "" && domain == "" })
				}
				stop()
				running.Wait()
				f.ask(t.Context())
				if url, domain := f.now(); kind == held.Restart && (url != "http://first" || domain != "a") {
					t.Errorf("while JetStream does not answer, writes go to %q in %q", url, domain)
				}
			})
		})
	}
}

// TestHeldWatchReads: Redis ends between two looks at it, and starts again. Fails if the process believes that it
// reaches Redis, so that it keeps its shards, or if the problem stays.
func TestHeldWatchReads(t *testing.T) {
	srv, redis := inprocess.Start(t, &server.Options{}), harness.StartRedis(t, harness.RedisOptions{})
	held.Each(t, "cmd/internal/serve.watchReads", held.Restart, func(t *testing.T, during func(happen func())) {
		board, reaches := health.New(slog.New(slog.DiscardHandler)), &reach{}
		c := connections{nats: connected(t, srv.ClientURL()), redis: redis.Client()}
		gone := make(chan struct{})
		during(func() {
			if err := errors.Join(reaches.lost(), board.Err()); err != nil {
				t.Error(err)
			}
			redis.Kill()
			close(gone)
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { watchReads(ctx, c, board, reaches) })
		<-gone
		wait(t, "Redis is lost", func() bool { return reaches.lost() != nil && board.Err() != nil })
		wantError(t, board.Err(), "503, because Redis does not answer")
		redis.Start()
		wait(t, "Redis is back", func() bool { return reaches.lost() == nil && board.Err() == nil })
		stop()
		running.Wait()
	})
}

// TestHeldLeaveServers: the connection is lost between two looks at JetStream, and the library connects to a server
// that has none. Fails if the process stays there, or if it leaves the server with JetStream.
func TestHeldLeaveServers(t *testing.T) {
	well := inprocess.Start(t, &server.Options{ServerName: "well", JetStream: true, StoreDir: t.TempDir()})
	without := inprocess.Start(t, &server.Options{ServerName: "without"})
	held.Each(t, "cmd/internal/serve.leaveServers", held.Reconnection, func(t *testing.T, during func(happen func())) {
		nc := connected(t, well.ClientURL()+","+without.ClientURL())
		there := make(chan struct{})
		during(func() {
			defer close(there)
			if name := nc.ConnectedServerName(); name != "well" {
				t.Errorf("it has left the server with JetStream for %s", name)
			}
			if err := nc.ForceReconnect(); err != nil {
				t.Error(err)
			}
			wait(t, "it is connected to the other server", func() bool { return nc.ConnectedServerName() == "without" })
		})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { leaveServers(ctx, nc, slog.New(slog.DiscardHandler)) })
		<-there
		wait(t, "it is back at the server with JetStream", func() bool { return nc.ConnectedServerName() == "well" })
		stop()
		running.Wait()
	})
}
