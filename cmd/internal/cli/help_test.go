package cli

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// TestHelp: the help of each command has one example, which the command line takes, and help.txt has no text of
// something
// that there is not.
//
// It fails if somebody adds a command without an example, or changes a flag or an argument that one has. (A command, a
// flag or an argument without a text is an error of newParser.)
func TestHelp(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, file := range []string{"lapse-monday", "orders.ndjson", "secret"} {
		if err := os.WriteFile(file, []byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	known := make(map[string][]string)
	parser, err := newParser(t.Context(), output.Streams{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range parser.Model.Children {
		var names []string
		for _, argument := range command.Positional {
			names = append(names, argument.Name)
		}
		for _, flag := range command.Flags {
			names = append(names, "--"+flag.Name)
		}
		known[command.Name] = names
		known[severalCommands] = append(known[severalCommands], names...)
		if command.Hidden {
			continue
		}
		examples := regexp.MustCompile("(?m)^Example:\n\n    (.*)").FindAllStringSubmatch(command.Detail, -1)
		if len(examples) != 1 {
			t.Errorf("the help of %s has %d examples", command.Name, len(examples))
			continue
		}
		example := examples[0][1]
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
	_, items := readHelp()
	for section, texts := range items {
		for name := range texts {
			if !slices.Contains(known[section], name) {
				t.Errorf("help.txt has a text about %s of %s, and there is no such thing", name, section)
			}
		}
	}
}
