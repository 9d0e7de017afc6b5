package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"regexp"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// operators are those that a mistake exchanges: one whose boundary lies one further, or one that does another
// thing.
var operators = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.LAND: token.LOR, token.LOR: token.LAND,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL,
}

// calls are functions that a mistake exchanges.
var calls = map[string]string{"min": "max", "max": "min", "Before": "After", "After": "Before"}

// finder finds what can be changed in a function.
type finder struct {
	info *types.Info
	text func(ast.Node) string
	add  func(kind string, from, to token.Pos, with string)
}

// visit is called with each node of the function, and reports whether to look into it.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.operator(n)
	case *ast.IfStmt:
		cond := f.text(n.Cond)
		if c, ok := n.Cond.(*ast.BinaryExpr); ok && c.Op == token.NEQ && isError(f.info.TypeOf(c.X)) {
			f.add("error ignored", n.Cond.Pos(), n.Cond.End(), "false && ("+cond+")")
		} else {
			f.add("condition negated", n.Cond.Pos(), n.Cond.End(), "!("+cond+")")
		}
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			if zero := f.zero(r); zero != "" {
				kind := "zero returned"
				if isError(f.info.TypeOf(r)) {
					kind = "nil returned for an error"
				}
				f.add(kind, r.Pos(), r.End(), zero)
			}
		}
	case *ast.BlockStmt:
		f.removals(n.List)
	case *ast.CaseClause:
		f.removals(n.Body)
	case *ast.CommClause:
		f.removals(n.Body)
	case *ast.BranchStmt:
		switch n.Tok {
		case token.BREAK:
			f.add("break and continue", n.TokPos, n.TokPos+token.Pos(len("break")), "continue")
		case token.CONTINUE:
			f.add("break and continue", n.TokPos, n.TokPos+token.Pos(len("continue")), "break")
		}
	case *ast.CallExpr:
		return f.call(n)
	case *ast.BasicLit:
		value, err := strconv.Atoi(n.Value)
		if t := f.info.TypeOf(n); err == nil && value <= 16 && !isDuration(t) {
			f.add("one more", n.Pos(), n.End(), strconv.Itoa(value+1))
		}
	case *ast.GenDecl:
		return n.Tok == token.VAR
	}
	return true
}

// operator exchanges the operator of an expression.
func (f *finder) operator(n *ast.BinaryExpr) {
	kind := "operator swapped"
	switch n.Op {
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		kind = "boundary moved"
	}
	basic, ok := f.info.TypeOf(n).Underlying().(*types.Basic)
	if other, known := operators[n.Op]; known && ok && basic.Info()&types.IsString == 0 {
		f.add(kind, n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), other.String())
	}
}

// removals removes statements of a list.
func (f *finder) removals(list []ast.Stmt) {
	for _, s := range list {
		kind := "statement removed"
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || f.isText(call) {
				continue
			}
			kind = "call removed"
		case *ast.AssignStmt:
			if name, ok := s.Lhs[0].(*ast.Ident); s.Tok == token.DEFINE || ok && name.Name == "_" {
				continue
			}
		case *ast.DeferStmt:
			kind = "deferred call removed"
		case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		default:
			continue
		}
		f.add(kind, s.Pos(), s.End(), "")
	}
}

// call changes a call, but not one that makes a text for people. It reports whether to look into it.
func (f *finder) call(n *ast.CallExpr) bool {
	if f.isText(n) {
		return false
	}
	name := n.Fun
	if s, ok := name.(*ast.SelectorExpr); ok {
		name = s.Sel
	}
	if id, ok := name.(*ast.Ident); ok && calls[id.Name] != "" {
		f.add("call swapped", id.Pos(), id.End(), calls[id.Name])
		return true // min and max do not mind the order
	}
	for i := 1; i < len(n.Args) && !n.Ellipsis.IsValid(); i++ {
		a, b := n.Args[i-1], n.Args[i]
		x, y := f.text(a), f.text(b)
		if s, t := f.info.TypeOf(a), f.info.TypeOf(b); x != y && s != nil && t != nil && types.Identical(s, t) {
			f.add("arguments swapped", a.Pos(), b.End(), y+", "+x)
		}
	}
	return true
}

// isText reports whether a call logs, panics, or makes the text of an error.
func (f *finder) isText(call *ast.CallExpr) bool {
	if id, ok := call.Fun.(*ast.Ident); ok {
		return id.Name == "panic"
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	pkg, ok := s.X.(*ast.Ident)
	if ok && (pkg.Name == "fmt" || pkg.Name == "slog" || pkg.Name == "errors" && s.Sel.Name == "New") {
		return true
	}
	t := f.info.TypeOf(s.X)
	return t != nil && t.String() == "*log/slog.Logger"
}

// zero returns another value in place of one that is returned: zero, or true for false. It returns "" if there
// is none.
func (f *finder) zero(e ast.Expr) string {
	v := f.info.Types[e]
	if v.Type == nil || v.IsNil() {
		return ""
	}
	switch t := v.Type.Underlying().(type) {
	case *types.Pointer, *types.Slice, *types.Map, *types.Interface, *types.Signature, *types.Chan:
		return "nil"
	case *types.Basic:
		switch {
		case t.Info()&types.IsBoolean != 0:
			if v.Value != nil {
				return strconv.FormatBool(!constant.BoolVal(v.Value))
			}
			return "!(" + f.text(e) + ")"
		case t.Info()&types.IsNumeric != 0 && (v.Value == nil || constant.Sign(v.Value) != 0):
			return "0"
		case t.Info()&types.IsString != 0 && (v.Value == nil || constant.StringVal(v.Value) != ""):
			return `""`
		}
	}
	return ""
}

// isError reports whether a type is error.
func isError(t types.Type) bool { return t != nil && t.String() == "error" }

// isDuration reports whether a type is [time.Duration].
func isDuration(t types.Type) bool { return t != nil && strings.HasSuffix(t.String(), "time.Duration") }

// luaSites find what can be changed in a line of a script: what they match is replaced.
var luaSites = []struct {
	kind  string
	match *regexp.Regexp
	with  map[string]string
}{
	{"comparison turned", regexp.MustCompile(`==|~=|<=|>=|<|>`),
		map[string]string{"==": "~=", "~=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}},
	{"boundary moved", regexp.MustCompile(`<=|>=|<|>`), map[string]string{"<": "<=", "<=": "<", ">": ">=", ">=": ">"}},
	{"operator swapped", regexp.MustCompile(` (and|or|\+|-) `),
		map[string]string{" and ": " or ", " or ": " and ", " + ": " - ", " - ": " + "}},
	{"not removed", regexp.MustCompile(`\bnot `), nil},
	{"one more", regexp.MustCompile(`\b\d+\b`), nil},
	{"call removed", regexp.MustCompile(`^\s*(call|pcall|redis\.p?call)\(.*\)$`), nil},
	{"statement removed", regexp.MustCompile(`^\s*[\w.]+(\[[^=]*\])? = .*$`), nil},
}

// luaMutations returns all changes with which a script compiles.
func luaMutations(s *source, path string) (all []*mutation) {
	start := 0
	for number, line := range strings.Split(string(s.texts[path]), "\n") {
		code, _, _ := strings.Cut(line, "--")
		code = strings.TrimRight(code, " \t")
		for _, site := range luaSites {
			for _, at := range site.match.FindAllStringIndex(code, -1) {
				was := code[at[0]:at[1]]
				with := site.with[was]
				if n, err := strconv.Atoi(was); err == nil {
					if n > 16 {
						continue
					}
					with = strconv.Itoa(n + 1)
				}
				m := &mutation{of: s, file: path, kind: "Lua: " + site.kind, function: strings.TrimSpace(code),
					line: number + 1, from: start + at[0], to: start + at[1], with: with}
				if _, err := parse.Parse(strings.NewReader(string(m.changed())), ""); err == nil {
					all = append(all, m)
				}
			}
		}
		start += len(line) + 1
	}
	return all
}
