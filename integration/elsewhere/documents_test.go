package elsewhere

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

func TestMain(m *testing.M) { harness.Main(m) }

// The commands with curl and the programs for Node do what the documents say. The SDK of
// CloudEvents reads events.
//
// It fails if somebody changes a subject, a header, a path or an answer, and not the documents.
func TestDocuments(t *testing.T) {
	t.Parallel()
	i := install(t)
	c := harness.NewClient(t, i.nats.URL(), "")
	c.Write(wire.Create, "visits", "7", `{"page":"/tea","ttl":1}`) // for the program that only follows events
	c.Configure("visits", `{"defaultTtl":3600}`)
	ran := map[string]int{}
	for _, document := range []string{"README.md", "deploy/README.md"} {
		for _, b := range blocks(t, document) {
			if b.language == "js" {
				i.save(b)
				continue
			}
			session := b.session()
			if !slices.ContainsFunc(session, func(c command) bool {
				return strings.HasPrefix(c.line, "curl ") || strings.HasPrefix(c.line, "node ")
			}) {
				continue
			}
			for _, c := range session {
				if packages, ok := strings.CutPrefix(c.line, "npm install "); ok {
					i.installed(strings.Fields(packages))
					continue
				}
				if got := i.run(c); same(got) != same(c.output) {
					t.Errorf("%s: %s\nprinted\n%s\nand the document has\n%s", document, c.line, got, c.output)
				}
				name, _, _ := strings.Cut(c.line, " ")
				ran[name]++
			}
		}
	}
	if ran["curl"] < 4 || ran["node"] < 2 {
		t.Errorf("the documents have only these commands: %v", ran)
	}
	i.readByCloudEvents(c)
}

// save writes a program into the directory of the sessions.
func (i *installation) save(b block) {
	i.t.Helper()
	if err := os.WriteFile(filepath.Join(i.dir, b.file()), []byte(i.here.Replace(b.text)), 0o600); err != nil {
		i.t.Fatal(err)
	}
}

// installed fails the test unless .ci/need has installed these packages of npm.
func (i *installation) installed(packages []string) {
	i.t.Helper()
	for _, name := range packages {
		if _, err := os.Stat(filepath.Join(i.dir, "node_modules", name, "package.json")); err != nil {
			i.t.Fatalf("the package %s is needed in integration/node: run .ci/need, which installs it (%v)", name, err)
		}
	}
}

// run runs a command in the directory of the sessions, and returns what it printed.
func (i *installation) run(c command) string {
	i.t.Helper()
	line := c.line
	if strings.HasPrefix(line, "curl ") {
		line = "exec curl --silent --show-error " + strings.TrimPrefix(line, "curl ") // a terminal shows no progress of so little
	}
	ctx, cancel := context.WithTimeout(i.t.Context(), harness.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", i.here.Replace(line))
	var failed bytes.Buffer
	printed := &output{want: same(c.output), complete: make(chan struct{})}
	cmd.Dir, cmd.Stdout, cmd.Stderr = i.dir, printed, &failed
	if err := cmd.Start(); err != nil {
		i.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	var err error
	if c.interrupt {
		select {
		case <-printed.complete:
			_ = cmd.Process.Signal(syscall.SIGINT)
			<-ended
		case err = <-ended:
			err = errors.Join(errors.New("it ended by itself"), err)
		}
	} else {
		err = <-ended
	}
	if err != nil {
		i.t.Errorf("%s: %v\n%s%s", line, err, printed, failed.String())
	}
	return printed.String()
}

// output is what a command prints.
type output struct {
	want     string
	complete chan struct{} // closed when it is what the document shows

	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := same(o.text.String()) == o.want
	n, err := o.text.Write(b)
	if !was && same(o.text.String()) == o.want {
		close(o.complete)
	}
	return n, err
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var literal = regexp.MustCompile(`"((?:lapse\.|LAPSE_|Lapse-|Nats-)[^"]*)"`)

// The program for Python compiles, and what it has of subjects, streams and headers is what lapse
// has. Nothing runs it here, because its library comes from a registry that the tests do not
// use.
func TestPython(t *testing.T) {
	t.Parallel()
	p, known := wire.DefaultPrefix, []string{}
	known = append(known, p.Config("visits"), p.Write(wire.Upsert, "visits", "7"), p.ReadGet("visits", "7"), p.Write(wire.Patch, "visits", "7"),
		strings.TrimSuffix(p.Expired("visits", "7"), "7")+">", p.EventsStream(), wire.HeaderReplyTo, wire.HeaderExpiresAt, micro.ErrorCodeHeader, micro.ErrorHeader)
	for _, b := range blocks(t, "deploy/README.md") {
		if b.language != "python" {
			continue
		}
		path := filepath.Join(t.TempDir(), b.file())
		if err := os.WriteFile(path, []byte(b.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), "python3", "-m", "py_compile", path).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", b.file(), err, out)
		}
		var names []string
		for _, match := range literal.FindAllStringSubmatch(b.text, -1) {
			names = append(names, match[1])
		}
		slices.Sort(names)
		slices.Sort(known)
		if names = slices.Compact(names); !slices.Equal(names, known) {
			t.Errorf("%s has the names\n%q, and lapse has\n%q", b.file(), names, known)
		}
		return
	}
	t.Error("deploy/README.md has no program for Python")
}
