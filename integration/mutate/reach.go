package main

import (
	"context"
	"crypto/sha256"
	"encoding/gob"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// suite is what is known of the tests of a package: how long each takes, and what of the rooms it reaches.
type suite struct {
	Sources map[string]string // a hash of what each room was when the tests ran; that of the package with its tests
	Blocks  []block           // of all rooms, whether a test reaches them or not
	Tests   []reach
	InTime  time.Duration // the tests that were run within it are all; -importers of an importer
}

// reach is a test that passes without a mutation.
type reach struct {
	Name    string
	Took    time.Duration
	Reached []int // indices of blocks
}

// block is a sequence of statements: the coverage of go counts each of them.
type block struct {
	File                                   string // from the root of the module
	FromLine, FromColumn, ToLine, ToColumn int
}

// holds reports whether a place is in the block.
func (b block) holds(line, column int) bool {
	after := line > b.FromLine || line == b.FromLine && column >= b.FromColumn
	return after && (line < b.ToLine || line == b.ToLine && column <= b.ToColumn)
}

// reaching returns the tests that reach a mutation, the quickest first. A script is reached by the tests that
// reach the Go file of its name; by all, if there is none.
func (s *suite) reaching(m *mutation) (tests []reach) {
	script := filepath.Ext(m.file) == ".lua"
	file := strings.TrimSuffix(m.file, ".lua")
	if script {
		file += ".go"
	}
	known := false
	at, around := map[int]bool{}, map[int]bool{}
	for i, b := range s.Blocks {
		if b.File != file {
			continue
		}
		known = true
		if script || b.FromLine >= m.first && b.ToLine <= m.last {
			around[i] = true
		}
		if !script && b.holds(m.line, m.column) {
			at[i] = true
		}
	}
	if len(at) == 0 { // it is between two blocks, as the expression of a case is
		at = around
	}
	for _, t := range s.Tests {
		if script && !known || slices.ContainsFunc(t.Reached, func(i int) bool { return at[i] }) {
			tests = append(tests, t)
		}
	}
	slices.SortStableFunc(tests, func(a, b reach) int { return int(a.Took - b.Took) })
	return tests
}

// hash returns a hash of the files in a directory: of the package, or with its tests.
func hash(dir string, tests bool) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != ".go" && ext != ".lua" || strings.HasSuffix(e.Name(), "_test.go") && !tests {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d %s", e.Name(), len(text), text)
	}
	return fmt.Sprintf("%x", sum.Sum(nil)), nil
}

// suite returns what is known of a package's tests, for mutations of a room. It runs them, each alone, unless
// it finds in the cache what they reached when the room and the tests were the same.
func (j *judge) suite(ctx context.Context, p testPackage, r room, inTime time.Duration) (*suite, error) {
	now := map[string]string{}
	for _, other := range append(slices.Clone(rooms), r) {
		var err error
		if now[other.dir], err = hash(other.dir, false); err != nil {
			return nil, err
		}
	}
	tests, err := hash(p.at(), true)
	if err != nil {
		return nil, err
	}
	const itself = "" // the key of the package with its tests
	now[itself] = tests
	path := filepath.Join(j.cache, strings.ReplaceAll(p.at(), "/", "-")+".reach")
	s, known := j.suites[path]
	if !known {
		s = new(suite)
		if file, err := os.Open(path); err == nil {
			if err := gob.NewDecoder(file).Decode(s); err != nil {
				s = new(suite)
			}
			_ = file.Close()
		}
	}
	if s.Sources[r.dir] != now[r.dir] || s.Sources[itself] != tests || s.InTime < inTime {
		s = &suite{Sources: now, InTime: inTime}
		if err := j.measure(ctx, p, s, slices.Sorted(maps.Keys(now))[1:]); err != nil {
			return nil, err
		}
		file, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		if err := gob.NewEncoder(file).Encode(s); err != nil {
			return nil, err
		}
	}
	j.suites[path] = s
	return s, nil
}

// measure runs each test of a package without a mutation. One that fails or takes longer than -limit is not
// used.
func (j *judge) measure(ctx context.Context, p testPackage, s *suite, dirs []string) error {
	began := time.Now()
	var covered []string
	for _, dir := range dirs {
		covered = append(covered, p.Module.Path+"/"+dir)
	}
	b, err := j.build(ctx, p, "", "-cover", "-coverpkg="+strings.Join(covered, ","))
	if err != nil {
		return err
	}
	names := []string{simulated}
	if p.at() != simulation {
		if names, err = b.tests(ctx); err != nil {
			return err
		}
	}
	profile := filepath.Join(j.dir, "profile")
	index := map[block]int{}
	compiled, left := time.Now(), 0
	for _, name := range names {
		if time.Since(compiled) > s.InTime {
			left++
			continue
		}
		start := time.Now()
		how, out := b.run(ctx, name, j.limit, "-test.coverprofile="+profile)
		took := time.Since(start)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if how != "" {
			fmt.Fprintf(os.Stderr, "not used: %s in %s fails without a mutation, by its %s\n%s\n", name, p.at(), how, out)
			continue
		}
		reached, err := s.read(profile, p.Module.Path+"/", index)
		if err != nil {
			return err
		}
		s.Tests = append(s.Tests, reach{name, took, reached})
	}
	fmt.Fprintf(os.Stderr, "%s without a mutation: %d tests in %s pass, %d are not run for want of time; %.0f s\n",
		time.Now().Format(time.TimeOnly), len(s.Tests), p.at(), left, time.Since(began).Seconds())
	return nil
}

// read reads a profile of coverage, and returns which blocks were reached.
func (s *suite) read(profile, module string, index map[block]int) (reached []int, err error) {
	text, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		file, rest, _ := strings.Cut(strings.TrimPrefix(line, module), ":")
		b := block{File: file}
		var statements, count int
		if _, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.FromLine, &b.FromColumn, &b.ToLine, &b.ToColumn,
			&statements, &count); err != nil {
			continue // its first line
		}
		i, known := index[b]
		if !known {
			i = len(s.Blocks)
			index[b], s.Blocks = i, append(s.Blocks, b)
		}
		if count > 0 {
			reached = append(reached, i)
		}
	}
	return reached, nil
}
