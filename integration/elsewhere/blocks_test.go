package elsewhere

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/programs"
)

// block is the text between two fences of a document.
type block struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")

// blocks returns the blocks of a document of the module, in their order.
func blocks(t *testing.T, document string) (all []block) {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range fence.FindAllStringSubmatch(string(text), -1) {
		all = append(all, block{match[1], match[2]})
	}
	return all
}

// file returns the name of the program that a block has in its first line: a comment, such as
// "// visits.mjs" or "# visits.py".
func (b block) file() string {
	first, _, _ := strings.Cut(b.text, "\n")
	_, name, _ := strings.Cut(first, " ")
	return name
}

// command is a line of a session, and what the document shows that it prints.
type command struct {
	line, output string
	interrupt    bool // the person ends it with Ctrl-C, when it has printed that
}

// session returns the commands of a block: the lines that begin with a prompt.
func (b block) session() (all []command) {
	for _, part := range strings.Split("\n"+b.text, "\n$ ")[1:] {
		line, output, _ := strings.Cut(part, "\n")
		output, interrupt := strings.CutSuffix(strings.TrimRight(output, "\n"), "^C")
		all = append(all, command{line, output, interrupt})
	}
	return all
}

// varies is what differs from run to run: instants, etags, sequences, and when the log was made.
var varies = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|(?m:(etag[":, ]*|^id: |/lapse/|visits/7/)\d+)`)

// same returns a text without what differs from run to run.
func same(text string) string {
	return strings.TrimSpace(varies.ReplaceAllString(text, "${1}0"))
}
