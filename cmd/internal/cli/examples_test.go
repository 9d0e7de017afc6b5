package cli

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// TestExamples: the help of each command has one example, which the command line takes.
//
// It fails if somebody adds a command without an example, or changes a flag or an argument that one has.
func TestExamples(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"lapse-monday", "orders.ndjson", "secret"} {
		if err := os.WriteFile(file, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var known []string
	parser, err := newParser(t.Context(), output.Streams{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Children {
		if command.Hidden {
			continue
		}
		known = append(known, command.Name)
		example := examples[command.Name]
		if n := strings.Count(command.Detail, "Example:\n\n    "+example); n != 1 || example == "" {
			t.Errorf("the help of %s has %d examples %q", command.Name, n, example)
			continue
		}
		words := strings.TrimSuffix(strings.TrimPrefix(example, "source <("), ")")
		split, err := exec.Command("sh", "-c", `printf '%s\n' `+words).Output()
		if err != nil {
			t.Fatal(err)
		}
		args := strings.Split(strings.TrimSpace(string(split)), "\n")
		if args[0] != "lapse" || args[1] != command.Name {
			t.Errorf("%q is no example of %s", example, command.Name)
		}
		parser, err := newParser(t.Context(), output.Streams{}, func(int) {})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(args[1:]); err != nil {
			t.Errorf("%s: %v", example, err)
		}
	}
	for name := range examples {
		if !slices.Contains(known, name) {
			t.Errorf("there is an example of %s, and no such command", name)
		}
	}
}
