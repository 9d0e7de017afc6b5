package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
)

// tooth is a change of one file of lapse that breaks a guarantee.
type tooth struct {
	name, breaks, file string // breaks: numbers of processor/doc.go, or of the file's room
	effect             string
	before, after      string // before is in the file exactly once
}

// bite is the file with the change.
func (t tooth) bite(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, t.file))
	if err != nil {
		return "", fmt.Errorf("tooth %s: %w: run this at the root of the module", t.name, err)
	}
	if n := strings.Count(string(text), t.before); n != 1 {
		return "", fmt.Errorf("tooth %s is out of date: its text is in %s %d times, and has to be there once:\n%s", t.name, t.file, n, t.before)
	}
	return strings.Replace(string(text), t.before, t.after, 1), nil
}

// find runs the simulation on lapse with the change.
func (t tooth) find(ctx context.Context, root string, seeds, from uint64) (v verdict, err error) {
	dir, err := os.MkdirTemp("", "tooth-")
	if err != nil {
		return v, err
	}
	defer os.RemoveAll(dir)
	changed, err := t.bite(root)
	if err != nil {
		return v, err
	}
	file, overlay := filepath.Join(dir, "changed.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, t.file): file}})
	if err = errors.Join(err, os.WriteFile(file, []byte(changed), 0o600), os.WriteFile(overlay, replace, 0o600)); err != nil {
		return v, err
	}
	// With -v, go test shows what a test that passes has written.
	cmd := exec.CommandContext(ctx, "go", "test", "-v", "-overlay", overlay, "-count=1", "-timeout=2h", "./integration/simulation", "-run", "^(TestSeeds|TestKept)$",
		"-args", "-seeds", strconv.FormatUint(seeds, 10), "-from", strconv.FormatUint(from, 10))
	cmd.Dir = root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go test, the test, and what that starts
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	return judge(string(out), err == nil, from)
}

// verdict is what a run of the simulation has shown.
type verdict struct {
	found  bool
	seeds  string // how many were needed
	reason string // its first line
}

var (
	failed    = regexp.MustCompile(`\bseed (\d+) failed:\s*(.*)`)
	histories = regexp.MustCompile(`\b(\d+) histories`)
	kept      = regexp.MustCompile(`\btestdata/(\S+\.plan): (.*)`)
	crashed   = regexp.MustCompile(`(?m)^\s*((?:panic|fatal error): .*)`)
)

// judge reads the output of TestSeeds, which began at a seed, and of TestKept. A plan counts only if no
// seed has found the change.
func judge(out string, passed bool, from uint64) (verdict, error) {
	if m := failed.FindStringSubmatch(out); m != nil {
		seed, err := strconv.ParseUint(m[1], 10, 64)
		return verdict{true, strconv.FormatUint(seed-from+1, 10), m[2]}, err
	}
	if m := kept.FindStringSubmatch(out); m != nil && !passed {
		return verdict{true, "a kept plan", m[2] + " (" + m[1] + ")"}, nil
	}
	if m := crashed.FindStringSubmatch(out); m != nil && !passed {
		return verdict{true, "?", "the test ended: " + m[1]}, nil
	}
	if m := histories.FindStringSubmatch(out); m != nil && passed {
		return verdict{false, "more than " + m[1], "not found"}, nil
	}
	return verdict{}, fmt.Errorf("the simulation did not run:\n%s", out)
}
