package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
)

// insertion is a text that comes before a byte of a file.
type insertion struct {
	at   int
	text string
}

// write writes a copy of each file with an operation into a directory, and returns the file for the flag -overlay.
func write(dir string, operations []operation) (overlay string, err error) {
	files := map[string][]insertion{}
	for _, o := range operations {
		name := o.of.set.Position(o.of.decl.Pos()).Filename
		if files[name] == nil {
			files[name] = []insertion{{o.of.set.Position(o.of.file.Name.End()).Offset, "; import lapseheld \"" + module + "integration/held\""}}
		}
		files[name] = append(files[name], insertions(o)...)
	}
	replace := map[string]string{}
	for name, all := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		// A file has the same name each time, so that go compiles again only what has changed.
		replace[name] = filepath.Join(dir, filepath.Base(filepath.Dir(name))+"-"+filepath.Base(name))
		if err := os.WriteFile(replace[name], with(text, all), 0o600); err != nil {
			return "", err
		}
	}
	overlay = filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(overlay, text, 0o600)
	}
	return overlay, err
}

// with returns a text with insertions, none of which begins a line.
func with(text []byte, all []insertion) (changed []byte) {
	slices.SortStableFunc(all, func(a, b insertion) int { return a.at - b.at })
	from := 0
	for _, i := range all {
		changed = append(append(changed, text[from:i.at]...), i.text...)
		from = i.at
	}
	return append(changed, text[from:]...)
}

// insertions returns what comes into an operation: its beginning, and one before each statement that makes a call.
func insertions(o operation) (all []insertion) {
	add := func(at token.Pos, text string) {
		all = append(all, insertion{o.of.set.Position(at).Offset, text})
	}
	add(o.of.decl.Body.Lbrace+1, fmt.Sprintf(" heldOperation := lapseheld.Begin(%q); _ = heldOperation;", o.name))
	const call = "heldOperation.Call(); "
	list := func(statements []ast.Stmt) {
		for _, s := range statements {
			if slices.ContainsFunc(own(s), func(n ast.Node) bool { return n != nil && o.of.anyCall(n, false) }) {
				add(s.Pos(), call)
			}
			if loop, ok := s.(*ast.ForStmt); ok && loop.Cond != nil && o.of.anyCall(loop.Cond, false) {
				add(loop.Body.Lbrace+1, call)
			}
		}
	}
	ast.Inspect(o.of.decl.Body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.BlockStmt:
			list(n.List)
		case *ast.CaseClause:
			list(n.Body)
		case *ast.CommClause:
			list(n.Body)
		}
		return true
	})
	return all
}

// own returns the parts of a statement that are not in a list of statements within it.
func own(s ast.Stmt) (parts []ast.Node) {
	switch s := s.(type) {
	case *ast.GoStmt, *ast.BlockStmt, *ast.SelectStmt, *ast.CaseClause, *ast.CommClause:
		return nil
	case *ast.LabeledStmt:
		return own(s.Stmt)
	case *ast.IfStmt:
		parts = []ast.Node{s.Init, s.Cond}
		if s.Else != nil {
			parts = append(parts, own(s.Else)...)
		}
		return parts
	case *ast.ForStmt:
		return []ast.Node{s.Init, s.Cond}
	case *ast.RangeStmt:
		return []ast.Node{s.X}
	case *ast.SwitchStmt:
		parts = []ast.Node{s.Init, s.Tag}
		for _, c := range s.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				parts = append(parts, e)
			}
		}
		return parts
	case *ast.TypeSwitchStmt:
		return []ast.Node{s.Init, s.Assign}
	}
	return []ast.Node{s}
}
