package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// source is a package with its types.
type source struct {
	dir     string // from the root of the module
	name    string
	set     *token.FileSet
	files   map[string]*ast.File // by path from the root
	texts   map[string][]byte    // of the scripts too
	info    *types.Info
	imports types.Importer
}

// load reads the package in a directory.
func load(root, dir string) (*source, error) {
	s := &source{dir: dir, set: token.NewFileSet(), files: map[string]*ast.File{}, texts: map[string][]byte{},
		info: &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}}
	list := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./"+dir)
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list %s: %w", dir, err)
	}
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		exports[path] = file
	}
	s.imports = importer.ForCompiler(s.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	entries, err := os.ReadDir(filepath.Join(root, dir))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		isGo := filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go")
		if !isGo && filepath.Ext(path) != ".lua" {
			continue
		}
		if s.texts[path], err = os.ReadFile(filepath.Join(root, path)); err != nil {
			return nil, err
		}
		if isGo {
			if s.files[path], err = parser.ParseFile(s.set, path, s.texts[path], parser.SkipObjectResolution); err != nil {
				return nil, err
			}
			s.name = s.files[path].Name.Name
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

// compiles reports whether the package compiles with a mutation. Scripts were asked before.
func (s *source) compiles(m *mutation) bool {
	if m.isLua() {
		return true
	}
	file, err := parser.ParseFile(s.set, m.file, apply(s.texts[m.file], m.edit), parser.SkipObjectResolution)
	if err != nil {
		return false
	}
	files := maps.Clone(s.files)
	files[m.file] = file
	return s.check(files, nil) == nil
}

// mutations are all changes of the package, in order.
func (s *source) mutations() (all []*mutation) {
	for _, path := range slices.Sorted(maps.Keys(s.texts)) {
		file := s.files[path]
		if file == nil {
			all = append(all, luaMutations(string(s.texts[path]))...)
			for _, m := range all {
				m.file = cmp.Or(m.file, path)
			}
			continue
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Body != nil {
				all = append(all, s.ofFunction(path, f)...)
			}
		}
	}
	return all
}

// ofFunction are all changes of a function.
func (s *source) ofFunction(path string, fn *ast.FuncDecl) (all []*mutation) {
	offset := func(p token.Pos) int { return s.set.Position(p).Offset }
	text := func(from, to token.Pos) string { return string(s.texts[path][offset(from):offset(to)]) }
	body := [2]int{offset(fn.Body.Lbrace) + 1, offset(fn.Body.Rbrace)}
	var labels []int
	find := finder{info: s.info, text: text, add: func(kind string, from, to token.Pos, with string) {
		all = append(all, &mutation{file: path, kind: kind, function: fn.Name.Name, line: s.set.Position(from).Line, was: text(from, to),
			edit: edit{offset(from), offset(to), with}, body: body, ends: fn.Type.Results == nil})
	}}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if l, ok := n.(*ast.LabeledStmt); ok {
			labels = append(labels, offset(l.Label.End()))
		} else if b, ok := n.(*ast.BranchStmt); ok && b.Label != nil {
			labels = append(labels, offset(b.Label.End()))
		}
		return find.visit(n)
	})
	for _, m := range all {
		m.labels = labels
	}
	return all
}

// choose chooses mutations of a room by a seed, as many of each kind, and numbers them.
func choose(root string, r room, seed uint64, most, first int) (chosen []*mutation, err error) {
	random := rand.New(rand.NewPCG(seed, uint64(first)))
	kinds := map[string][]*mutation{}
	for _, dir := range r.dirs {
		s, err := load(root, dir)
		if err != nil {
			return nil, err
		}
		for _, m := range s.mutations() {
			m.room, m.of = r.name, s
			kinds[m.kind] = append(kinds[m.kind], m)
		}
	}
	names := slices.Sorted(maps.Keys(kinds))
	random.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	for len(chosen) < most && len(kinds) > 0 {
		for _, kind := range names {
			for len(kinds[kind]) > 0 {
				i := random.IntN(len(kinds[kind]))
				m := kinds[kind][i]
				kinds[kind] = slices.Delete(kinds[kind], i, i+1)
				if len(chosen) < most && m.of.compiles(m) {
					chosen = append(chosen, m)
					break
				}
			}
		}
		maps.DeleteFunc(kinds, func(_ string, left []*mutation) bool { return len(left) == 0 })
	}
	slices.SortStableFunc(chosen, func(a, b *mutation) int { return cmp.Or(strings.Compare(a.file, b.file), a.line-b.line) })
	for i, m := range chosen {
		m.id = first + i
	}
	return chosen, nil
}

// apply makes edits of a text. The edits must not overlap.
func apply(text []byte, edits ...edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return a.from - b.from })
	var out []byte
	from := 0
	for _, e := range edits {
		out = append(append(out, text[from:e.from]...), e.text...)
		from = e.to
	}
	return append(out, text[from:]...)
}

// dispatch is the beginning of a function's body that does what the changed body does, if the
// mutation is on.
func dispatch(text []byte, m *mutation) edit {
	edits := []edit{{m.edit.from - m.body[0], m.edit.to - m.body[0], m.edit.text}}
	for _, at := range m.labels {
		if at <= m.edit.from || at > m.edit.to {
			edits = append(edits, edit{at - m.body[0], at - m.body[0], fmt.Sprint("Of", m.id)})
		}
	}
	changed, end := apply(text[m.body[0]:m.body[1]], edits...), ""
	if m.ends {
		end = "return"
	}
	return edit{m.body[0], m.body[0], fmt.Sprintf(" if mutantIs(%d) {%s\n%s }\n", m.id, bytes.TrimRight(changed, "\n\t "), end)}
}

// embedded matches the variable that holds a script.
var embedded = regexp.MustCompile(`(//go:embed (\S+\.lua)\n)var (\w+) string`)

// plant writes the copy of the packages with all mutations in them, and returns the file for the
// flag -overlay.
func plant(root, dir string, all []*mutation) (overlay string, err error) {
	replace := map[string]string{}
	put := func(path string, text []byte) {
		to := filepath.Join(dir, fmt.Sprintf("%d.go", len(replace)))
		replace[filepath.Join(root, path)] = to
		err = errors.Join(err, os.WriteFile(to, text, 0o600))
	}
	edits, scripts := map[string][]edit{}, map[*source]string{}
	for _, m := range all {
		scripts[m.of] += ""
		if m.isLua() {
			scripts[m.of] += fmt.Sprintf("\tif file == %q && mutantIs(%d) { return text[:%d] + %q + text[%d:] }\n",
				filepath.Base(m.file), m.id, m.edit.from, m.edit.text, m.edit.to)
		} else {
			edits[m.file] = append(edits[m.file], dispatch(m.of.texts[m.file], m))
		}
	}
	for pkg, cases := range scripts {
		for file := range pkg.files {
			changed := apply(pkg.texts[file], edits[file]...)
			if cases != "" {
				changed = embedded.ReplaceAll(changed, []byte("${1}var ${3}Plain string\n\nvar $3 = mutantText(\"$2\", ${3}Plain)"))
			}
			put(file, changed)
		}
		put(filepath.Join(pkg.dir, "mutants_planted.go"), fmt.Appendf(nil, planted, pkg.name, cases))
	}
	overlay = filepath.Join(dir, "overlay.json")
	text, _ := json.Marshal(map[string]any{"Replace": replace})
	return overlay, errors.Join(err, os.WriteFile(overlay, text, 0o600))
}

// planted goes into each package: it knows which mutation is on, and notes which were reached.
const planted = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	mutantOn, _   = strconv.Atoi(os.Getenv("LAPSE_MUTANT"))
	mutantReached = os.Getenv("LAPSE_MUTANTS_REACHED")
	mutantsSeen   sync.Map
)

func mutantIs(n int) bool {
	if mutantReached != "" {
		if _, seen := mutantsSeen.LoadOrStore(n, true); !seen {
			if f, err := os.OpenFile(mutantReached, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				_, _ = f.WriteString(strconv.Itoa(n) + "\n")
				_ = f.Close()
			}
		}
	}
	return n == mutantOn
}

func mutantText(file, text string) string {
%s	return text
}
`
