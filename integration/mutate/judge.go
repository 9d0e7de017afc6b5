package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// The columns of the table: what caught a mutation, or that it survived.
const (
	byOwn        = "own tests"
	byImporters  = "importers"
	bySimulation = "simulation"
	byLimit      = "time limit"
	bySurvival   = "survived"
)

// simulation is the package of the simulation.
const simulation = "integration/simulation"

// simulated are the tests of the simulation that run histories.
const simulated = "TestKept|TestSeeds"

// judge finds out which test notices a mutation.
type judge struct {
	options
	dir    string            // for files of its own
	slack  time.Duration     // that a run may take longer than three times as long as without a mutation
	all    []testPackage     // of the module
	suites map[string]*suite // by the file in the cache
}

// newJudge returns a judge that uses a directory for its files.
func newJudge(ctx context.Context, o options, dir string) (*judge, error) {
	if o.cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, err
		}
		o.cache = filepath.Join(user, "lapse-mutate")
	}
	if err := os.MkdirAll(o.cache, 0o700); err != nil {
		return nil, err
	}
	all, err := packages(ctx, "./...")
	return &judge{options: o, dir: dir, slack: 30 * time.Second, all: all, suites: map[string]*suite{}}, err
}

// testPackage is what go list says of a package.
type testPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
	TestGoFiles, XTestGoFiles, GoFiles []string
	Module                             struct{ Path, Dir string }
}

// at returns the package's directory from the root of the module.
func (p testPackage) at() string { return strings.TrimPrefix(p.ImportPath, p.Module.Path+"/") }

// packages lists packages, by the patterns of go list.
func packages(ctx context.Context, patterns ...string) (all []testPackage, err error) {
	fields := "-json=ImportPath,Module,GoFiles,Imports,TestGoFiles,XTestGoFiles,TestImports,XTestImports"
	args := []string{"list", fields}
	list := exec.CommandContext(ctx, "go", append(args, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", strings.Join(patterns, " "), err)
	}
	for decode := json.NewDecoder(bytes.NewReader(out)); decode.More(); {
		var p testPackage
		if err := decode.Decode(&p); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// failed matches what go test prints of the first test that failed.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|seed \d+ failed: .*|^panic: .*|^fatal error: .*|^FAIL\s.*`)

// try says which tests caught a mutation, or that it survived.
func (j *judge) try(ctx context.Context, r room, m *mutation) (by, why string, err error) {
	changed := filepath.Join(j.dir, "changed"+filepath.Ext(m.file))
	overlay := filepath.Join(j.dir, "overlay.json")
	file, err := filepath.Abs(m.file)
	if err != nil {
		return "", "", err
	}
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: changed}})
	if err != nil {
		return "", "", err
	}
	if err := errors.Join(os.WriteFile(changed, m.changed(), 0o600),
		os.WriteFile(overlay, replace, 0o600)); err != nil {
		return "", "", err
	}
	if !slices.ContainsFunc(j.all, func(p testPackage) bool { return p.at() == r.dir }) {
		own, err := packages(ctx, "./"+r.dir) // it is in a testdata
		if err != nil {
			return "", "", err
		}
		j.all = append(j.all, own...)
	}
	reached := false
	for _, by := range []string{byOwn, byImporters, bySimulation} {
		for _, p := range j.packages(r, by) {
			how, why, err := j.tryPackage(ctx, r, m, by, p, overlay, &reached)
			if how != "" || err != nil {
				return how, why, err
			}
		}
	}
	if !reached {
		return bySurvival, "no test reaches it", nil
	}
	return bySurvival, "", nil
}

// packages returns the packages whose tests count in a column of a room.
func (j *judge) packages(r room, by string) (some []testPackage) {
	own := slices.IndexFunc(j.all, func(p testPackage) bool { return p.at() == r.dir })
	for i, p := range j.all {
		tested := len(p.TestGoFiles)+len(p.XTestGoFiles) > 0
		switch {
		case by == byOwn && i == own,
			by == byImporters && j.importers > 0 && tested && p.at() != simulation &&
				slices.Contains(p.Imports, j.all[own].ImportPath),
			by == bySimulation && j.simulate > 0 && r.simulated && p.at() == simulation:
			some = append(some, p)
		}
	}
	return some
}

// tryPackage says which tests of a package caught a mutation; how is "" if none did. It runs those that reach the
// mutation, the quickest first, as many as the budget allows, several in one process.
func (j *judge) tryPackage(ctx context.Context, r room, m *mutation, by string, p testPackage, overlay string,
	reached *bool) (how, why string, err error) {
	inTime := time.Duration(1<<63 - 1)
	if by == byImporters {
		inTime = j.importers
	}
	s, err := j.suite(ctx, p, r, inTime)
	if err != nil {
		return "", "", err
	}
	tests := s.reaching(m)
	if len(tests) == 0 {
		return "", "", nil
	}
	*reached = true
	b, err := j.build(ctx, p, overlay)
	if err != nil {
		return "", "", err
	}
	var spent time.Duration
	for len(tests) > 0 && (spent == 0 || spent+tests[0].Took <= j.budget) {
		var names []string
		var took time.Duration
		for len(tests) > 0 && (took == 0 || took+tests[0].Took < oneProcess && spent+took+tests[0].Took <= j.budget) {
			names, took, tests = append(names, tests[0].Name), took+tests[0].Took, tests[1:]
		}
		spent += took
		how, out := b.run(ctx, strings.Join(names, "|"), 3*took+j.slack)
		switch {
		case ctx.Err() != nil:
			return "", "", ctx.Err()
		case how == byLimit:
			return byLimit, p.at() + ": " + strings.Join(names, ", "), nil
		case how != "":
			why, _, _ := strings.Cut(failed.FindString(out), "\n")
			return by, strings.TrimSpace(why), nil
		}
	}
	return "", "", nil
}

// oneProcess is how long the tests take that run in one process.
const oneProcess = 5 * time.Second

// binary is the tests of a package, compiled.
type binary struct {
	*judge
	testPackage
	path, overlay string
}

// build compiles the tests of a package with an overlay, or with the files as they are if it is "".
func (j *judge) build(ctx context.Context, p testPackage, overlay string, flags ...string) (*binary, error) {
	path, err := filepath.Abs(filepath.Join(j.dir, "tests"))
	if err != nil {
		return nil, err
	}
	b := &binary{judge: j, testPackage: p, path: path, overlay: overlay}
	args := append([]string{"test", "-c", "-vet=off", "-o", b.path}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+p.at())...)
	cmd.Env = b.environment()
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c ./%s: %w\n%s", p.at(), err, out)
	}
	return b, nil
}

// environment returns that of the tests. Some compile programs, which have the mutation too then.
func (b *binary) environment() []string {
	env := append(os.Environ(), "LAPSE_QUICK=1")
	if b.overlay != "" {
		env = append(env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+b.overlay))
	}
	return env
}

// tests lists the tests, fuzz targets and examples.
func (b *binary) tests(ctx context.Context) ([]string, error) {
	list := exec.CommandContext(ctx, b.path, "-test.list=^(Test|Fuzz|Example)")
	list.Dir = b.at()
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the tests in %s: %w", b.at(), err)
	}
	return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
		return !strings.HasPrefix(name, "Test") && !strings.HasPrefix(name, "Fuzz") && !strings.HasPrefix(name, "Example")
	}), nil
}

// run runs tests. It says how they failed: by a test, or by the limit; "" if they passed.
func (b *binary) run(ctx context.Context, names string, limit time.Duration, flags ...string) (how, out string) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := append(flags, "-test.failfast", "-test.short", "-test.timeout=0", "-test.run=^("+names+")$")
	if slices.Contains(slices.Concat(b.TestImports, b.XTestImports), "pgregory.net/rapid") {
		args = append(args, "-rapid.nofailfile") // it would write its findings into the work tree
	}
	if b.at() == simulation {
		from := uint64(1)
		if b.overlay != "" {
			from = rand.Uint64N(1 << 48)
		}
		args = append(args, "-workers=1", fmt.Sprint("-for=", b.simulate), fmt.Sprint("-from=", from))
	}
	cmd := exec.CommandContext(limited, b.path, args...)
	cmd.Dir, cmd.Env = b.at(), b.environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the servers that a test starts
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return "", ""
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return byLimit, ""
	}
	return "tests", string(text)
}
