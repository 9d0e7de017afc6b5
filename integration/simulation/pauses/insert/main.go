// Command insert writes a copy of lapse, in which a goroutine may stand still in front of any
// statement and limits may be low (package pauses), into a directory. It prints the file that the
// flag -overlay of the command go wants. Of files that another such file replaces, it copies those in their place. Run
// it at the root of the module.
package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// rooms are the packages of lapse whose goroutines run in the simulation.
var rooms = []string{"processor", "sink/events"}

// limits are constants of lapse, with what they are in some histories. Few messages reach them then.
var limits = map[string]int{
	"BatchMessages": 2, "batchWhole": 1, // applying
	"ReapChunk": 2, "reapMany": 5, "reapCollections": 1, // reaping
	"SettleAtOnce": 1, "verifyAtOnce": 1, "MaxEpochs": 2, // collections
	"messagesAtOnce":  3,                                        // streams
	"documentsAtOnce": 2, "chunkBytes": 300, "entriesAtOnce": 2, // snapshots, and entries of property indexes
	"passedAtOnce": 2, // property indexes that are made
}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: insert DIRECTORY [OVERLAY]")
		os.Exit(2)
	}
	overlay, err := run(os.Args[1], os.Args[2:]...)
	if err != nil {
		fmt.Fprintln(os.Stderr, "insert:", err)
		os.Exit(1)
	}
	fmt.Println(overlay)
}

// run writes the copy of the files, or of those that an overlay has in their place.
func run(dir string, over ...string) (overlay string, err error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	given := struct{ Replace map[string]string }{Replace: map[string]string{}}
	for _, name := range over {
		text, err := os.ReadFile(name)
		if err != nil {
			return "", err
		}
		if err := json.Unmarshal(text, &given); err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
	}
	replace, statements := given.Replace, 0
	copyFile := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(cmp.Or(replace[path], path))
		if err != nil {
			return err
		}
		text, n, err := insert(path, text, statements)
		if err != nil || n == 0 {
			return err
		}
		statements += n
		replace[path] = filepath.Join(dir, fmt.Sprintf("pauses%d.go", statements))
		return os.WriteFile(replace[path], text, 0o600)
	}
	for _, room := range rooms {
		if err := filepath.WalkDir(filepath.Join(root, room), copyFile); err != nil {
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

// insertion is a text that comes before a byte of a file.
type insertion struct {
	at   int
	text string
}

// insert inserts a call in front of each of the n statements of a file, makes variables of its
// limits, and leaves the number of each line as it is. The numbers of the statements follow after.
func insert(name string, text []byte, after int) (with []byte, n int, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, 0, err
	}
	var all []insertion
	add := func(at token.Pos, text string) { all = append(all, insertion{files.Position(at).Offset, text}) }
	add(file.Name.End(), `; import "github.com/seed18712806/lapse/integration/simulation/pauses"`)
	pause := func(list []ast.Stmt) {
		for _, s := range list {
			n++
			before := fmt.Sprintf("pauses.Here(%d); ", after+n)
			switch s := s.(type) {
			case *ast.CaseClause, *ast.CommClause:
				n--
				continue
			case *ast.ExprStmt:
				switch method(s.X) {
				case "Lock", "RLock":
					before += "pauses.Hold(); "
				case "Unlock", "RUnlock":
					add(s.End(), "; pauses.Free()")
				case "Wait":
					if isCond(s.X) {
						before += "pauses.Free(); "
						add(s.End(), "; pauses.Hold()")
					}
				}
			case *ast.DeferStmt:
				if m := method(s.Call); m == "Unlock" || m == "RUnlock" {
					before += "defer pauses.Free(); "
				}
			}
			add(s.Pos(), before)
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.BlockStmt:
			pause(node.List)
		case *ast.CaseClause:
			pause(node.Body)
		case *ast.CommClause:
			pause(node.Body)
		case *ast.ValueSpec:
			for _, name := range node.Names {
				if low, ok := limits[name.Name]; ok {
					add(name.Pos(), "usual")
					add(file.FileEnd,
						fmt.Sprintf("\nvar %[1]s = usual%[1]s\nfunc init() { pauses.Limit(&%[1]s, %[2]d) }\n",
							name.Name, low))
				}
			}
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b insertion) int { return a.at - b.at })
	from := 0
	for _, i := range all {
		with = append(append(with, text[from:i.at]...), i.text...)
		from = i.at
	}
	return append(with, text[from:]...), n, nil
}

// method is the name of the method that an expression calls without arguments.
func method(e ast.Expr) string {
	if call, ok := e.(*ast.CallExpr); ok && len(call.Args) == 0 {
		if selected, ok := call.Fun.(*ast.SelectorExpr); ok {
			return selected.Sel.Name
		}
	}
	return ""
}

// isCond reports whether the method is that of a condition variable: lapse has one.
func isCond(call ast.Expr) bool {
	of, ok := call.(*ast.CallExpr).Fun.(*ast.SelectorExpr).X.(*ast.SelectorExpr)
	return ok && of.Sel.Name == "room"
}
