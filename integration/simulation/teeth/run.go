package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// tooth is a change of one file of lapse that breaks a guarantee.
type tooth struct {
	name   string
	breaks string // numbers of processor/doc.go
	file   string
	effect string
	before string // is in the file exactly once
	after  string
}

// run finds the teeth that the arguments name, and writes a table of the results.
func run(ctx context.Context, args []string, out, progress io.Writer) error {
	flags := flag.NewFlagSet("teeth", flag.ContinueOnError)
	only := flags.String("only", "", "find this tooth alone")
	seeds := flags.Uint64("seeds", 10_000, "histories at most for each tooth")
	from := flags.Uint64("from", 1, "the first seed")
	list := flags.Bool("list", false, "write what each tooth breaks, and find none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	some := teeth
	if *only != "" {
		if some = named(*only); len(some) == 0 {
			return fmt.Errorf("there is no tooth %q: -list shows all", *only)
		}
	}
	if *list {
		fmt.Fprintf(out, "| tooth | breaks | what happens | file |\n|---|---|---|---|\n")
		for _, t := range some {
			fmt.Fprintf(out, "| %s | %s | %s | %s |\n", t.name, t.breaks, t.effect, t.file)
		}
		return nil
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	for _, t := range some {
		if _, err := t.bite(root); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "| tooth | breaks | seeds until found | found by |\n|---|---|---|---|\n")
	var missed []string
	for _, t := range some {
		fmt.Fprintf(progress, "%s %s\n", time.Now().Format(time.TimeOnly), t.name)
		v, err := t.find(ctx, root, *seeds, *from)
		if err != nil {
			return fmt.Errorf("%s: %w", t.name, err)
		}
		if !v.found {
			missed = append(missed, t.name)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", t.name, t.breaks, v.seeds, strings.ReplaceAll(v.reason, "|", `\|`))
	}
	if len(missed) > 0 {
		return fmt.Errorf("%d of %d teeth were not found: %s", len(missed), len(some), strings.Join(missed, ", "))
	}
	return nil
}

func named(name string) []tooth {
	for i, t := range teeth {
		if t.name == name {
			return teeth[i : i+1]
		}
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the root of the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// bite is the file with the change.
func (t tooth) bite(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(t.file)))
	if err != nil {
		return "", fmt.Errorf("tooth %s: %w", t.name, err)
	}
	if n := strings.Count(string(text), t.before); n != 1 {
		return "", fmt.Errorf("tooth %s is out of date: its text is in %s %d times, and not once:\n%s", t.name, t.file, n, t.before)
	}
	return strings.Replace(string(text), t.before, t.after, 1), nil
}

// find runs the simulation on lapse with the change.
func (t tooth) find(ctx context.Context, root string, seeds, from uint64) (verdict, error) {
	dir, err := os.MkdirTemp("", "tooth-")
	if err != nil {
		return verdict{}, err
	}
	defer os.RemoveAll(dir)
	changed, err := t.bite(root)
	if err != nil {
		return verdict{}, err
	}
	file, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, filepath.FromSlash(t.file)): file}})
	if err == nil {
		err = errors.Join(os.WriteFile(file, []byte(changed), 0o600), os.WriteFile(overlay, replace, 0o600))
	}
	if err != nil {
		return verdict{}, err
	}
	// With -v, go test shows what a test that passes has written.
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-overlay", overlay, "-count=1", "-timeout=2h", "-run=^TestSeeds$", "./integration/simulation",
		"-args", "-seeds", strconv.FormatUint(seeds, 10), "-from", strconv.FormatUint(from, 10))
	cmd.Dir = root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // go test then ends the test too
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if ctx.Err() != nil {
		return verdict{}, ctx.Err()
	}
	return judge(out.String(), err == nil, from)
}

// verdict is what a run of the simulation has shown.
type verdict struct {
	found  bool
	seeds  string // how many were needed
	reason string // its first line
}

var (
	failedSeed = regexp.MustCompile(`\bseed (\d+) failed:\s*(.*)`)
	histories  = regexp.MustCompile(`\b(\d+) histories`)
	crashed    = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*`)
)

// judge reads the output of a run of TestSeeds that began at a seed.
func judge(out string, passed bool, from uint64) (verdict, error) {
	if m := failedSeed.FindStringSubmatch(out); m != nil {
		seed, err := strconv.ParseUint(m[1], 10, 64)
		return verdict{true, strconv.FormatUint(seed-from+1, 10), m[2]}, err
	}
	if m := histories.FindStringSubmatch(out); m != nil && passed {
		return verdict{false, "more than " + m[1], "not found"}, nil
	}
	if line := crashed.FindString(out); line != "" && !passed {
		return verdict{true, "?", "the test ended: " + line}, nil
	}
	return verdict{}, fmt.Errorf("the simulation did not run:\n%s", out)
}
