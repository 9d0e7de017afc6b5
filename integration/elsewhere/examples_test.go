package elsewhere

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/micro"

	"github.com/seed18712806/lapse/integration/documents"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestFollowWithUsers: the program for Node that names a user and a certificate follows events as CloudEvents, and
// the SDK of CloudEvents reads everything that one can have.
//
// It fails if a subject, a header or a permission changes.
func TestFollowWithUsers(t *testing.T) {
	t.Parallel()
	i := install(t)
	c := harness.NewClient(t, i.nats.URL(), "")
	c.Configure("visits", `{"defaultTtl":3600}`)
	written := c.Want(wire.StatusCreated, wire.Create, "visits", "7", `{"page":"/tea","ttl":1}`)
	harness.Until(t, harness.Limit, "the reader has a mirror of the events", func(context.Context) error {
		reply, err := c.NC.Request("$JS.READERS.API.STREAM.INFO.LAPSE_EVENTS", nil, time.Second)
		if err == nil && strings.Contains(string(reply.Data), `"error"`) {
			err = errors.New(string(reply.Data))
		}
		return err
	})
	dir := t.TempDir()
	program := documents.Read(t, "deploy/recipes/follow.mjs")
	program = strings.ReplaceAll(program, "tls://127.0.0.1:4222", "tls://"+harness.Address(i.nats.Port))
	root := documents.Root(t)
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "deploy"), 0o700),
		os.Symlink(i.secrets, filepath.Join(dir, "deploy", "trial")),
		os.Symlink(filepath.Join(root, "integration", "node", "node_modules"), filepath.Join(dir, "node_modules")),
		os.WriteFile(filepath.Join(dir, "follow.mjs"), []byte(program), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "node", "follow.mjs")
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	want := regexp.MustCompile(`^lapse\.document\.expired\.v1 /lapse/\d+/collections/visits visits/7/` +
		written.Etag.String() + ` \S+Z \{ page: '/tea', ttl: 1 \}\n$`)
	if err != nil || !want.Match(out) {
		t.Errorf("node follow.mjs: %v\n%s", err, out)
	}
	readByCloudEvents(t, dir, c)
}

var literal = regexp.MustCompile(`"((?:lapse\.|LAPSE_|Lapse-|Nats-)[^"]*)"`)

// TestPython: the program for Python compiles, and what it has of subjects, streams and headers is what lapse has.
// Nothing runs it here, because its library comes from a registry that the tests do not use.
func TestPython(t *testing.T) {
	t.Parallel()
	p := wire.DefaultPrefix
	known := []string{
		p.Config("visits"), p.Write(wire.Upsert, "visits", "7"), p.ReadGet("visits", "7"),
		p.Write(wire.Patch, "visits", "7"),
		strings.TrimSuffix(p.Expired("visits", "7"), "7") + ">", p.EventsStream(), wire.HeaderReplyTo,
		wire.HeaderExpiresAt,
		micro.ErrorCodeHeader, micro.ErrorHeader,
	}
	text := documents.Read(t, "deploy/recipes/visits.py")
	path := filepath.Join(t.TempDir(), "visits.py")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "python3", "-m", "py_compile", path).CombinedOutput(); err != nil {
		t.Errorf("visits.py: %v\n%s", err, out)
	}
	var names []string
	for _, match := range literal.FindAllStringSubmatch(text, -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	slices.Sort(known)
	if names = slices.Compact(names); !slices.Equal(names, known) {
		t.Errorf("visits.py has the names\n%q, and lapse has\n%q", names, known)
	}
}
