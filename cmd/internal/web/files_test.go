package web

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/poll"
)

const limit = time.Minute // on every wait

// TestLoad: each option that is not valid is refused by the name of its flag.
func TestLoad(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for want, o := range map[string]Options{
		"give both, or neither":      {Cert: missing},
		"belong together":            {Key: missing},
		"--http-trusted-proxy: ":     {Proxies: []string{"x"}},
		"--http-allow-origin: ":      {Origins: []string{"*"}},
		"--http-token-file: ":        {TokenFile: missing},
		"--http-tls-cert " + missing: {Cert: missing, Key: missing},
	} {
		if f, err := o.Load(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %+v, %v; want %s", o, f, err, want)
		}
	}
	f, err := Options{Listen: "127.0.0.1:0"}.Load()
	if err != nil || f.tokens != nil || f.certificate != nil || f.Scheme() != "http" {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestNeedsTokens: clients need no token if only this machine reaches the server, unless there is a file of tokens.
func TestNeedsTokens(t *testing.T) {
	for listen, want := range map[string]bool{"127.0.0.1:0": false, "[::1]:80": false, "localhost:80": false, ":80": true,
		"0.0.0.0:80": true, "10.1.2.3:80": true, "example.com:80": true} {
		if got := (Options{Listen: listen}).NeedsTokens(); got != want {
			t.Errorf("%s: %t", listen, got)
		}
		if !(Options{Listen: listen, TokenFile: "x"}).NeedsTokens() {
			t.Errorf("%s: the file of tokens does not count", listen)
		}
	}
}

// TestWatchSignals: at SIGHUP the files are read again, and one that is not valid changes nothing. While the process
// stops, SIGHUP does not end it.
func TestWatchSignals(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // it has no SIGHUP
	}
	const first, second = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
	path := filepath.Join(t.TempDir(), "tokens")
	write := func(content string) { // in one step: a SIGHUP may still be on its way
		t.Helper()
		err := os.WriteFile(path+".new", []byte(content), 0o600)
		if err := errors.Join(err, os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
	kill := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	write(first + " read-write")
	f, err := Options{TokenFile: path}.Load()
	if err != nil {
		t.Fatal(err)
	}
	before := make(chan os.Signal, 1)
	signal.Notify(before, syscall.SIGHUP) // the first ones may come before the files are watched
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	watched, logged := make(chan struct{}), make(lines, 1000)
	go func() {
		defer close(watched)
		f.WatchSignals(ctx, slog.New(slog.NewTextHandler(logged, nil)))
	}()
	reads := func(content, logs, token string) {
		t.Helper()
		write(content)
		if err := poll.Met(limit, "it logs "+logs, func() bool {
			kill(syscall.SIGHUP)
			select {
			case line := <-logged:
				return strings.Contains(line, logs)
			default:
				return false
			}
		}); err != nil {
			t.Fatal(err)
		}
		if _, ok := f.tokens.Find(token); !ok {
			t.Errorf("after %q, the token %s is not known", content, token)
		}
	}
	reads(first+" read-only", "read the files", first)
	reads("short read-only", "not all read again", first)
	reads(second+" read-only", "read the files", second)
	stop()
	<-watched
	signal.Stop(before)
	next := make(chan os.Signal, 1)
	signal.Notify(next, syscall.SIGTERM)
	defer signal.Stop(next)
	kill(syscall.SIGHUP)
	kill(syscall.SIGTERM) // the system delivers it after SIGHUP
	<-next
}

// lines are the lines of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}
