package elsewhere

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/seed18712806/lapse/integration/documents"
	"github.com/seed18712806/lapse/integration/harness"
)

// TestExpressStore: an Express keeps its sessions in lapse, by the file that people copy: a request renews a session,
// a logout ends it, and one that has expired is gone.
//
// It fails if a route, a body or a code of the API changes.
func TestExpressStore(t *testing.T) {
	t.Parallel()
	base := "http://" + harness.EmbeddedLapse(t, harness.ClosedCollections).HTTP
	if status, text := pathClients["go"](t, "PUT", base, "/v1/collections/sessions",
		`{"defaultTtl":-1}`); status != 200 {
		t.Fatal(status, text)
	}
	dir, root := t.TempDir(), documents.Root(t)
	copies := map[string]string{
		"express-store.mjs": filepath.Join(root, "deploy", "recipes", "express-store.mjs"),
		"express.mjs":       filepath.Join("testdata", "express.mjs"),
	}
	err := os.Symlink(filepath.Join(root, "integration", "node", "node_modules"), filepath.Join(dir, "node_modules"))
	for name, from := range copies {
		text, readErr := os.ReadFile(from)
		err = errors.Join(err, readErr, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "express.mjs", base)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "done\n" {
		t.Errorf("node express.mjs: %v\n%s", err, out)
	}
}
