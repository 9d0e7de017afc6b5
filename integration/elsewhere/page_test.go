package elsewhere

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/seed18712806/lapse/integration/documents"
	"github.com/seed18712806/lapse/integration/harness"
	harnessprograms "github.com/seed18712806/lapse/integration/harness/programs"
)

// standIn names the program that the test binary is, in place of the tests.
const standIn = "LAPSE_TEST_STAND_IN"

// page runs the blocks of a document in a directory that looks like the root of the project. What a reader may
// not have, or what would change the machine (docker, kubectl, helm, systemctl, git, go, npm), is a stand-in in
// testdata/bin: it checks the files that a command names, and runs lapse where a container would.
type page struct {
	t        *testing.T
	document string
	dir      string
	env      map[string]string
	ports    map[string]int    // of this test, by those in the documents
	also     map[string]string // other texts of the documents, and what is here in their place
}

func newPage(t *testing.T, document string) *page {
	t.Helper()
	p := &page{t: t, document: document, dir: t.TempDir(), ports: map[string]int{}, also: map[string]string{}}
	root := documents.Root(t)
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "deploy" && e.Name() != ".git" {
			err = errors.Join(err, os.Symlink(filepath.Join(root, e.Name()), filepath.Join(p.dir, e.Name())))
		}
	}
	// Commands write into deploy.
	err = errors.Join(err, os.CopyFS(filepath.Join(p.dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))))
	err = errors.Join(err, os.Chmod(filepath.Join(p.dir, "deploy", "secrets"), 0o700))
	for _, dir := range []string{"bin", "etc/systemd/system", "usr/local/bin", "backups", "home"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(p.dir, "..", filepath.Base(p.dir)+"-system", dir), 0o700))
	}
	system := p.dir + "-system"
	here, err2 := filepath.Abs("testdata/bin")
	self, err3 := os.Executable()
	nats := "#!/bin/sh\n" + standIn + "=nats exec " + self + ` "$@"` + "\n"
	err = errors.Join(err, err2, err3,
		os.Symlink(harnessprograms.Path(t, "lapse"), filepath.Join(system, "bin", "lapse")),
		os.Symlink(harnessprograms.Path(t, "nats-server"), filepath.Join(system, "bin", "nats-server")),
		os.WriteFile(filepath.Join(system, "bin", "nats"), []byte(nats), 0o700),
		os.Symlink(filepath.Join(root, "integration", "node", "node_modules"), filepath.Join(p.dir, "node_modules")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(system) })
	for _, path := range []string{"/etc", "/usr/local/bin", "/backups"} {
		p.also[" "+path+"/"] = " " + system + path + "/"
	}
	p.env = map[string]string{
		"HOME": filepath.Join(system, "home"), "PATH": here + ":" + filepath.Join(system, "bin") + ":" +
			os.Getenv("PATH"),
		"NO_COLOR": "1", "TZ": "UTC",
	}
	return p
}

// programsHere gives the programs beside the recipes the addresses of this test.
func (p *page) programsHere() {
	p.t.Helper()
	paths, err := filepath.Glob(filepath.Join(p.dir, "deploy", "recipes", "*.mjs"))
	for _, path := range paths {
		text, readErr := os.ReadFile(path)
		err = errors.Join(err, readErr, os.WriteFile(path, []byte(p.here(string(text))), 0o600))
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// port returns the port of this test for one of the documents.
func (p *page) port(documented string) int {
	if p.ports[documented] == 0 {
		p.ports[documented] = harness.FreePort(p.t)
	}
	return p.ports[documented]
}

// open lets the page have a lapse with embedded servers.
func (p *page) open() {
	p.t.Helper()
	l := harness.EmbeddedLapse(p.t, harness.ClosedCollections)
	p.is("4222", l.NATSURL)
	p.is("7070", l.HTTP)
	p.env["LAPSE_SERVER"], p.env["LAPSE_HTTP_LISTEN"] = l.NATSURL, l.HTTP
}

// is tells at which address of this test something is.
func (p *page) is(documented, address string) {
	p.t.Helper()
	_, port, _ := strings.Cut(address[strings.LastIndexByte(address, '/')+1:], ":")
	n, err := strconv.Atoi(port)
	if err != nil {
		p.t.Fatal(address, err)
	}
	p.ports[documented] = n
}

// alone lets the page start everything by itself: what it starts without a flag has ports of this test.
func (p *page) alone() {
	p.env["LAPSE_SERVER"] = "nats://" + harness.Address(p.port("4222"))
	p.env["LAPSE_HTTP_LISTEN"] = harness.Address(p.port("7070"))
}

// containers lets the page have a lapse where the containers would be: the stand-ins for docker and kubectl
// use it.
func (p *page) containers() {
	p.t.Helper()
	p.open()
	p.is("6379", harness.StartRedis(p.t, harness.RedisOptions{}).Address())
	p.also["/HOST:7070"] = "/" + harness.Address(p.ports["7070"])
}

// closed lets the page have a lapse with users, tokens and TLS.
func (p *page) closed() {
	p.t.Helper()
	i := install(p.t)
	p.is("4222", i.nats.URL())
	p.is("7070", i.https)
	p.also["https://127.0.0.1:7070"] = "https://" + i.https
	err := errors.Join(os.Symlink(filepath.Join(i.secrets, "ca.crt"), filepath.Join(p.dir, "ca.crt")),
		os.Symlink(i.secrets, filepath.Join(p.dir, "deploy", "trial")))
	if err != nil {
		p.t.Fatal(err)
	}
}

var address = regexp.MustCompile(`(127\.0\.0\.1:|localhost:|--port |-p |listen\()(\d{4})\b`)

// here returns a text of the page with the addresses and the paths of this test.
func (p *page) here(text string) string {
	text = address.ReplaceAllStringFunc(text, func(s string) string {
		m := address.FindStringSubmatch(s)
		return m[1] + strconv.Itoa(p.port(m[2]))
	})
	for from, to := range p.also {
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}

// stays is a command that runs until somebody ends it.
var stays = regexp.MustCompile(`^(go run \./cmd/lapse|lapse) (serve|demo)\b[^&|]*$`)

// shell makes a command of the shell. What it starts ends with the test.
func (p *page) shell(text string) (*exec.Cmd, *os.File) {
	p.t.Helper()
	out, err := os.CreateTemp(p.t.TempDir(), "output")
	if err != nil {
		p.t.Fatal(err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", p.here(text))
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, out, out // what begins behind an & writes on
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, name := range []string{"GOCACHE", "GOFLAGS", "GOMODCACHE", "GOPATH", "GOPROXY"} {
		if value, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	for name, value := range maps.All(p.env) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	p.t.Cleanup(func() { _ = out.Close() })
	return cmd, out
}

// start starts a command of the shell. Everything in its group of processes is killed when the test ends.
func (p *page) start(cmd *exec.Cmd) (ended chan error) {
	p.t.Helper()
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	p.t.Cleanup(func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	return ended
}

func printed(out *os.File) string {
	b, _ := os.ReadFile(out.Name())
	return string(b)
}

// script runs a block without prompts: all of it has to do without an error.
func (p *page) script(text string) {
	p.t.Helper()
	text = strings.TrimSpace(text)
	if line, _, _ := strings.Cut(text, " #"); stays.MatchString(strings.TrimSpace(line)) &&
		!strings.Contains(text, "\n") {
		p.serve(line)
		return
	}
	p.command(lineOfSession{line: text})
}

// serve starts a lapse that stays, and waits until it is ready.
func (p *page) serve(line string) {
	p.t.Helper()
	p.env["LAPSE_NATS_LISTEN"] = harness.Address(p.port("4222"))
	cmd, out := p.shell(line)
	ended := p.start(cmd)
	harness.Until(p.t, harness.Limit, line, func(ctx context.Context) error {
		select {
		case err := <-ended:
			ended <- err
			p.t.Fatalf("%s: %s ended: %v\n%s", p.document, line, err, printed(out))
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+harness.Address(p.port("7070"))+"/readyz",
			nil)
		if err != nil {
			return err
		}
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
	delete(p.env, "LAPSE_NATS_LISTEN")
}

// command runs a command, and compares what it prints with what the page shows; if that is nothing, it only has
// to do without an error.
func (p *page) command(c lineOfSession) {
	p.t.Helper()
	line := c.line
	if strings.HasPrefix(line, "curl ") { // a terminal shows no progress of so little
		line = "curl --silent --show-error " + strings.TrimPrefix(line, "curl ")
	}
	cmd, out := p.shell(line)
	ended := p.start(cmd)
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*harness.Limit)
	defer cancel()
	var err error
	if c.interrupt {
		harness.Until(p.t, harness.Limit, c.line, func(context.Context) error {
			if !shows(c.output, printed(out)) {
				return fmt.Errorf("it has printed\n%s\nand %s has\n%s", printed(out), p.document, c.output)
			}
			return nil
		})
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
		<-ended
	} else {
		select {
		case err = <-ended:
		case <-ctx.Done():
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			err = errors.Join(ctx.Err(), <-ended)
		}
	}
	got := printed(out)
	if fails := strings.Contains(c.output, "lapse: "); (err != nil) != fails {
		p.t.Fatalf("%s: %s\nended with %v\n%s", p.document, c.line, err, got)
	}
	if c.output != "" && !shows(c.output, got) {
		p.t.Errorf("%s: %s\nprinted\n%s\nand the page has\n%s", p.document, c.line, got, c.output)
	}
}

// varies is what differs from run to run: instants, etags, sequences, ages and sizes.
var varies = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|today at [\d:]+|` +
	`\b\d+(\.\d+)? ?(ms|s|B|KB|MB|KiB|MiB)\b|` +
	`(?m:(etag[":, =]*|^id: |/lapse/|"seq":|visits/7/|"live":)\d+)`)

// same returns a text without what differs from run to run, and without white space.
func same(text string) string {
	return strings.Join(strings.Fields(varies.ReplaceAllString(text, "${3}0")), "")
}

// shows reports whether a page shows what a command prints: "…" stands for any text.
func shows(page, got string) bool {
	var pattern bytes.Buffer
	for i, part := range strings.Split(same(page), "…") {
		if i > 0 {
			pattern.WriteString(".*")
		}
		pattern.WriteString(regexp.QuoteMeta(part))
	}
	return regexp.MustCompile("(?s)^" + pattern.String() + "$").MatchString(same(got))
}
