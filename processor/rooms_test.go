package processor

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// rooms are the packages under internal, in an order in which each imports only earlier
// ones.
var rooms = []string{
	"crash", "backoff", "streams", "fold", "snapshot", "shard", "region", "retention",
}

// TestRoomsImportOneWay: each room imports only rooms before it, and none of them the processor.
func TestRoomsImportOneWay(t *testing.T) {
	const module = "github.com/seed18712806/lapse/"
	entries, err := os.ReadDir("internal")
	if err != nil {
		t.Fatal(err)
	}
	dirs := map[string]string{"processor": "."}
	for _, entry := range entries {
		dirs[entry.Name()] = filepath.Join("internal", entry.Name())
	}
	for room, dir := range dirs {
		at := slices.Index(rooms, room)
		if room == "processor" {
			at = len(rooms)
		}
		if at < 0 {
			t.Errorf("room %s has no place in the order", room)
			continue
		}
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range file.Imports {
				path, _ := strconv.Unquote(spec.Path.Value)
				if other, ok := strings.CutPrefix(path, module+"processor/internal/"); ok && slices.Index(rooms, other) >= at ||
					path == module+"processor" {
					t.Errorf("%s imports %s", name, path)
				}
			}
		}
	}
}
