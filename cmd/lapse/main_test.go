package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/programs"
	"github.com/seed18712806/lapse/sink/wire"
)

// limit is how long a script waits for anything.
const limit = 3 * time.Minute

func TestMain(m *testing.M) { harness.Main(m) }

// TestScripts runs the scripts in testdata/script against the real program, without the race
// detector, which took four fifths of the time: other tests run the same code with it. Each
// starts its own server, on free ports:
//
//	exec lapse serve --ready-file ready &server&
//	ready
//
// From then on client commands find it by LAPSE_SERVER. Besides the commands of testscript
// there are:
//
//	ready                     wait for the file "ready"; set LAPSE_SERVER, HTTP and REDIS (empty unless
//	                          it listens) from it, and NATS_LISTEN, REDIS_LISTEN and HTTP_ADDRESS
//	there FILE                wait until the file is there
//	until REGEXP CMD ARG...   run a command until its output or its error matches
//	http STATUS PATH          send a request to the server's HTTP port, and expect the status
//	taken NAME                take a free port and set NAME to its address
//	free NAME                 reserve a free port, which a server can use again and again, and set
//	                          NAME to its address
//	sigterm                   send SIGTERM to the last command in the background
//	exits CODE CMD ARG...     run a command, and expect the exit code
//	nats NAME                 start a NATS server without lapse and set NAME to its URL
//	plainnats NAME            the same, without JetStream
//	nonats NAME               stop the NATS server that nats or plainnats started
//	elsewhere NAME            start an HTTP server that is not lapse and set NAME to its address
//	consumers N STREAM        wait until the stream has N consumers
//	warning COLLECTION ID     publish a warning, 5 s before 2026-01-31T12:00:30Z
func TestScripts(t *testing.T) {
	bin := filepath.Dir(programs.Path(t, "lapse"))
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PATH", bin+string(filepath.ListSeparator)+env.Getenv("PATH"))
			// An answer may take as long as a busy machine needs.
			env.Setenv("LAPSE_TIMEOUT", "60s")
			env.Setenv("LAPSE_OPEN_COLLECTIONS", "true") // as most scripts say nothing of configurations
			for _, name := range []string{"LAPSE_NATS_LISTEN", "LAPSE_HTTP_LISTEN"} {
				env.Setenv(name, "127.0.0.1:0")
			}
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"ready":   ready,
			"there":   there,
			"until":   until,
			"http":    httpGet,
			"taken":   taken,
			"free":    free,
			"sigterm": sigterm,

			"exits":     exits,
			"nats":      func(ts *testscript.TestScript, neg bool, args []string) { startNATS(ts, neg, args, true) },
			"plainnats": func(ts *testscript.TestScript, neg bool, args []string) { startNATS(ts, neg, args, false) },
			"nonats":    stopNATS,
			"elsewhere": elsewhere,
			"consumers": consumers,
			"warning":   warning,
		},
	})
}

// eventually waits for a condition, which what describes.
func eventually(ts *testscript.TestScript, what string, met func() bool) {
	ts.Check(poll.Met(limit, what, met))
}

func usage(ts *testscript.TestScript, ok bool, text string) {
	if !ok {
		ts.Fatalf("usage: %s", text)
	}
}

func ready(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "ready")
	var content []byte
	eventually(ts, "the server to be ready", func() bool {
		var err error
		content, err = os.ReadFile(ts.MkAbs("ready"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			ts.Check(err)
		}
		return err == nil
	})
	var at struct{ NATS, Redis, HTTP string }
	ts.Check(json.Unmarshal(content, &at))
	ts.Setenv("LAPSE_SERVER", at.NATS)
	ts.Setenv("NATS_LISTEN", strings.TrimPrefix(at.NATS, "nats://"))
	ts.Setenv("REDIS", at.Redis)
	ts.Setenv("REDIS_LISTEN", strings.TrimPrefix(at.Redis, "redis://"))
	ts.Setenv("HTTP", at.HTTP)
	ts.Setenv("HTTP_ADDRESS", strings.TrimPrefix(at.HTTP, "http://"))
}

func there(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "there FILE")
	eventually(ts, args[0]+" to be there", func() bool {
		_, err := os.Stat(ts.MkAbs(args[0]))
		return err == nil
	})
}

func until(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "until REGEXP COMMAND ARG...")
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	var last string
	eventually(ts, strings.Join(args[1:], " ")+" to print "+args[0], func() bool {
		_ = ts.Exec(args[1], args[2:]...) // its error is on standard error
		last = ts.ReadFile("stdout") + ts.ReadFile("stderr")
		return want.MatchString(last)
	})
	ts.Logf("[until]\n%s", last)
}

func httpGet(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "http STATUS PATH")
	resp, err := http.Get(ts.Getenv("HTTP") + args[1])
	ts.Check(err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	if !strings.HasPrefix(resp.Status, args[0]) {
		ts.Fatalf("%s: %s\n%s", args[1], resp.Status, body)
	}
	_, err = ts.Stdout().Write(body)
	ts.Check(err)
}

func taken(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "taken NAME")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = l.Close() })
	ts.Setenv(args[0], l.Addr().String())
}

func free(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "free NAME")
	port, release, err := freeport.Reserve()
	ts.Check(err)
	ts.Defer(release)
	ts.Setenv(args[0], freeport.Address(port))
}

func sigterm(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "sigterm")
	running := ts.BackgroundCmds()
	ts.Check(running[len(running)-1].Process.Signal(syscall.SIGTERM))
}

func exits(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) >= 2, "exits CODE COMMAND ARG...")
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%s: %v", strings.Join(args[1:], " "), err)
	}
	if got != want {
		ts.Fatalf("%s: exit code %d, want %d\n%s%s", strings.Join(args[1:], " "), got, want, ts.ReadFile("stdout"),
			ts.ReadFile("stderr"))
	}
}

func startNATS(ts *testscript.TestScript, neg bool, args []string, jetStream bool) {
	usage(ts, !neg && len(args) == 1, "nats NAME")
	srv, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: -1, JetStream: jetStream, StoreDir: ts.MkAbs("store-" + args[0]), NoLog: true, NoSigs: true,
	})
	ts.Check(err)
	srv.Start()
	stop := func() { srv.Shutdown(); srv.WaitForShutdown() }
	ts.Defer(stop)
	if !srv.ReadyForConnections(limit) {
		ts.Fatalf("nats-server is not ready")
	}
	ts.Setenv(args[0], srv.ClientURL())
	natsServers.Store(srv.ClientURL(), stop)
}

// natsServers has the function that stops each server of startNATS, by its URL.
var natsServers sync.Map

func stopNATS(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "nonats NAME")
	stop, ok := natsServers.Load(ts.Getenv(args[0]))
	usage(ts, ok, "nats NAME, then nonats NAME")
	stop.(func())()
}

func elsewhere(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "elsewhere NAME")
	srv := httptest.NewServer(http.NotFoundHandler())
	ts.Defer(srv.Close)
	ts.Setenv(args[0], strings.TrimPrefix(srv.URL, "http://"))
}

// jetStream connects to the server in LAPSE_SERVER for as long as the script runs.
func jetStream(ts *testscript.TestScript) (context.Context, jetstream.JetStream) {
	nc, err := nats.Connect(ts.Getenv("LAPSE_SERVER"), nats.Timeout(limit))
	ts.Check(err)
	ts.Defer(nc.Close)
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(limit))
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	ts.Defer(cancel)
	return ctx, js
}

func warning(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "warning COLLECTION ID")
	ctx, js := jetStream(ts)
	e := wire.Expiring{Collection: args[0], ID: args[1], Document: []byte(`{"total": 9}`), Etag: 7, Ts: 1769860800000,
		TTL: 30, ExpiresAt: 1769860830000, Before: 5}
	ts.Check(harness.Warn(ctx, js.Conn(), e, ""))
}

func consumers(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 2, "consumers N STREAM")
	ctx, js := jetStream(ts)
	eventually(ts, args[1]+" to have "+args[0]+" consumers", func() bool {
		stream, err := js.Stream(ctx, args[1])
		ts.Check(err)
		return strconv.Itoa(stream.CachedInfo().State.Consumers) == args[0]
	})
}
