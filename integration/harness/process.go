package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/seed18712806/lapse/integration/harness/child"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/programs"
)

// Main runs the tests of a package that uses the harness. It fails if they leave
// goroutines behind, and removes the programs that they built.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction(child.Goroutine),
		goleak.Cleanup(func(code int) {
			if err := programs.Remove(); err != nil {
				fmt.Fprintln(os.Stderr, "remove the programs that were built:", err)
			}
			os.Exit(code)
		}))
}

// Process is a program that a test can end in every way and start again with the same
// arguments. Only one goroutine at a time may use it.
type Process struct {
	t         testing.TB
	name      string
	path      string
	args      []string
	env       []string
	dir       string
	log       string   // the file that all runs write to
	forbidden []string // texts that its log must not contain
	running   *run
}

// run is one run of the program.
type run struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when the run has ended
	err  error         // the result of Wait, once done is closed
}

// newProcess makes a process and does not start it. It is killed when the test ends.
func newProcess(t testing.TB, name, path string) *Process {
	t.Helper()
	dir := t.TempDir()
	p := &Process{t: t, name: name, path: path, dir: dir, log: filepath.Join(dir, name+".log")}
	t.Cleanup(func() {
		p.Kill()
		for _, word := range p.forbidden {
			if strings.Contains(p.Log(), word) {
				t.Errorf("the log of %s contains %q", name, word)
			}
		}
		if t.Failed() {
			t.Logf("the end of the log of %s:\n%s", name, p.tail())
		}
	})
	return p
}

// StartProcess starts a program that is no part of lapse, and does not wait.
func StartProcess(t testing.TB, name, path string, args ...string) *Process {
	t.Helper()
	p := newProcess(t, name, path)
	p.args = args
	p.start()
	return p
}

// Dir is the directory of the process: its files, and its log.
func (p *Process) Dir() string { return p.dir }

// start starts the process, which must not run.
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
	if err := child.Start(cmd); err != nil {
		p.t.Fatalf("start %s: %v", p.name, err)
	}
	r := &run{cmd: cmd, done: make(chan struct{})}
	go func() {
		r.err = cmd.Wait()
		close(r.done)
	}()
	p.running = r
}

// Name is the name of the process in messages.
func (p *Process) Name() string { return p.name }

// Launch starts the process, and does not wait until it is ready.
func (p *Process) Launch() { p.t.Helper(); p.start() }

// Run runs a program of the harness to its end: nats-server or lapse.
func Run(t testing.TB, program string, env []string, args ...string) (out, errOut string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs.Path(t, program), args...)
	cmd.Env = append(append(environment(), "GORACE=atexit_sleep_ms=10"), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatalf("%s %v: %v", program, args, err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// Killed runs a program of the harness until ctx is done, and then kills it. It reports whether the
// program had not ended by itself.
func Killed(ctx context.Context, t testing.TB, program string, args ...string) bool {
	t.Helper()
	cmd := exec.CommandContext(ctx, programs.Path(t, program), args...)
	cmd.Env = environment()
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil && ctx.Err() == nil {
		t.Fatalf("%s %v: %v", program, args, err)
	}
	return cmd.ProcessState == nil || cmd.ProcessState.ExitCode() < 0
}

// Running reports whether the process was started and has not ended.
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

// WaitEnded waits until the process has ended, and returns its exit code: -1 if a signal
// ended it. The process must have been started.
func (p *Process) WaitEnded() int {
	p.t.Helper()
	select {
	case <-p.running.done:
	case <-time.After(Limit):
		p.t.Fatalf("%s still runs", p.name)
	}
	return p.running.cmd.ProcessState.ExitCode()
}

// Kill sends SIGKILL and waits until the process has ended. It may have ended already.
func (p *Process) Kill() {
	p.t.Helper()
	if p.Running() {
		p.signal(syscall.SIGKILL)
		<-p.running.done
	}
}

// Terminate sends SIGTERM, waits until the process has ended, and returns its exit code.
func (p *Process) Terminate() int {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	return p.WaitEnded()
}

// Interrupt sends SIGINT, as ctrl-C does.
func (p *Process) Interrupt() { p.t.Helper(); p.signal(syscall.SIGINT) }

// Stop sends SIGSTOP and waits until all threads of the process stand still.
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

// Continue sends SIGCONT to a process that stands still.
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

// CommandLine returns the arguments of the running process, as anybody on the machine sees
// them.
func (p *Process) CommandLine() string {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.running.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(bytes.ReplaceAll(b, []byte{0}, []byte{' '}))
}

// Listening returns the TCP addresses at which the running process listens, in order. IPv6 addresses
// are as the system writes them.
func (p *Process) Listening() (all []string) {
	p.t.Helper()
	own := map[string]bool{} // inodes of its sockets
	dir := fmt.Sprintf("/proc/%d/fd/", p.running.cmd.Process.Pid)
	files, err := os.ReadDir(dir)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(dir + f.Name()); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.Trim(to[len("socket:"):], "[]")] = true
		}
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			p.t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			const listens = "0A"
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != listens || !own[f[9]] {
				continue
			}
			var a, b, c, d, port int // the machine writes the last byte of the address first
			if n, _ := fmt.Sscanf(f[1], "%2x%2x%2x%2x:%4x", &d, &c, &b, &a, &port); n == 5 {
				all = append(all, fmt.Sprintf("%d.%d.%d.%d:%d", a, b, c, d, port))
			} else {
				all = append(all, f[1])
			}
		}
	}
	slices.Sort(all)
	return all
}

// Log returns everything that the process has written, in all its runs.
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

// ended returns an error if the process has ended, for a wait that would be in vain.
func (p *Process) ended() error {
	if p.Running() {
		return nil
	}
	return poll.Hopeless(fmt.Errorf("%s has ended with code %d", p.name, p.WaitEnded()))
}
