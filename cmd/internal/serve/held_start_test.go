//go:build held

package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// shared are servers that several processes use.
type shared struct {
	nats  *server.Server
	redis *harness.Redis
	used  atomic.Int64 // prefixes
}

// startShared starts the servers.
func startShared(t *testing.T) *shared {
	t.Helper()
	return &shared{
		nats:  inprocess.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()}),
		redis: harness.StartRedis(t, harness.RedisOptions{}),
	}
}

// options are those of the processes of one test, which have a prefix of their own.
func (s *shared) options(t *testing.T) Options {
	t.Helper()
	opts := options(t)
	opts.NATS, opts.Redis = s.nats.ClientURL(), redisconn.Options{URL: s.redis.URL()}
	opts.Processor.Prefix = wire.Prefix(fmt.Sprintf("held%d", s.used.Add(1)))
	return opts
}

// lapse is a process that serves.
type lapse struct {
	t     *testing.T
	opts  Options
	stop  context.CancelFunc
	ended chan struct{}
	err   error // once it has ended
}

// launch starts a process, and does not wait until it is ready.
func launch(t *testing.T, opts Options) *lapse {
	opts.ReadyFile = filepath.Join(t.TempDir(), "ready")
	ctx, stop := context.WithCancel(context.Background())
	l := &lapse{t: t, opts: opts, stop: stop, ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		l.err = Run(ctx, opts)
	}()
	t.Cleanup(func() { stop(); <-l.ended })
	return l
}

// hasEnded reports whether the process has ended.
func (l *lapse) hasEnded() bool { return isClosed(l.ended) }

// isReady reports whether the process has been ready.
func (l *lapse) isReady() bool {
	_, err := os.Stat(l.opts.ReadyFile)
	return err == nil
}

// ready waits until the process is ready, and returns the address of its API.
func (l *lapse) ready() (url string) {
	l.t.Helper()
	wait(l.t, "lapse is ready", func() bool {
		var at addresses
		if content, err := os.ReadFile(l.opts.ReadyFile); err == nil && json.Unmarshal(content, &at) == nil {
			url = at.HTTP
		}
		return url != "" || l.hasEnded()
	})
	if url == "" {
		l.t.Errorf("lapse has ended: %v", l.err)
	}
	return url
}

// ends stops the process.
func (l *lapse) ends() {
	l.t.Helper()
	l.stop()
	if <-l.ended; l.err != nil {
		l.t.Errorf("lapse has ended with %v", l.err)
	}
}

// takes writes a document through any process that serves the prefix, and reads it from each API.
func takes(t *testing.T, opts Options, id string, apis ...string) {
	t.Helper()
	c, err := client.Connect(client.Options{Server: opts.NATS, Prefix: opts.Processor.Prefix, Timeout: harness.Limit})
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	if _, err := c.Write(t.Context(), client.Message{Subject: opts.Processor.Prefix.Write(wire.Upsert, "c", id),
		Body: []byte("{}")}); err != nil {
		t.Errorf("a write: %v", err)
		return
	}
	for _, api := range apis {
		wait(t, "the document is read", func() bool {
			status, _ := get(api + "/v1/collections/c/documents/" + id)
			return status == http.StatusOK
		})
	}
}

// get gets a page.
func get(url string) (status int, text string) {
	api := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: limit}
	resp, err := api.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(content)
}

// TestHeldOtherShards: while a process starts, another one starts that has the same prefix and another number of
// shards. Fails if the first one serves, or if it keeps the other from that: it has to end, also if it had a lease
// before it was refused, because a process with the right number of shards would not get that lease.
func TestHeldOtherShards(t *testing.T) {
	s := startShared(t)
	for _, operation := range []string{"cmd/internal/serve.Run", "cmd/internal/serve.process.newNode"} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, operation, held.Takeover, func(t *testing.T, during func(happen func())) {
				one := s.options(t)
				two := one
				two.Processor.Shards = 2
				if err := s.nats.GlobalAccount().AddMapping(one.Processor.Prefix.Mapping(2)); err != nil {
					t.Fatal(err)
				}
				var other *lapse
				happened := make(chan struct{})
				during(func() {
					defer close(happened)
					other = launch(t, one)
					wait(t, "the other process is ready, or has ended", func() bool { return other.isReady() || other.hasEnded() })
				})
				two.HTTP.Listen = harness.Address(harness.FreePort(t))
				l, why, serves := launch(t, two), "", false
				wait(t, "the process has ended, or is ready", func() bool {
					status, _ := get("http://" + two.HTTP.Listen + "/readyz")
					if l.hasEnded() {
						why = fmt.Sprint(l.err)
						return true
					}
					serves = status == http.StatusOK
					return serves
				})
				if serves { // the process was the first, or nothing has happened
					if l.ends(); isClosed(happened) {
						<-other.ended
						wantError(t, other.err, "the prefix has several shards, and the options have one")
					}
					return
				}
				wantError(t, errors.New(why), "the prefix has one shard, and the options have 2")
				if status, text := get(other.ready() + "/readyz"); status != http.StatusOK {
					t.Errorf("the other process is not ready: %s", text)
				}
				other.ends()
				again := launch(t, one)
				if status, text := get(again.ready() + "/readyz"); status != http.StatusOK {
					t.Errorf("a process with the right number of shards is not ready: %s", text)
				}
				again.ends()
			})
		})
	}
}

// TestHeldStart: while a process starts, another one of the same prefix starts and takes the shard, or ends and leaves
// it. Fails if the process is not ready in the end, or a write fails.
func TestHeldStart(t *testing.T) {
	s := startShared(t)
	for name, row := range map[string]struct {
		operation string
		kind      held.Kind
	}{
		"another process takes the shard": {"cmd/internal/serve.process.serve", held.Takeover},
		"the owner ends":                  {"cmd/internal/serve.process.serve", held.Restart},
	} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, row.operation, row.kind, func(t *testing.T, during func(happen func())) {
				opts := s.options(t)
				var other atomic.Pointer[lapse]
				if row.kind == held.Restart {
					other.Store(launch(t, opts))
					takes(t, opts, "before", other.Load().ready())
				}
				during(func() {
					switch row.kind {
					case held.Takeover:
						another := launch(t, opts)
						other.Store(another)
						wait(t, "the other process is ready, or has ended", func() bool {
							return another.isReady() || another.hasEnded()
						})
					case held.Restart:
						other.Load().ends()
					}
				})
				l := launch(t, opts)
				api := l.ready()
				takes(t, opts, "a", api)
				if another := other.Load(); another != nil {
					another.stop() // it may have ended
					<-another.ended
					takes(t, opts, "after", api)
				}
				l.ends()
			})
		})
	}
}

// TestHeldOpen: Redis ends while a process opens its connections. Fails if the process starts without it, or does not
// say which server is missing.
func TestHeldOpen(t *testing.T) {
	s := startShared(t)
	held.Each(t, "cmd/internal/serve.process.open", held.Restart, func(t *testing.T, during func(happen func())) {
		gone := false
		during(func() { s.redis.Kill(); gone = true })
		p := &process{opts: s.options(t)}
		err := p.open(t.Context())
		if gone {
			wantError(t, err, "--redis "+s.redis.URL(), "no Redis answers there")
			s.redis.Start()
		} else if err != nil {
			t.Error(err)
		}
		if err := p.close(); err != nil {
			t.Error(err)
		}
	})
}

// TestHeldSettled: a process answers how far everything is settled while another one takes its shard over. Fails if the
// answer is an error, or goes back.
func TestHeldSettled(t *testing.T) {
	s := startShared(t)
	held.Each(t, "cmd/internal/serve.process.startReads", held.Takeover, func(t *testing.T, during func(happen func())) {
		opts := s.options(t)
		var other *lapse
		during(func() {
			other = launch(t, opts)
			other.ready()
		})
		l := launch(t, opts)
		l.ready()
		c, err := client.Connect(client.Options{Server: opts.NATS, Prefix: opts.Processor.Prefix, Timeout: harness.Limit})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		var last uint64
		for _, id := range []string{"a", "b"} {
			takes(t, opts, id)
			wait(t, "the write is settled", func() bool {
				got, err := settled(t.Context(), c, opts.Processor.Prefix)
				if err != nil {
					t.Log(err)
					return false
				}
				seq := got.Shards[0].Seq
				if seq < last {
					t.Errorf("it was settled up to %d, and is up to %d", last, seq)
				}
				ok := seq > last
				last = max(last, seq)
				return ok
			})
		}
		if other != nil {
			other.ends()
		}
		l.ends()
	})
}

// settled asks how far everything is settled.
func settled(ctx context.Context, c *client.Client, prefix wire.Prefix) (reply wire.SettledReply, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, err := c.Conn().RequestWithContext(ctx, prefix.Read("settled", "c"), nil)
	if err != nil {
		return reply, err
	}
	if reason := m.Header.Get("Nats-Service-Error"); reason != "" {
		return reply, errors.New(reason)
	}
	return reply, json.Unmarshal(m.Data, &reply)
}

// TestHeldFollows: the first region does not answer, and while a process of the region that follows it looks which one
// that was, its region is promoted. Fails if the process does not know the former first region.
func TestHeldFollows(t *testing.T) {
	held.Each(t, "cmd/internal/serve.process.follows", held.Write, func(t *testing.T, during func(happen func())) {
		srv := inprocess.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
		opts := options(t)
		opts.NATS, opts.Follow = srv.ClientURL(), "nats://"+harness.Address(harness.FreePort(t))
		nc := connected(t, srv.ClientURL())
		js := natstest.JetStream(t, nc)
		config := jetstream.StreamConfig{Name: opts.Processor.Prefix.RootStream(1), Metadata: map[string]string{
			wire.RegionKey: wire.Region{Follows: "a"}.String()}}
		natstest.CreateStream(t, js, config)
		during(func() {
			promotion := wire.Promotion{Domain: "b", From: "a", At: time.Unix(0, 0)}
			config.Metadata = map[string]string{wire.RegionKey: wire.Region{
				Former: []wire.Former{{Identity: 1, Promotion: promotion}}}.String()}
			if _, err := js.UpdateStream(t.Context(), config); err != nil {
				t.Error(err)
			}
		})
		p := &process{opts: opts, log: connections{nats: nc}}
		if domain, err := p.follows(t.Context()); err != nil || domain != "a" {
			t.Errorf("it follows %q: %v", domain, err)
		}
	})
}
