package oracle

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestAgenda: until returns each document at the earliest instant that was added for it, and once.
func TestAgenda(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var a agenda
		earliest := map[Name]wire.Time{}
		for range rapid.IntRange(1, 50).Draw(t, "calls") {
			name := Name{Collection: "c", ID: fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "id"))}
			at := wire.Time(rapid.IntRange(0, 20).Draw(t, "at"))
			if rapid.Bool().Draw(t, "add") {
				if was, there := earliest[name]; !there || at < was {
					earliest[name] = at
				}
				a.add(name, at)
				continue
			}
			var want []Name
			for name, due := range earliest {
				if due <= at {
					want = append(want, name)
					delete(earliest, name)
				}
			}
			got := a.until(at)
			for _, names := range [][]Name{got, want} {
				slices.SortFunc(names, func(a, b Name) int { return strings.Compare(a.ID, b.ID) })
			}
			if !slices.Equal(got, want) {
				t.Fatalf("until %d: %v, want %v", at, got, want)
			}
		}
	})
}
