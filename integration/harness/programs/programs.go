// Package programs builds the programs that tests run: lapse and the nats-server of the module.
// A test binary builds each lapse once, into a directory that [Remove] removes. All test binaries
// have one nats-server, which Go keeps in its cache.
package programs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The packages of the programs. A tool directive in go.mod keeps nats-server there.
const (
	natsPackage  = "github.com/nats-io/nats-server/v2"
	lapsePackage = "github.com/seed18712806/lapse/cmd/lapse"
)

var (
	buildNATS  = sync.OnceValues(func() (string, error) { return run("tool", "-n", natsPackage) })
	buildLapse = sync.OnceValues(func() (string, error) { return build("lapse", lapsePackage) })
	buildRacy  = sync.OnceValues(func() (string, error) { return build("lapse-race", lapsePackage, "-race") })
)

var binDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "lapse-test-bin-") })

// Remove removes what was built.
func Remove() error {
	dir, err := binDir()
	if err != nil {
		return nil // nothing was built
	}
	return os.RemoveAll(dir)
}

// racy are the tests whose lapse has the race detector: they do everything that the others do, and
// more at the same time. For the others it would only cost time.
var racy = []string{"TestAll_Faults", "TestAll_Soak", "TestAll_Takeovers"}

// ToServe returns the path of the lapse binary for a process that serves. It has the race
// detector in some tests, if they have it themselves. LAPSE_RACE=all: in all of them.
func ToServe(t testing.TB) string {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	if raceEnabled && (slices.Contains(racy, test) || os.Getenv("LAPSE_RACE") == "all") {
		return Path(t, "lapse-race")
	}
	return Path(t, "lapse")
}

// Path returns the path of a program: nats-server, lapse, or lapse-race, which is lapse with the
// race detector.
func Path(t testing.TB, program string) string {
	t.Helper()
	build := map[string]func() (string, error){"nats-server": buildNATS, "lapse": buildLapse,
		"lapse-race": buildRacy}[program]
	path, err := build()
	if err != nil {
		t.Fatalf("build %s: %v", program, err)
	}
	return path
}

func build(name, pkg string, flags ...string) (string, error) {
	dir, err := binDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	args := append([]string{"build", "-o", path}, flags...)
	_, err = run(append(args, pkg)...)
	return path, err
}

// run runs a command of Go in the root, and returns what it prints.
func run(args ...string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			out = exit.Stderr
		}
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out)), nil
}

// Root returns the nearest directory with a go.mod, from the working directory
// upwards: a test runs in the directory of its package.
func Root() (string, error) {
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
