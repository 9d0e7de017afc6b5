package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/cmd/internal/redisconn"
	"github.com/seed18712806/lapse/cmd/internal/web"
	"github.com/seed18712806/lapse/integration/harness/child"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

const limit = time.Minute // on every wait

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(child.Goroutine)) }

func options(t *testing.T) Options {
	return Options{
		Logger:     slog.New(slog.NewTextHandler(t.Output(), nil)),
		NATSListen: "127.0.0.1:0", HTTP: web.Options{Listen: "127.0.0.1:0"},
		NATSSync: time.Second, Data: t.TempDir(),
		Processor: processor.Options{Prefix: wire.DefaultPrefix, OpenCollections: true},
	}
}

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v: want it to say %q", err, part)
		}
	}
}

func TestTakenPorts(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().String()

	for flag, set := range map[string]func(*Options){
		"--http-listen":  func(o *Options) { o.HTTP.Listen = taken },
		"--nats-listen":  func(o *Options) { o.NATSListen = taken },
		"--redis-listen": func(o *Options) { o.RedisListen = taken },
	} {
		opts := options(t)
		opts.Data = filepath.Join(opts.Data, "data")
		set(&opts)
		wantError(t, Run(t.Context(), opts), flag+" "+taken, "the port is taken")
		if _, err := os.Stat(opts.Data); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: it created the data directory before it knew that the port is free", flag)
		}
	}

	free, err := listen("--x", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	same := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	err = checkPorts(Options{NATSListen: same, RedisListen: same})
	wantError(t, err, "--redis-listen "+same, "the port is taken")
	if err := checkPorts(Options{NATS: "nats://x", NATSListen: taken, RedisListen: "127.0.0.1:0"}); err != nil {
		t.Errorf("it checked the port of a server that is not embedded: %v", err)
	}
}

func TestTheEmbeddedServersServe(t *testing.T) {
	opts := options(t)
	opts.RedisListen = "127.0.0.1:0"
	for range 2 { // the second time it finds the data of the first on disk
		p := &process{opts: opts}
		if err := p.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		js, err := jetstream.New(p.log.nats, jetstream.WithDefaultTimeout(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
		if err != nil {
			t.Fatal(err)
		}
		before := stream.CachedInfo().State.Msgs
		ack, err := js.Publish(t.Context(), "s", nil)
		if err != nil || ack.Sequence != before+1 {
			t.Fatalf("sequence %d after %d messages: %v", ack.Sequence, before, err)
		}
		if err := p.reads.redis.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
		// Other processes connect to the addresses that the process announces.
		other, err := connectNATS(Options{NATS: p.at.NATS, Logger: opts.Logger}, nil, "other")
		if err != nil {
			t.Fatal(err)
		}
		other.Close()
		login := credentials.Redis{PasswordFile: filepath.Join(opts.Data, passwordFile)}
		client, err := (redisconn.Options{URL: p.at.Redis, Login: login}).Connect(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := client.Get(t.Context(), "k").Val(); got != "v" {
			t.Errorf("got %q", got)
		}
		if err := errors.Join(client.Close(), p.close()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAPublishFailsWhileDisconnected(t *testing.T) {
	opts := options(t)
	srv, err := startNATS(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := connectNATS(Options{NATS: srv.URL, Logger: opts.Logger}, nil, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	srv.stop()
	for deadline := time.Now().Add(limit); nc.IsConnected(); {
		if time.Now().After(deadline) {
			t.Fatal("the connection did not notice the end of the server")
		}
		_ = nc.FlushTimeout(10 * time.Millisecond)
	}
	if err := nc.Publish("x", nil); err == nil {
		t.Error("the library buffered a message, which it may send at any later time")
	}
}

func TestAnEmbeddedServerThatCannotStart(t *testing.T) {
	opts := options(t)
	if err := os.WriteFile(filepath.Join(opts.Data, "nats"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := Run(t.Context(), opts)
	wantError(t, err, "embedded NATS server: ")
}

func TestStopWhileStarting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Run(ctx, options(t)); err != nil {
		t.Errorf("told to stop: %v", err)
	}
}

func TestReadyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ready")
	at := addresses{NATS: "nats://127.0.0.1:1", Redis: "redis://127.0.0.1:2", HTTP: "http://127.0.0.1:3"}
	if err := writeReadyFile(path, at); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"nats":"nats://127.0.0.1:1","redis":"redis://127.0.0.1:2","http":"http://127.0.0.1:3"}` + "\n"
	if diff := cmp.Diff(want, string(content)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if others, _ := filepath.Glob(path + ".*"); len(others) > 0 {
		t.Errorf("left behind: %v", others)
	}
	wantError(t, writeReadyFile(filepath.Join(path, "no"), at), "--ready-file")
}
