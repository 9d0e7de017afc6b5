package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// The packages that the harness builds. A tool directive in go.mod keeps nats-server there.
const (
	natsPackage  = "github.com/nats-io/nats-server/v2"
	lapsePackage = "github.com/seed18712806/lapse/cmd/lapse"
)

var (
	buildNATS  = sync.OnceValues(func() (string, error) { return build("nats-server", natsPackage) })
	buildLapse = sync.OnceValues(func() (string, error) { return build("lapse", lapsePackage) })
	buildRacy  = sync.OnceValues(func() (string, error) { return build("lapse-race", lapsePackage, "-race") })
)

var made atomic.Int32 // calls of lapseBinary

var binDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "lapse-test-bin-") })

// Main runs the tests of a package that uses the harness. It fails if they leave
// goroutines behind, and removes the programs that they built.
func Main(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/seed18712806/lapse/integration/harness.runStarter"),
		goleak.Cleanup(func(code int) {
			if err := cleanUp(); err != nil {
				fmt.Fprintln(os.Stderr, "remove the programs that were built:", err)
			}
			os.Exit(code)
		}))
}

func cleanUp() error {
	dir, err := binDir()
	if err != nil {
		return nil // nothing was built
	}
	return os.RemoveAll(dir)
}

// lapseBinary returns the path of the lapse binary. It has the race detector if a long random test
// (TestAll_...) has it: those do everything that the others do, and more at the same time. For the
// others it would only cost time.
//
// If LAPSE_OLDER names the binary of an older version, every second process is of that one: so
// the tests show that both can run beside each other, as in an upgrade.
func lapseBinary(t testing.TB) string {
	t.Helper()
	if older := os.Getenv("LAPSE_OLDER"); older != "" && made.Add(1)%2 == 0 {
		return older
	}
	build := buildLapse
	if raceEnabled && strings.HasPrefix(t.Name(), "TestAll_") {
		build = buildRacy
	}
	path, err := build()
	if err != nil {
		t.Fatalf("build lapse: %v", err)
	}
	return path
}

func build(name, pkg string, flags ...string) (string, error) {
	dir, err := binDir()
	if err != nil {
		return "", err
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	args := append([]string{"build", "-o", path}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return path, nil
}

// moduleRoot returns the nearest directory with a go.mod, from the working directory
// upwards: a test runs in the directory of its package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod above the working directory")
		}
		dir = parent
	}
}
