package check

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// addresses are where a lapse with embedded servers listens. The URL of Redis has the password.
type addresses struct{ NATS, Redis, HTTP string }

// startLapse runs lapse with embedded servers on free ports until the test ends.
func startLapse(t *testing.T) (at addresses) {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	cmd := exec.Command(lapse(t), "serve", "--ready-file", ready)
	cmd.Dir = dir
	cmd.Env = []string{"LAPSE_NATS_LISTEN=127.0.0.1:0", "LAPSE_REDIS_LISTEN=127.0.0.1:0", "LAPSE_HTTP_LISTEN=127.0.0.1:0"}
	p := start(t, cmd)
	until(t, p, "lapse is ready", func() bool {
		text, err := os.ReadFile(ready)
		if errors.Is(err, os.ErrNotExist) {
			return false
		}
		if err == nil {
			err = json.Unmarshal(text, &at)
		}
		if err != nil {
			t.Fatal(err)
		}
		return true
	})
	password := strings.TrimSpace(read(t, dir, "lapse-data/redis-password"))
	at.Redis = strings.Replace(at.Redis, "redis://", "redis://:"+password+"@", 1)
	return at
}

// process is a program that runs, and what it has written to standard error.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended and all its lines are there

	mu    sync.Mutex
	lines []string
}

// start starts a program, which ends with the test.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%v: %v", cmd, err)
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.collect(stderr)
		_ = cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
		if t.Failed() {
			t.Logf("%v wrote:\n%s", cmd, strings.Join(p.written(), "\n"))
		}
	})
	return p
}

func (p *process) collect(r io.Reader) {
	for s := bufio.NewScanner(r); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, s.Text())
		p.mu.Unlock()
	}
}

// written returns the lines so far.
func (p *process) written() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// stop ends the program with SIGTERM and returns its exit code.
func (p *process) stop(t *testing.T) int {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(limit):
		t.Fatalf("%v did not end within %s", p.cmd, limit)
		return 0
	}
}

// until waits for a condition that the program brings about.
func until(t *testing.T, p *process, what string, met func() bool) {
	t.Helper()
	again, end := time.NewTicker(20*time.Millisecond), time.NewTimer(limit)
	defer again.Stop()
	defer end.Stop()
	for !met() {
		select {
		case <-again.C:
		case <-p.done:
			t.Fatalf("%v ended before %s:\n%s", p.cmd, what, strings.Join(p.written(), "\n"))
		case <-end.C:
			t.Fatalf("waited %s until %s:\n%s", limit, what, strings.Join(p.written(), "\n"))
		}
	}
}
