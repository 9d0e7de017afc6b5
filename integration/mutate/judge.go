package main

import (
	"bytes"
	"cmp"
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

// judge finds out which test notices a mutation.
type judge struct {
	options
	dir   string               // for files of its own
	slack time.Duration        // that a run may take longer than three times as long as without a mutation
	runs  map[string][]command // by room
}

// command is a run of go test.
type command struct {
	by   string // the column of the table that it counts in
	args []string
	took time.Duration // without a mutation
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

// command returns the run of the package's tests.
func (p testPackage) command(by string) command {
	c := command{by: by, args: []string{"./" + p.at()}}
	if slices.Contains(slices.Concat(p.TestImports, p.XTestImports), "pgregory.net/rapid") {
		c.args = append(c.args, "-rapid.nofailfile") // it would write its findings into the work tree
	}
	return c
}

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

// commands returns the runs for a room, given all packages of the module.
func (j *judge) commands(ctx context.Context, r room, all []testPackage) ([]command, error) {
	own, err := packages(ctx, "./"+r.dir)
	if err != nil {
		return nil, err
	}
	commands := []command{own[0].command(byOwn)}
	for _, p := range all {
		tested := len(p.TestGoFiles)+len(p.XTestGoFiles) > 0 && p.at() != simulation
		if tested && slices.Contains(p.Imports, own[0].ImportPath) {
			commands = append(commands, p.command(byImporters))
		}
	}
	if r.simulated {
		commands = append(commands, command{by: bySimulation, args: []string{"-run=^(TestKept|TestSeeds)$",
			"./" + simulation, "-workers=1", fmt.Sprint("-for=", j.simulate), "-from=1"}})
	}
	return commands, nil
}

// baseline finds the tests of each room, and runs them without a mutation.
func (j *judge) baseline(ctx context.Context, some []room) error {
	j.runs = map[string][]command{}
	all, err := packages(ctx, "./...")
	if err != nil {
		return err
	}
	done := map[string]*command{} // by package; nil if it takes too long
	for _, r := range some {
		commands, err := j.commands(ctx, r, all)
		if err != nil {
			return err
		}
		for _, c := range commands {
			key := c.by + strings.Join(c.args, " ")
			if _, known := done[key]; !known {
				if done[key], err = j.unchanged(ctx, c); err != nil {
					return err
				}
			}
			if c := done[key]; c != nil {
				j.runs[r.name] = append(j.runs[r.name], *c)
			}
		}
		order := []string{byOwn, byImporters, bySimulation}
		slices.SortFunc(j.runs[r.name], func(a, b command) int {
			return cmp.Or(slices.Index(order, a.by)-slices.Index(order, b.by), cmp.Compare(a.took, b.took))
		})
	}
	return nil
}

// unchanged runs a command without a mutation, and fails if that does. It returns nil for an importer whose
// tests take too long.
func (j *judge) unchanged(ctx context.Context, c command) (*command, error) {
	limit := j.limit
	if c.by == byImporters {
		// The tests are compiled first, which does not count. The second run is the one that is measured.
		limit = j.cheap
		compile := exec.CommandContext(ctx, "go", "test", "-vet=off", "-run=^$", c.args[0])
		if out, err := compile.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
	}
	began := time.Now()
	how, out := j.test(ctx, c, limit, "")
	c.took = time.Since(began)
	fmt.Fprintf(os.Stderr, "%s without a mutation: go test %s: %.0f s %s\n",
		time.Now().Format(time.TimeOnly), strings.Join(c.args, " "), c.took.Seconds(), how)
	switch {
	case how == "":
		return &c, nil
	case how == byLimit && c.by == byImporters:
		return nil, ctx.Err()
	case how == byLimit:
		return nil, fmt.Errorf("go test %s takes more than %v without a mutation: use a longer -limit",
			strings.Join(c.args, " "), limit)
	}
	return nil, fmt.Errorf("go test %s fails without a mutation:\n%s", strings.Join(c.args, " "), out)
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
	for _, c := range j.runs[r.name] {
		if c.by == bySimulation {
			c.args = append(slices.Clip(c.args), fmt.Sprint("-from=", rand.Uint64N(1<<48)))
		}
		how, out := j.test(ctx, c, 3*c.took+j.slack, overlay)
		switch {
		case ctx.Err() != nil:
			return "", "", ctx.Err()
		case how == byLimit:
			return byLimit, strings.Join(c.args, " "), nil
		case how != "":
			why, _, _ := strings.Cut(failed.FindString(out), "\n")
			return c.by, strings.TrimSpace(why), nil
		}
	}
	return bySurvival, "", nil
}

// test runs go test on an overlay, or on the files as they are if it is "". It says how the command failed: by
// a test, or by the limit; "" if it passed.
func (j *judge) test(ctx context.Context, c command, limit time.Duration, overlay string) (how, out string) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{"test", "-vet=off", "-count=1", "-failfast", "-short", "-timeout=0"}
	cmd := exec.CommandContext(limited, "go", append(args, c.args...)...)
	cmd.Env = append(os.Environ(), "LAPSE_QUICK=1")
	if overlay != "" { // some tests compile programs, which have the mutation too then
		cmd.Env = append(cmd.Env, strings.TrimSpace("GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
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
	return c.by, string(text)
}
