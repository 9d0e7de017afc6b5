package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Process is a program that can be ended in every way and started again with
// the same arguments. It is for one goroutine at a time.
type Process struct {
	t         testing.TB
	name      string
	path      string
	args      []string
	env       []string
	dir       string
	log       string   // file that all its runs write to
	forbidden []string // what its log must not say
	running   *run
}

// run is one life of the process.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // of Wait, once done
}

// newProcess makes a process that is not started yet. It is killed when the
// test ends.
func newProcess(t testing.TB, name, path string, args ...string) *Process {
	t.Helper()
	dir := t.TempDir()
	p := &Process{t: t, name: name, path: path, args: args, dir: dir, log: filepath.Join(dir, name+".log")}
	t.Cleanup(func() {
		p.Kill()
		for _, word := range p.forbidden {
			if strings.Contains(p.Log(), word) {
				t.Errorf("the log of %s says %q", name, word)
			}
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, p.tail())
		}
	})
	return p
}

// start starts it; it must not run.
func (p *Process) start() {
	p.t.Helper()
	if p.Running() {
		p.t.Fatalf("%s runs already", p.name)
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(p.path, p.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	cmd.Env = append(environment(), p.env...)
	// The kernel kills it when the test binary dies, however that dies.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startFromOneThread(cmd); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	go func() {
		r.err = cmd.Wait()
		close(r.done)
	}()
	p.running = r
}

// Running says whether the process has been started and has not ended.
func (p *Process) Running() bool {
	if p.running == nil {
		return false
	}
	select {
	case <-p.running.done:
		return false
	default:
		return true
	}
}

// Done is closed when the process has ended. It must have been started.
func (p *Process) Done() <-chan struct{} { return p.running.done }

// ExitCode is what the process ended with, -1 if by a signal. It must have ended.
func (p *Process) ExitCode() int {
	<-p.running.done
	return p.running.cmd.ProcessState.ExitCode()
}

// Kill ends it by SIGKILL and waits until it is gone. Killing what does not run is fine.
func (p *Process) Kill() {
	p.t.Helper()
	if p.Running() {
		p.signal(syscall.SIGKILL)
		<-p.running.done
	}
}

// Terminate ends it by SIGTERM and returns its exit code.
func (p *Process) Terminate() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	Until(p.t, Limit, p.name+" has ended", func(context.Context) error {
		if p.Running() {
			return errors.New("it still runs")
		}
		return nil
	})
	return p.ExitCode()
}

// Stop makes it stand still (SIGSTOP) until Continue, and waits until all its
// threads do.
func (p *Process) Stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	Until(p.t, Limit, p.name+" stands still", func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.running.cmd.Process.Pid))
		if err != nil || len(threads) == 0 {
			return errors.Join(errors.New("it has no threads"), err)
		}
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if err != nil {
				return err
			}
			// "<id> (<name>) <state> ..."
			if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
				return fmt.Errorf("a thread is in state %.1s", state)
			}
		}
		return nil
	})
}

// Continue lets it go on (SIGCONT).
func (p *Process) Continue() { p.t.Helper(); p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if p.running == nil {
		p.t.Fatalf("%s was never started", p.name)
	}
	if err := p.running.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatalf("%v to %s: %v", s, p.name, err)
	}
}

// Log is all that the process has written so far, in all its runs.
func (p *Process) Log() string {
	b, err := os.ReadFile(p.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Sprintf("(%v)", err)
	}
	return string(b)
}

func (p *Process) tail() []byte {
	const most = 8 << 10
	b := []byte(p.Log())
	if len(b) <= most {
		return b
	}
	b = b[len(b)-most:]
	return b[bytes.IndexByte(b, '\n')+1:]
}

// ended is the error of a wait for a process that will not come.
func (p *Process) ended() error {
	if p.Running() {
		return nil
	}
	return fmt.Errorf("%s has ended with code %d", p.name, p.ExitCode())
}

// starter starts processes on a thread that lives as long as the test binary:
// Linux sends a Pdeathsig when the thread that started the child ends.
var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go runStarter(work)
	return work
})

// startFromOneThread starts a command on the starter's thread.
func startFromOneThread(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	starter() <- func() { result <- cmd.Start() }
	return <-result
}

// runStarter never ends, see starter; [Main] knows it by name.
func runStarter(work <-chan func()) {
	runtime.LockOSThread()
	for do := range work {
		do()
	}
}
