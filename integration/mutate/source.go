package main

import (
	"cmp"
	"context"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mutation is one small change of a file: it replaces the bytes between from and to.
type mutation struct {
	of             *source
	file           string // its path from the root of the module
	function, kind string
	line, column   int
	first, last    int // lines of the function
	from, to       int
	with           string
}

// String returns where the mutation is, and what it changes.
func (m *mutation) String() string {
	short := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	was := short(string(m.of.texts[m.file][m.from:m.to]))
	return fmt.Sprintf("%s:%d %s: %s: `%s` -> `%s`", m.file, m.line, m.function, m.kind, was, short(m.with))
}

// changed returns the file with the mutation.
func (m *mutation) changed() []byte {
	text := m.of.texts[m.file]
	return slices.Concat(text[:m.from], []byte(m.with), text[m.to:])
}

// source is a package with its types.
type source struct {
	dir     string // from the root of the module
	set     *token.FileSet
	files   map[string]*ast.File // by path from the root
	texts   map[string][]byte    // of the scripts too
	info    *types.Info
	imports types.Importer
}

// load reads the package in a directory.
func load(dir string) (*source, error) {
	s := &source{dir: dir, set: token.NewFileSet(), files: map[string]*ast.File{}, texts: map[string][]byte{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{},
			Defs: map[*ast.Ident]types.Object{}}}
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./"+dir)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", dir, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	s.imports = importer.ForCompiler(s.set, "gc", open)
	listed, err := packages(context.Background(), "./"+dir)
	if err != nil {
		return nil, err
	}
	scripts, err := filepath.Glob(filepath.Join(dir, "*.lua"))
	if err != nil {
		return nil, err
	}
	for _, path := range append(scripts, listed[0].GoFiles...) {
		if filepath.Ext(path) == ".go" {
			path = filepath.Join(dir, path)
		}
		if s.texts[path], err = os.ReadFile(path); err != nil {
			return nil, err
		}
		if filepath.Ext(path) == ".go" {
			s.files[path], err = parser.ParseFile(s.set, path, s.texts[path], parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
		}
	}
	return s, s.check(s.files, s.info)
}

// check says what is wrong with files of the package.
func (s *source) check(files map[string]*ast.File, info *types.Info) error {
	config := types.Config{Importer: s.imports}
	_, err := config.Check(s.dir, s.set, slices.Collect(maps.Values(files)), info)
	return err
}

// compiles reports whether the package compiles with a mutation. [luaMutations] has tried the scripts.
func (s *source) compiles(m *mutation) bool {
	if filepath.Ext(m.file) == ".lua" {
		return true
	}
	file, err := parser.ParseFile(s.set, m.file, m.changed(), parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	files := maps.Clone(s.files)
	files[m.file] = file
	return s.check(files, nil) == nil
}

// mutations returns all changes of the package, in order.
func (s *source) mutations() (all []*mutation) {
	for _, path := range slices.Sorted(maps.Keys(s.texts)) {
		file := s.files[path]
		if file == nil {
			all = append(all, luaMutations(s, path)...)
			continue
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			offset := func(p token.Pos) int { return s.set.Position(p).Offset }
			find := finder{info: s.info}
			find.text = func(n ast.Node) string { return string(s.texts[path][offset(n.Pos()):offset(n.End())]) }
			find.add = func(kind string, from, to token.Pos, with string) {
				all = append(all, &mutation{of: s, file: path, kind: kind, function: fn.Name.Name,
					line: s.set.Position(from).Line, column: s.set.Position(from).Column,
					first: s.set.Position(fn.Pos()).Line, last: s.set.Position(fn.End()).Line,
					from: offset(from), to: offset(to), with: with})
			}
			ast.Inspect(fn.Body, find.visit)
		}
	}
	return all
}

// choose chooses mutations of a room by a seed, as many of each kind.
func choose(r room, seed uint64, most int) (chosen []*mutation, err error) {
	name := fnv.New64()
	_, _ = name.Write([]byte(r.name))
	random := rand.New(rand.NewPCG(seed, name.Sum64()))
	kinds := map[string][]*mutation{}
	s, err := load(r.dir)
	if err != nil {
		return nil, err
	}
	for _, m := range s.mutations() {
		kinds[m.kind] = append(kinds[m.kind], m)
	}
	names := slices.Sorted(maps.Keys(kinds))
	for _, kind := range names {
		all := kinds[kind]
		random.Shuffle(len(all), func(i, k int) { all[i], all[k] = all[k], all[i] })
	}
	random.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	for len(chosen) < most && len(kinds) > 0 {
		for _, kind := range names {
			all := kinds[kind]
			i := slices.IndexFunc(all, func(m *mutation) bool { return m.of.compiles(m) })
			if i < 0 {
				delete(kinds, kind)
			} else if len(chosen) < most {
				chosen, kinds[kind] = append(chosen, all[i]), all[i+1:]
			}
		}
	}
	slices.SortStableFunc(chosen, func(a, b *mutation) int {
		return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line)
	})
	return chosen, nil
}
