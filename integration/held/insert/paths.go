package main

import "go/ast"

// many stands for any number of calls above one.
const many = 2

// path is the most calls on a way through some statements: one that goes on behind them, and one that leaves the
// function. It is -1 if there is no such way.
type path struct{ on, out int }

// most returns how many calls a function makes at most.
func (f *finder) most(fn *function) int {
	p := f.list(fn, fn.decl.Body.List)
	return max(p.on, p.out)
}

// list returns the path through statements, one after the other.
func (f *finder) list(fn *function, all []ast.Stmt) path {
	p := path{0, -1}
	for _, s := range all {
		next := f.statement(fn, s)
		if next.out >= 0 {
			p.out = max(p.out, min(p.on+next.out, many))
		}
		if next.on < 0 {
			p.on = -1
			return p
		}
		p.on = min(p.on+next.on, many)
	}
	return p
}

// statement returns the path through a statement.
func (f *finder) statement(fn *function, s ast.Stmt) path {
	switch s := s.(type) {
	case *ast.ReturnStmt:
		return path{-1, f.count(fn, s)}
	case *ast.GoStmt:
		return path{0, -1}
	case *ast.BlockStmt:
		return f.list(fn, s.List)
	case *ast.LabeledStmt:
		return f.statement(fn, s.Stmt)
	case *ast.IfStmt:
		return after(f.count(fn, s.Init)+f.count(fn, s.Cond), f.either(fn, s.Body.List, s.Else))
	case *ast.ForStmt:
		inside := f.list(fn, s.Body.List)
		return after(f.count(fn, s.Init), again(f.count(fn, s.Cond)+f.count(fn, s.Post), inside))
	case *ast.RangeStmt:
		return after(f.count(fn, s.X), again(0, f.list(fn, s.Body.List)))
	case *ast.SwitchStmt:
		return after(f.count(fn, s.Init)+f.count(fn, s.Tag), f.cases(fn, s.Body))
	case *ast.TypeSwitchStmt:
		return after(f.count(fn, s.Init)+f.count(fn, s.Assign), f.cases(fn, s.Body))
	case *ast.SelectStmt:
		return f.cases(fn, s.Body)
	}
	return path{f.count(fn, s), -1}
}

// either returns the path through one of two branches.
func (f *finder) either(fn *function, then []ast.Stmt, otherwise ast.Stmt) path {
	p, other := f.list(fn, then), path{0, -1}
	if otherwise != nil {
		other = f.statement(fn, otherwise)
	}
	return path{max(p.on, other.on), max(p.out, other.out)}
}

// cases returns the path through one of the cases of a switch or a select.
func (f *finder) cases(fn *function, body *ast.BlockStmt) path {
	p, complete := path{-1, -1}, false
	for _, c := range body.List {
		var next path
		switch c := c.(type) {
		case *ast.CaseClause:
			n := 0
			for _, e := range c.List {
				n += f.count(fn, e)
			}
			next, complete = after(n, f.list(fn, c.Body)), complete || c.List == nil
		case *ast.CommClause:
			next, complete = f.list(fn, c.Body), true
		}
		p = path{max(p.on, next.on), max(p.out, next.out)}
	}
	if !complete {
		p.on = max(p.on, 0)
	}
	return p
}

// after returns a path behind so many calls.
func after(n int, p path) path {
	if p.on >= 0 {
		p.on = min(p.on+n, many)
	}
	if p.out >= 0 {
		p.out = min(p.out+n, many)
	}
	return p
}

// again returns the path through a loop, given the calls of its condition and the path through its body.
func again(condition int, body path) path {
	switch {
	case condition > 0, body.on > 0: // as often as it likes
		if body.out >= 0 {
			body.out = many
		}
		return path{many, body.out}
	case body.on < 0: // once
		return path{0, body.out}
	}
	return path{0, body.out}
}

// count returns how many calls an expression or a simple statement makes; those of functions in it too, as if each
// ran once.
func (f *finder) count(fn *function, n ast.Node) (calls int) {
	if n == nil {
		return 0
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.FuncLit:
			p := f.list(fn, n.Body.List)
			calls += max(p.on, p.out)
			return false
		case *ast.CallExpr:
			if f.isCall(fn, n) {
				calls++
			}
		}
		return true
	})
	return min(calls, many)
}
