package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/programs"
	"github.com/seed18712806/lapse/sink/client"
)

// interrupted: a proxy stands between a command and NATS, so that the test knows what is under way when the signal
// comes.
type interrupted struct {
	*harness.Proxy
	t     *testing.T
	lapse *harness.Lapse
	docs  *client.Collection[map[string]any]
}

func interruptible(t *testing.T) *interrupted {
	t.Helper()
	l := harness.EmbeddedLapse(t)
	c, err := client.Connect(client.Options{Server: l.NATSURL, Timeout: harness.Limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	docs, err := client.Open[map[string]any](c, "docs")
	if err != nil {
		t.Fatal(err)
	}
	return &interrupted{harness.NewProxy(t, strings.TrimPrefix(l.NATSURL, "nats://")), t, l, docs}
}

// start starts a command of lapse, which reaches NATS through the proxy.
func (i *interrupted) start(args ...string) *harness.Process {
	i.t.Helper()
	args = append(args, "--server", "nats://"+i.Address())
	return harness.StartProcess(i.t, args[0], programs.Path(i.t, "lapse"), args...)
}

// live waits until there are so many documents, or more.
func (i *interrupted) live(least int64) (n int64) {
	i.t.Helper()
	harness.Until(i.t, harness.Limit, fmt.Sprintf("there are %d documents", least), func(ctx context.Context) error {
		count, err := i.docs.Count(ctx)
		if n = count.Live; err == nil && n < least {
			err = fmt.Errorf("there are %d", n)
		}
		return err
	})
	return n
}

// endless makes a file that never ends, with a document on each line.
func endless(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer f.Close()
		for n := 1; err == nil; n++ { // until the command has stopped reading
			_, err = fmt.Fprintf(f, "{\"id\":\"%d\"}\n", n)
		}
	}()
	t.Cleanup(func() { <-done })
	return name
}

var onlyLine = regexp.MustCompile(`^lapse: (.*)[:;] lines written: (\d+), rejected: 0, unknown: (\d+)\. To go on, ` +
	`repeat the command with --from (\d+)( \(.*\))?\n$`)

// said is the one line that an import has printed.
func (i *interrupted) said(p *harness.Process, code int) (reason string, written, unknown, from int64) {
	i.t.Helper()
	if got := p.WaitEnded(); got != code {
		i.t.Errorf("%s ends with code %d, want %d", p.Name(), got, code)
	}
	m := onlyLine.FindStringSubmatch(p.Log())
	if m == nil {
		i.t.Fatalf("the import prints %.2000s", p.Log())
	}
	number := func(text string) int64 {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			i.t.Fatal(err)
		}
		return n
	}
	return m[1], number(m[2]), number(m[3]), number(m[4])
}

// goOn imports the lines from one on, up to another.
func (i *interrupted) goOn(from, to int64) (out string) {
	i.t.Helper()
	var b strings.Builder
	for n := range to {
		fmt.Fprintf(&b, "{\"id\":\"%d\"}\n", n+1)
	}
	name := filepath.Join(i.t.TempDir(), "docs")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		i.t.Fatal(err)
	}
	out, errOut, code := harness.Run(i.t, "lapse", nil, "import", "docs", name, "--from", strconv.FormatInt(from, 10),
		"--server", i.lapse.NATSURL)
	if code != 0 {
		i.t.Fatalf("import --from %d: code %d: %s", from, code, errOut)
	}
	return out
}

// TestInterruptedImport: an import that is interrupted waits for what it has sent, and says in one
// line what was done and how to go on.
func TestInterruptedImport(t *testing.T) {
	for name, interrupt := range map[string]func(*harness.Process){
		"ctrl-C": (*harness.Process).Interrupt, "SIGTERM": func(p *harness.Process) { _ = p.Terminate() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := interruptible(t)
			p := i.start("import", "docs", endless(t), "--timeout", harness.Limit.String())
			i.live(1)
			i.Hold(harness.ToClient) // now it waits for the outcomes of all that it may have under way
			before := i.live(1)
			go func() { i.live(before); i.Release() }()
			interrupt(p)
			reason, written, unknown, from := i.said(p, 1)
			if n := i.live(written); reason != "interrupted: docs" || n != written || unknown != 0 || from != written+1 {
				t.Errorf("there are %d documents, and the import says %s", n, p.Log())
			}
			if out := i.goOn(from, written+500); out != "imported docs created=500 replaced=0 duplicate=0 failed=0\n" {
				t.Errorf("it goes on: %s", out)
			}
			i.live(written + 500)
		})
	}
}

// TestInterruptedTwice: the second ctrl-C ends an import that waits.
func TestInterruptedTwice(t *testing.T) {
	t.Parallel()
	i := interruptible(t)
	p := i.start("import", "docs", endless(t), "--timeout", "1h")
	i.live(1)
	i.Hold(harness.ToClient)
	harness.Until(t, harness.Limit, "the import ends", func(context.Context) error {
		if p.Running() {
			p.Interrupt()
			return errors.New("it runs")
		}
		return nil
	})
	if p.WaitEnded() == 0 {
		t.Error("the exit code is 0")
	}
}

// TestImportLosesLapse: an import that gets no answers any more says once how to go on, and not
// for each line that it has sent.
func TestImportLosesLapse(t *testing.T) {
	t.Parallel()
	i := interruptible(t)
	p := i.start("import", "docs", endless(t), "--timeout", "2s")
	i.live(1)
	i.Hold(harness.ToClient)
	reason, written, unknown, from := i.said(p, 5)
	n := i.live(written)
	if !strings.HasPrefix(reason, "docs: the import is not complete: ") || n > written+unknown || from > written+1 {
		t.Errorf("there are %d documents, and the import says %s", n, p.Log())
	}
	i.goOn(from, n+100)
	i.live(n + 100)
}

// TestInterruptedExport: an export that is interrupted says so in a line.
func TestInterruptedExport(t *testing.T) {
	t.Parallel()
	i := interruptible(t)
	i.goOn(1, 5000)
	i.Delay(harness.ToClient, 300*time.Millisecond) // for each of several pages
	file := filepath.Join(t.TempDir(), "file")
	p := i.start("export", "docs", file, "--timeout", harness.Limit.String())
	i.there(file)
	p.Interrupt()
	incomplete := regexp.MustCompile(`^lapse: interrupted: docs: the export is not complete, it has \d+ documents\n$`)
	if code := p.WaitEnded(); code != 1 || !incomplete.MatchString(p.Log()) {
		t.Errorf("code %d: %s", code, p.Log())
	}
}

// TestInterruptedDelete: somebody interrupts a delete of what a query finds. It finishes its page, and says how many
// documents it has deleted. The same command deletes the rest.
func TestInterruptedDelete(t *testing.T) {
	t.Parallel()
	const documents = 5000
	i := interruptible(t)
	i.goOn(1, documents)
	i.Delay(harness.ToClient, 300*time.Millisecond) // for each of several pages
	command := []string{"delete", "docs", "--where", `id>="0"`, "--scan", "--timeout", harness.Limit.String()}
	p := i.start(command...)
	harness.Until(t, harness.Limit, "it deletes", func(ctx context.Context) error {
		count, err := i.docs.Count(ctx)
		if err == nil && count.Live == documents {
			err = errors.New("nothing is deleted")
		}
		return err
	})
	p.Interrupt()
	code := p.WaitEnded()
	m := regexp.MustCompile(`^lapse: interrupted: docs: not complete, documents deleted: (\d+)\. To go on, repeat the ` +
		`command\n$`).FindStringSubmatch(p.Log())
	if code != 1 || m == nil {
		t.Fatalf("code %d: %s", code, p.Log())
	}
	deleted, _ := strconv.Atoi(m[1])
	if count, err := i.docs.Count(t.Context()); err != nil || count.Live != int64(documents-deleted) ||
		deleted == documents {
		t.Errorf("%d documents are left, %v, and it says that it has deleted %d", count.Live, err, deleted)
	}
	out, errOut, code := harness.Run(t, "lapse", nil, append(command, "--server", i.lapse.NATSURL)...)
	if want := fmt.Sprintf("deleted docs documents=%d changed=0 failed=0\n", documents-deleted); code != 0 || out != want {
		t.Errorf("the command again: code %d: %s%s, want %s", code, out, errOut, want)
	}
}

// there waits until a file is there.
func (i *interrupted) there(pattern string) {
	i.t.Helper()
	harness.Until(i.t, harness.Limit, pattern+" is there", func(context.Context) error {
		names, err := filepath.Glob(pattern)
		if err == nil && names == nil {
			err = os.ErrNotExist
		}
		return err
	})
}

// TestInterruptedBackup: a backup that is interrupted leaves no file.
func TestInterruptedBackup(t *testing.T) {
	t.Parallel()
	i := interruptible(t)
	i.goOn(1, 100)
	i.Delay(harness.ToClient, 300*time.Millisecond) // for each of many answers
	dir := t.TempDir()
	p := i.start("backup", filepath.Join(dir, "file"), "--timeout", harness.Limit.String())
	i.there(filepath.Join(dir, "*.part"))
	p.Interrupt()
	if code := p.WaitEnded(); code != 1 || p.Log() != "lapse: interrupted: the backup is not complete: run the "+
		"command again\n" {
		t.Errorf("code %d: %s", code, p.Log())
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("it leaves %v, %v", files, err)
	}
}

// TestInterruptedRestore: a restore that is interrupted leaves nothing.
func TestInterruptedRestore(t *testing.T) {
	t.Parallel()
	i := interruptible(t)
	i.goOn(1, 100)
	file := filepath.Join(t.TempDir(), "file")
	if out, errOut, code := harness.Run(t, "lapse", nil, "backup", file, "--server", i.lapse.NATSURL); code != 0 {
		t.Fatal(out, errOut)
	}
	const want = "lapse: interrupted: nothing is restored: run the command again\n"

	// While it uploads.
	nats := harness.StartNATS(t, harness.NATSOptions{})
	proxy := harness.NewProxy(t, strings.TrimPrefix(nats.URL(), "nats://"))
	proxy.Delay(harness.ToClient, 300*time.Millisecond)
	p := harness.StartProcess(t, "restore", programs.Path(t, "lapse"), "restore", file, "--server",
		"nats://"+proxy.Address(), "--progress", "--timeout", harness.Limit.String())
	harness.Until(t, harness.Limit, "it restores", func(context.Context) error {
		if !strings.Contains(p.Log(), "restoring ") {
			return errors.New(p.Log())
		}
		return nil
	})
	p.Interrupt()
	if code := p.WaitEnded(); code != 1 || !strings.HasSuffix(p.Log(), want) {
		t.Errorf("code %d: %s", code, p.Log())
	}
	if out, errOut, code := harness.Run(t, "lapse", nil, "restore", file, "--server", nats.URL()); code != 0 {
		t.Errorf("the restore after it: code %d: %s%s", code, out, errOut)
	}
}
