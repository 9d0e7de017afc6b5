// Command comments checks the comments of Go files, beyond what staticcheck does. It prints each fault, and ends with
// status 1 if there is one:
//
//   - The comment of a declaration begins with its name, exported or not: of a function, a type, and a constant or
//     variable that is declared alone. Before a type there may be "A", "An" or "The". The comment of a test may begin
//     with what it tests.
//   - A link, such as [source], in the comment of a declaration or of a package names something that is declared in the package, or in
//     a package that the file imports.
//   - No line has more than 120 columns, and none of a test or of a package for tests more than 165. A tab counts as
//     one. What a test has in a raw string does not count.
//
// Run it in the folder of the module:
//
//	go run ./integration/comments
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// How long a line may be.
const (
	mostColumns       = 120
	mostColumnsOfTest = 165 // some are rows of a table
)

// testPath matches the paths of tests, and of what runs for tests alone.
var testPath = regexp.MustCompile(`_test\.go$|^integration/|^deploy/check/`)

func main() {
	faults, err := check(os.DirFS("."))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, f := range faults {
		fmt.Println(f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
}

// source is a Go file.
type source struct {
	set  *token.FileSet
	file *ast.File
	path string
	text []byte
}

// room is a package: the names that it declares, as a link may write them.
type room struct {
	files []source
	names map[string]bool // also "Type.Member"
}

// check lists the faults of the comments of a module.
func check(module fs.FS) (faults []string, err error) {
	rooms, err := parse(module)
	if err != nil {
		return nil, err
	}
	for _, r := range rooms {
		for _, s := range r.files {
			faults = append(faults, s.names()...)
			faults = append(faults, s.links(r, rooms)...)
			faults = append(faults, s.wide()...)
		}
	}
	slices.Sort(faults)
	return faults, nil
}

// parse reads the Go files of a module, those of tests too. Its keys are the folders; an external test has one of
// its own.
func parse(module fs.FS) (map[string]*room, error) {
	rooms := map[string]*room{}
	err := fs.WalkDir(module, ".", func(name string, d fs.DirEntry, err error) error {
		base := path.Base(name)
		switch {
		case err != nil:
			return err
		case d.IsDir() && name != "." && (strings.HasPrefix(base, ".") || base == "testdata" || base == "node_modules"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(base, ".go"):
			return nil
		}
		text, err := fs.ReadFile(module, name)
		if err != nil {
			return err
		}
		s := source{set: token.NewFileSet(), path: name, text: text}
		s.file, err = parser.ParseFile(s.set, name, text, parser.ParseComments)
		if ast.IsGenerated(s.file) {
			return err
		}
		dir := path.Dir(name)
		if strings.HasSuffix(s.file.Name.Name, "_test") {
			dir += "_test"
		}
		if rooms[dir] == nil {
			rooms[dir] = &room{names: map[string]bool{}}
		}
		rooms[dir].add(s)
		return err
	})
	return rooms, err
}

// add adds a file, and notes what it declares.
func (r *room) add(s source) {
	r.files = append(r.files, s)
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			r.names[receiver(d)+d.Name.Name] = true
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				r.declare(spec)
			}
		}
	}
}

func (r *room) declare(spec ast.Spec) {
	switch spec := spec.(type) {
	case *ast.ValueSpec:
		for _, n := range spec.Names {
			r.names[n.Name] = true
		}
	case *ast.TypeSpec:
		r.names[spec.Name.Name] = true
		var members *ast.FieldList
		switch of := spec.Type.(type) {
		case *ast.StructType:
			members = of.Fields
		case *ast.InterfaceType:
			members = of.Methods
		default:
			return
		}
		for _, m := range members.List {
			for _, n := range m.Names {
				r.names[spec.Name.Name+"."+n.Name] = true
			}
			if len(m.Names) == 0 {
				r.names[spec.Name.Name+"."+nameOf(m.Type)] = true
			}
		}
	}
}

// receiver is the name of the type of a method, with a dot; "" of a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	return nameOf(f.Recv.List[0].Type) + "."
}

// nameOf is the name in the expression of a type.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.StarExpr:
		return nameOf(e.X)
	case *ast.IndexExpr:
		return nameOf(e.X)
	case *ast.IndexListExpr:
		return nameOf(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

// comments calls f with each comment of a declaration, the name that it begins with, and whether an article may stand
// before that.
func (s source) comments(f func(doc *ast.CommentGroup, name string, article bool)) {
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			f(d.Doc, d.Name.Name, false)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					doc := spec.Doc
					if !d.Lparen.IsValid() {
						doc = d.Doc
					}
					f(doc, spec.Name.Name, true)
				case *ast.ValueSpec:
					if !d.Lparen.IsValid() {
						f(d.Doc, spec.Names[0].Name, false)
					}
				}
			}
		}
	}
}

// names lists the comments that do not begin with the name of what they describe.
func (s source) names() (faults []string) {
	s.comments(func(doc *ast.CommentGroup, name string, article bool) {
		text := doc.Text()
		if text == "" || name == "_" || s.isCase(name) && !strings.HasPrefix(text, "Test") {
			return
		}
		if article {
			for _, a := range []string{"A ", "An ", "The "} {
				text = strings.TrimPrefix(text, a)
			}
		}
		first, _, _ := strings.Cut(strings.ReplaceAll(text, "\n", " "), " ")
		if first = strings.TrimRight(first, ":,.;"); first != name && strings.TrimSuffix(first, "'s") != name {
			faults = append(faults, s.at(doc.Pos())+fmt.Sprintf("the comment of %s begins with %q", name, first))
		}
	})
	return faults
}

// isCase reports whether a function is a test, an example, a benchmark or a fuzz test. Its comment may say what it tests
// at once.
func (s source) isCase(name string) bool {
	return strings.HasSuffix(s.path, "_test.go") && cases.MatchString(name)
}

var cases = regexp.MustCompile(`^(Test|Example|Benchmark|Fuzz)`)

// link matches a link in a comment.
var link = regexp.MustCompile(`(?:^|[^\w\])])\[\*?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*){0,2})\](?:$|[^\w(\[{])`)

// links lists the links that name nothing.
func (s source) links(own *room, rooms map[string]*room) (faults []string) {
	imports := map[string]string{}
	for _, i := range s.file.Imports {
		name, _ := strconv.Unquote(i.Path.Value)
		local := strings.TrimPrefix(path.Base(name), "go-")
		if i.Name != nil {
			local = i.Name.Name
		}
		imports[local] = name
	}
	verify := func(doc *ast.CommentGroup) {
		for _, found := range link.FindAllStringSubmatch(doc.Text(), -1) {
			if name := found[1]; !own.has(name) && !elsewhere(name, imports, rooms) {
				faults = append(faults, s.at(doc.Pos())+fmt.Sprintf("[%s] names nothing", name))
			}
		}
	}
	verify(s.file.Doc)
	s.comments(func(doc *ast.CommentGroup, _ string, _ bool) { verify(doc) })
	return faults
}

// has reports whether a link names something of the package, or a builtin type.
func (r *room) has(name string) bool {
	return r.names[name] || slices.Contains([]string{"error", "string", "any", "byte", "int", "bool"}, name)
}

// elsewhere reports whether a link names something of another package. What is not of the module is believed.
func elsewhere(name string, imports map[string]string, rooms map[string]*room) bool {
	local, member, ok := strings.Cut(name, ".")
	if !ok {
		return false
	}
	imported, ok := imports[local]
	for dir, r := range rooms {
		switch {
		case ok && !strings.HasSuffix(imported, "/"+dir), !ok && path.Base(dir) != local:
		case r.names[member]:
			return true
		}
	}
	return !slices.ContainsFunc(slices.Collect(maps.Keys(rooms)), func(dir string) bool {
		return strings.HasSuffix(imported, "/"+dir) || path.Base(dir) == local
	})
}

// wide lists the lines that are too long.
func (s source) wide() (faults []string) {
	n, most := 0, mostColumns
	forTests, raw := testPath.MatchString(s.path), s.raw()
	if forTests {
		most = mostColumnsOfTest
	}
	for line := range strings.SplitSeq(string(s.text), "\n") {
		n++
		if c := utf8.RuneCountInString(line); c > most && !(forTests && raw[n]) {
			faults = append(faults, fmt.Sprintf("%s:%d: %d columns, and %d are allowed", s.path, n, c, most))
		}
	}
	return faults
}

// raw are the lines on which a raw string has something.
func (s source) raw() map[int]bool {
	lines := map[int]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && strings.HasPrefix(l.Value, "`") {
			for i := s.set.Position(l.Pos()).Line; i <= s.set.Position(l.End()).Line; i++ {
				lines[i] = true
			}
		}
		return true
	})
	return lines
}

func (s source) at(p token.Pos) string {
	at := s.set.Position(p)
	return fmt.Sprintf("%s:%d: ", at.Filename, at.Line)
}
