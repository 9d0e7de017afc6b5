package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// judge finds out who notices a mutation.
type judge struct {
	options
	root, dir, overlay string
	programs           map[string]*program // by package
}

// program is the compiled tests of a package with all mutations.
type program struct {
	file, dir string
	args      []string
	tests     []test // those that pass without a mutation; the fastest first
}

// test is what go test -run can choose.
type test struct {
	name    string
	took    time.Duration
	cpu     time.Duration // that it needs for that
	reached map[int]bool  // the mutations whose function it runs
}

const (
	simulation = "integration/simulation"
	atOnce     = 3 // tests that are measured
)

// try says who caught a mutation (own, other, histories or hang), or that it survived.
func (j *judge) try(ctx context.Context, r room, m *mutation) (by, why string, err error) {
	packages := slices.Clone(r.dirs)
	others, named, _ := strings.Cut(r.others, " ")
	if r.simulated {
		packages = append(packages, simulation)
	}
	if others != "" {
		packages = append(packages, others)
	}
	for _, pkg := range packages {
		p, err := j.program(ctx, pkg, named)
		if err != nil {
			return "", "", err
		}
		by := "own"
		if pkg == others {
			by = "other"
		} else if pkg == simulation {
			by = "histories"
		}
		how, why := j.run(ctx, p, m)
		if ctx.Err() != nil {
			return "", "", ctx.Err()
		}
		switch how {
		case "hang":
			return how, why, nil
		case "caught":
			return by, why, nil
		}
	}
	same, err := j.same(ctx, m)
	if same {
		return "same", "", err
	}
	return "survived", "", err
}

// program compiles the tests of a package, and finds out which of them reaches what, and how long
// it takes.
func (j *judge) program(ctx context.Context, pkg, named string) (*program, error) {
	if p := j.programs[pkg]; p != nil {
		return p, nil
	}
	p := &program{file: filepath.Join(j.dir, strings.ReplaceAll(pkg, "/", "-")+".test"), dir: filepath.Join(j.root, pkg)}
	j.programs[pkg] = p
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", j.overlay, "-o", p.file, "./"+pkg)
	build.Dir = j.root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go test -c %s: %w\n%s", pkg, err, out)
	}
	if _, err := os.Stat(p.file); err != nil {
		return p, nil // it has no tests
	}
	// The library rapid would write what it finds into the tree.
	if help, _ := exec.CommandContext(ctx, p.file, "-help").CombinedOutput(); bytes.Contains(help, []byte("-rapid.nofailfile")) {
		p.args = []string{"-rapid.nofailfile"}
	}
	names := []string{"TestKept", "TestSeeds"}
	if pkg != simulation {
		list := exec.CommandContext(ctx, p.file, "-test.list", "^(Test|Fuzz|Example)")
		list.Dir = p.dir
		out, err := list.Output()
		if err != nil {
			return nil, err
		}
		names = strings.Fields(string(out))
	}
	if matches := regexp.MustCompile(named).MatchString; pkg == "integration" {
		names = slices.DeleteFunc(names, func(name string) bool { return !matches(name) })
	}
	var mu sync.Mutex
	var group errgroup.Group
	group.SetLimit(atOnce) // most of them wait
	for _, name := range names {
		group.Go(func() error {
			t, why, err := j.measure(ctx, p, name)
			mu.Lock()
			defer mu.Unlock()
			if why == "" {
				p.tests = append(p.tests, t)
			} else {
				fmt.Fprintf(os.Stderr, "%s %s is left out, as it fails without a mutation: %s\n", pkg, name, why)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(p.tests, func(a, b test) int { return int(a.took - b.took) })
	return p, nil
}

// measure finds out what a test reaches and how long it takes, or why it fails without a mutation.
func (j *judge) measure(ctx context.Context, p *program, name string) (t test, why string, err error) {
	t = test{name: name, reached: map[int]bool{}}
	reached, began := fmt.Sprint(p.file, ".", name), time.Now()
	how, why, cpu := j.exec(ctx, p, []string{name}, j.limit, j.limit, "LAPSE_MUTANTS_REACHED="+reached)
	if how != "" {
		return t, how + " " + why, ctx.Err()
	}
	t.took, t.cpu = time.Since(began), cpu
	seen, err := os.ReadFile(reached)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return t, "", err
	}
	for id := range strings.FieldsSeq(string(seen)) {
		n, _ := strconv.Atoi(id)
		t.reached[n] = true
	}
	return t, "", nil
}

// run runs the tests of a program that reach a mutation, as many of them as fit into the limit,
// and those that take long only if no other notices.
func (j *judge) run(ctx context.Context, p *program, m *mutation) (how, why string) {
	for _, long := range []bool{false, true} {
		var names []string
		var sum, cpu time.Duration
		for _, t := range p.tests {
			if t.reached[m.id] && (t.took > 3*time.Second) == long && sum+t.took <= j.limit {
				names, sum, cpu = append(names, t.name), sum+t.took, cpu+t.cpu
			}
		}
		if len(names) == 0 {
			continue
		}
		if how, why, _ = j.exec(ctx, p, names, 10*(j.slack+sum), j.slack+3*cpu, fmt.Sprint("LAPSE_MUTANT=", m.id)); how != "" {
			return how, why
		}
	}
	return "", ""
}

// failed matches what a test program prints of the first test that failed.
var failed = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|seed \d+ failed: .*|^panic: .*|^fatal error: .*`)

// exec runs tests of a program, and says whether they caught what the environment sets, and the CPU
// time that they took. The limit of that is the one that a loop meets; the other one is for those
// that wait, and long, because the machine may be busy.
func (j *judge) exec(ctx context.Context, p *program, tests []string, limit, cpu time.Duration, env string) (how, why string, took time.Duration) {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	args := []string{"-test.run", "^(" + strings.Join(tests, "|") + ")$", "-test.failfast"}
	args = append(args, p.args...)
	if filepath.Base(p.dir) == "simulation" {
		args = append(args, "-test.v", "-workers", "1", "-seeds", fmt.Sprint(j.seeds), "-from", fmt.Sprint(j.first))
	}
	limits := []string{"-c", `ulimit -t "$0" && exec "$@"`, fmt.Sprint(1 + int(cpu.Seconds())), p.file}
	cmd := exec.CommandContext(limited, "sh", append(limits, args...)...)
	// Some tests compile programs, which have the mutations too then.
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), env, "GOFLAGS=-overlay="+j.overlay)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // with the servers that it starts
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if cmd.ProcessState != nil {
		took = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if errors.Is(limited.Err(), context.DeadlineExceeded) || took > cpu {
		return "hang", fmt.Sprint(took), took
	}
	if err == nil {
		return "", "", took
	}
	why, _, _ = strings.Cut(failed.FindString(out.String()), "\n")
	return "caught", strings.TrimSpace(why), took
}

// same reports whether the package compiles to the same thing with a mutation, without inlining:
// what others may inline is part of the package.
func (j *judge) same(ctx context.Context, m *mutation) (bool, error) {
	if m.isLua() {
		return false, nil
	}
	text := m.of.texts[m.file]
	changed := filepath.Join(j.dir, "changed.go")
	overlay := filepath.Join(j.dir, "changed.json")
	var ids [2]string
	for i, e := range []edit{{}, m.edit} {
		e.text += strings.Repeat("\n", strings.Count(string(text[e.from:e.to]), "\n")-strings.Count(e.text, "\n"))
		replace := fmt.Sprintf(`{"Replace": {%q: %q}}`, filepath.Join(j.root, m.file), changed)
		if err := errors.Join(os.WriteFile(changed, apply(text, e), 0o600), os.WriteFile(overlay, []byte(replace), 0o600)); err != nil {
			return false, err
		}
		list := exec.CommandContext(ctx, "go", "list", "-export", "-gcflags=-l -dwarf=false", "-overlay", overlay, "-f", "{{.BuildID}}", "./"+m.of.dir)
		list.Dir = j.root
		out, err := list.CombinedOutput()
		if err != nil {
			return false, fmt.Errorf("go list %s: %w\n%s", m.of.dir, err, out)
		}
		_, ids[i], _ = strings.Cut(strings.TrimSpace(string(out)), "/")
	}
	return ids[0] == ids[1], nil
}
