package main

import (
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"strconv"
	"strings"
)

// turned is the comparison that is true where another is false, and moved the one whose boundary
// lies one further; swapped are operators that a mistake exchanges.
var (
	turned = map[token.Token]token.Token{token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR}
	moved  = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	others = map[token.Token]token.Token{token.LAND: token.LOR, token.LOR: token.LAND, token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL}
	called = map[string]string{"min": "max", "max": "min", "Before": "After", "After": "Before"}
)

// finder finds what can be changed in a function.
type finder struct {
	info *types.Info
	text func(from, to token.Pos) string
	add  func(kind string, from, to token.Pos, with string)
}

// visit is called with each node of the function, and reports whether to look into it.
func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.add("not removed", n.Pos(), n.End(), f.text(n.X.Pos(), n.X.End()))
		}
	case *ast.IfStmt:
		cond := f.text(n.Cond.Pos(), n.Cond.End())
		kind := "condition fixed"
		if c, ok := n.Cond.(*ast.BinaryExpr); ok && c.Op == token.NEQ && isError(f.info.TypeOf(c.X)) {
			kind = "error ignored"
		} else {
			f.add(kind, n.Cond.Pos(), n.Cond.End(), "true || ("+cond+")")
		}
		f.add(kind, n.Cond.Pos(), n.Cond.End(), "false && ("+cond+")")
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			if zero := f.zero(r); zero != "" {
				f.add("zero returned", r.Pos(), r.End(), zero)
			}
		}
	case *ast.BlockStmt:
		f.removals(n.List)
	case *ast.CaseClause:
		f.removals(n.Body)
	case *ast.CommClause:
		f.removals(n.Body)
	case *ast.CallExpr:
		return f.call(n)
	case *ast.BasicLit:
		value, err := strconv.Atoi(n.Value)
		if t := f.info.TypeOf(n); err == nil && value <= 16 && !isDuration(t) {
			f.add("constant changed", n.Pos(), n.End(), strconv.Itoa(value+1))
		}
	case *ast.GenDecl:
		return n.Tok == token.VAR
	}
	return true
}

func (f *finder) binary(n *ast.BinaryExpr) {
	end := n.OpPos + token.Pos(len(n.Op.String()))
	if other, ok := turned[n.Op]; ok {
		f.add("comparison turned", n.OpPos, end, other.String())
	}
	if other, ok := moved[n.Op]; ok {
		f.add("boundary moved", n.OpPos, end, other.String())
	}
	basic, ok := f.info.TypeOf(n).Underlying().(*types.Basic)
	if other, known := others[n.Op]; known && ok && basic.Info()&types.IsString == 0 {
		f.add("operator swapped", n.OpPos, end, other.String())
	}
}

// removals are statements of a list that can go.
func (f *finder) removals(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || f.isTold(call) {
				continue
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
			if name, ok := s.Lhs[0].(*ast.Ident); ok && name.Name == "_" {
				continue
			}
		case *ast.BranchStmt:
			if s.Tok == token.GOTO || s.Tok == token.FALLTHROUGH {
				continue
			}
		case *ast.IncDecStmt, *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		case *ast.ReturnStmt:
			if len(s.Results) > 0 {
				continue
			}
		default:
			continue
		}
		f.add("statement removed", s.Pos(), s.End(), "")
	}
}

// call are changes of a call. What is only told to people is left alone.
func (f *finder) call(n *ast.CallExpr) (look bool) {
	if f.isTold(n) {
		return false
	}
	name := n.Fun
	if s, ok := name.(*ast.SelectorExpr); ok {
		name = s.Sel
	}
	if id, ok := name.(*ast.Ident); ok && called[id.Name] != "" {
		f.add("call swapped", id.Pos(), id.End(), called[id.Name])
		return true // min and max do not mind the order
	}
	for i := 1; i < len(n.Args) && !n.Ellipsis.IsValid(); i++ {
		a, b := n.Args[i-1], n.Args[i]
		x, y := f.text(a.Pos(), a.End()), f.text(b.Pos(), b.End())
		if s, t := f.info.TypeOf(a), f.info.TypeOf(b); x != y && s != nil && t != nil && types.Identical(s, t) {
			f.add("arguments swapped", a.Pos(), b.End(), y+", "+x)
		}
	}
	return true
}

// isTold reports whether a call logs, panics, or makes a text of an error.
func (f *finder) isTold(call *ast.CallExpr) bool {
	if id, ok := call.Fun.(*ast.Ident); ok {
		return id.Name == "panic"
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	if pkg, ok := s.X.(*ast.Ident); ok && (pkg.Name == "fmt" || pkg.Name == "errors" && s.Sel.Name == "New" || pkg.Name == "slog") {
		return true
	}
	t := f.info.TypeOf(s.X)
	return t != nil && t.String() == "*log/slog.Logger"
}

// zero is another value in place of one that is returned: zero, or true for false.
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
			return "!(" + f.text(e.Pos(), e.End()) + ")"
		case t.Info()&types.IsNumeric != 0 && (v.Value == nil || constant.Sign(v.Value) != 0):
			return "0"
		case t.Info()&types.IsString != 0 && (v.Value == nil || constant.StringVal(v.Value) != ""):
			return `""`
		}
	}
	return ""
}

func isError(t types.Type) bool { return t != nil && t.String() == "error" }

func isDuration(t types.Type) bool { return t != nil && strings.HasSuffix(t.String(), "time.Duration") }
