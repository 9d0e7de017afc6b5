package main

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// limit is how long a script waits for anything.
const limit = 30 * time.Second

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"lapse": main})
}

// TestScripts runs the scripts in testdata/script against the real program. Each
// starts its own server, on free ports:
//
//	exec lapse serve --ready-file ready &server&
//	ready
//
// and from then on client commands find it by LAPSE_NATS. Besides the commands of
// testscript there are:
//
//	ready                     wait for the file "ready"; set LAPSE_NATS, HTTP and REDIS from it, and
//	                          NATS_LISTEN and REDIS_LISTEN
//	there FILE                wait until the file is there
//	until REGEXP CMD ARG...   run a command until what it prints, or fails with, matches
//	http STATUS PATH          ask the server's HTTP port, and expect the status
//	taken NAME                take a free port and set NAME to its address
//	sigterm                   send SIGTERM to what was started last in the background
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// The race detector waits for a second at each command's end.
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			for _, name := range []string{"LAPSE_NATS_LISTEN", "LAPSE_REDIS_LISTEN", "LAPSE_HTTP_LISTEN"} {
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
			"sigterm": sigterm,
		},
	})
}

// eventually waits for a condition.
func eventually(ts *testscript.TestScript, what string, met func() bool) {
	again, end := time.NewTicker(5*time.Millisecond), time.NewTimer(limit)
	defer again.Stop()
	defer end.Stop()
	for !met() {
		select {
		case <-again.C:
		case <-end.C:
			ts.Fatalf("waited %s for %s", limit, what)
		}
	}
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
	ts.Setenv("LAPSE_NATS", at.NATS)
	ts.Setenv("NATS_LISTEN", strings.TrimPrefix(at.NATS, "nats://"))
	ts.Setenv("REDIS", at.Redis)
	ts.Setenv("REDIS_LISTEN", strings.TrimPrefix(at.Redis, "redis://"))
	ts.Setenv("HTTP", at.HTTP)
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
		_ = ts.Exec(args[1], args[2:]...) // what it fails with is on standard error
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

func sigterm(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 0, "sigterm")
	running := ts.BackgroundCmds()
	ts.Check(running[len(running)-1].Process.Signal(syscall.SIGTERM))
}
