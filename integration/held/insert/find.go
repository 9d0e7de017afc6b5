package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// module is the path of lapse.
const module = "github.com/seed18712806/lapse/"

// operation is a function that makes more than one call.
type operation struct {
	name string // such as sink.Reader.List
	of   *function
}

// at returns its file and line.
func (o operation) at() string {
	p := o.of.set.Position(o.of.decl.Pos())
	return fmt.Sprintf("%s:%d", filepath.Base(p.Filename), p.Line)
}

// function is a function of lapse.
type function struct {
	set   *token.FileSet
	info  *types.Info
	file  *ast.File
	decl  *ast.FuncDecl
	calls bool // it makes a call, itself or by what it calls
	find  *finder
}

// finder finds out which functions make calls.
type finder struct {
	functions map[*types.Func]*function
	concrete  []types.Type // the types of lapse that have methods
	by        map[*types.Func][]*types.Func
}

// find returns the operations of packages, in order.
func find(patterns []string) (all []operation, err error) {
	config := &packages.Config{Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes |
		packages.NeedTypesInfo | packages.NeedImports | packages.NeedModule}
	loaded, err := packages.Load(config, patterns...)
	if err != nil {
		return nil, err
	}
	f := finder{functions: map[*types.Func]*function{}, by: map[*types.Func][]*types.Func{}}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, p.Errors[0]
		}
		f.read(p)
	}
	f.spread()
	for fn, of := range f.functions {
		listed := !slices.Contains(without, strings.TrimPrefix(fn.Pkg().Path(), module))
		if listed && of.calls && f.most(of) > 1 {
			all = append(all, operation{nameOf(fn), of})
		}
	}
	slices.SortFunc(all, func(a, b operation) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// read reads the functions and the types of a package.
func (f *finder) read(p *packages.Package) {
	for _, file := range p.Syntax {
		for _, d := range file.Decls {
			if decl, ok := d.(*ast.FuncDecl); ok && decl.Body != nil {
				if fn, ok := p.TypesInfo.Defs[decl.Name].(*types.Func); ok {
					f.functions[fn] = &function{set: p.Fset, info: p.TypesInfo, file: file, decl: decl,
						find: f}
				}
			}
		}
	}
	scope := p.Types.Scope()
	for _, name := range scope.Names() {
		if t, ok := scope.Lookup(name).(*types.TypeName); ok && !types.IsInterface(t.Type()) {
			f.concrete = append(f.concrete, types.NewPointer(t.Type()))
		}
	}
}

// spread finds out which functions make calls, by what they call.
func (f *finder) spread() {
	for changed := true; changed; {
		changed = false
		for _, fn := range f.functions {
			if !fn.calls && fn.anyCall(fn.decl.Body, true) {
				fn.calls, changed = true, true
			}
		}
	}
}

// anyCall reports whether a call is made in a node; within functions in it too if so asked.
func (fn *function) anyCall(in ast.Node, within bool) (some bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			return false
		case *ast.FuncLit:
			return within
		case *ast.CallExpr:
			some = some || fn.find.isCall(fn, n)
		}
		return !some
	})
	return some
}

// isCall reports whether an expression calls Redis or NATS, or a function of lapse that does.
func (f *finder) isCall(in *function, call *ast.CallExpr) bool {
	fun := ast.Unparen(call.Fun)
	if generic, ok := fun.(*ast.IndexExpr); ok {
		fun = generic.X
	}
	var name *ast.Ident
	var receiver types.Type
	switch fun := fun.(type) {
	case *ast.Ident:
		name = fun
	case *ast.SelectorExpr:
		name = fun.Sel
		if s := in.info.Selections[fun]; s != nil {
			receiver = s.Recv()
		}
	default:
		return false
	}
	fn, ok := in.info.Uses[name].(*types.Func)
	if !ok || fn.Pkg() == nil {
		return false
	}
	fn = fn.Origin()
	path := fn.Pkg().Path()
	switch {
	case strings.HasPrefix(path, "github.com/redis/go-redis/"):
		return isRedis(fn, receiver)
	case strings.HasPrefix(path, "github.com/nats-io/nats.go"), strings.HasPrefix(path, "github.com/synadia-io/orbit.go"):
		return isNATS(fn)
	case !strings.HasPrefix(path+"/", module):
		return false
	}
	if own := f.functions[fn]; own != nil {
		return own.calls
	}
	if r := fn.Signature().Results(); r.Len() == 1 && strings.Contains(r.At(0).Type().String(), "go-redis") {
		return isRedis(fn, receiver) // a method of an interface that go-redis implements
	}
	return slices.ContainsFunc(f.implementations(fn), func(m *types.Func) bool {
		return f.functions[m] != nil && f.functions[m].calls
	})
}

// implementations returns the methods of lapse that a method of an interface may be.
func (f *finder) implementations(of *types.Func) (all []*types.Func) {
	if known, ok := f.by[of]; ok {
		return known
	}
	receiver := of.Signature().Recv()
	if receiver != nil {
		if face, ok := receiver.Type().Underlying().(*types.Interface); ok {
			for _, t := range f.concrete {
				if types.Implements(t, face) {
					if m, _, _ := types.LookupFieldOrMethod(t, true, of.Pkg(), of.Name()); m != nil {
						all = append(all, m.(*types.Func).Origin())
					}
				}
			}
		}
	}
	f.by[of] = all
	return all
}

// isRedis reports whether a method of go-redis calls the server: it takes a context. A command in a pipeline waits
// for Exec.
func isRedis(fn *types.Func, receiver types.Type) bool {
	if receiver == nil || !takesContext(fn) {
		return false
	}
	of := receiver.String()
	return fn.Name() == "Exec" || !strings.Contains(of, "Pipelin")
}

// waits are the methods of NATS that talk to the server, and take no context.
var waits = map[string]bool{"Publish": true, "PublishMsg": true, "PublishRequest": true, "Request": true,
	"RequestMsg": true, "Flush": true, "FlushTimeout": true, "Respond": true, "RespondMsg": true, "Subscribe": true,
	"ChanSubscribe": true, "QueueSubscribe": true, "SubscribeSync": true, "Ack": true, "AckSync": true, "Nak": true,
	"NakWithDelay": true, "Term": true, "TermWithReason": true, "InProgress": true, "Next": true, "NextMsg": true,
	"Fetch": true, "FetchNoWait": true, "Messages": true, "Consume": true}

// isNATS reports whether a method of NATS's client, or a function of its extensions, talks to the server.
func isNATS(fn *types.Func) bool {
	return takesContext(fn) || fn.Signature().Recv() != nil && waits[fn.Name()]
}

// takesContext reports whether the first parameter is a context.
func takesContext(fn *types.Func) bool {
	p := fn.Signature().Params()
	return p.Len() > 0 && p.At(0).Type().String() == "context.Context"
}

// nameOf returns the name of a function, such as sink.Reader.List or processor/lease.Owner.Run.
func nameOf(fn *types.Func) string {
	name := fn.Name()
	if r := fn.Signature().Recv(); r != nil {
		t := r.Type()
		if p, ok := t.(*types.Pointer); ok {
			t = p.Elem()
		}
		if named, ok := t.(*types.Named); ok {
			name = named.Obj().Name() + "." + name
		}
	}
	return strings.TrimPrefix(fn.Pkg().Path(), module) + "." + name
}
