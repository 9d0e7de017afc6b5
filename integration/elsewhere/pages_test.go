package elsewhere

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/documents"
	"github.com/seed18712806/lapse/integration/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(standIn) == "nats" {
		os.Exit(natsTool(os.Args[1:]))
	}
	harness.Main(m)
}

// states say what a page stands on before its first block. On others a lapse runs, alone with its embedded
// servers.
var states = map[string]func(*page){
	"README.md":               (*page).alone,
	"deploy/README.md":        (*page).containers,
	"deploy/docs/install.md":  (*page).containers,
	"deploy/docs/regions.md":  (*page).alone,
	"deploy/docs/security.md": (*page).closed,
	"deploy/docs/backup.md":   (*page).alone,
	"deploy/docs/redis.md":    (*page).alone,
	"deploy/docs/runbook.md":  (*page).containers,
	"deploy/docs/upgrade.md":  (*page).containers,
	".github/CONTRIBUTING.md": (*page).containers,
	"deploy/docs/scale.md":    (*page).containers,
}

// programs have the programs of the Go blocks of pages: each block is a part of one of these tests, to the
// letter.
var programs = map[string]string{
	"README.md":             "sink/client/readme_test.go",
	"sink/client/README.md": "sink/client/readme_test.go",
}

// TestPages runs every block of every document, from a fresh state, in the order of the page, and compares what
// the commands print with what the page shows.
//
// It fails if somebody changes a command, a flag, a subject, a header, a path or an answer, and not the
// documents.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, document := range documents.All(t) {
		blocks := documents.Blocks(documents.Read(t, document))
		if len(blocks) == 0 {
			continue
		}
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			p := newPage(t, document)
			if needsShell(blocks) {
				state := states[document]
				if state == nil {
					state = (*page).open
				}
				state(p)
				p.programsHere()
			}
			for _, b := range blocks {
				p.do(b)
			}
		})
	}
}

// needsShell reports whether a block is a command.
func needsShell(blocks []documents.Block) bool {
	return slices.ContainsFunc(blocks, func(b documents.Block) bool {
		return b.Language == "sh" || b.Language == "console"
	})
}

// do does what a reader of the page does with a block.
func (p *page) do(b documents.Block) {
	p.t.Helper()
	switch b.Language {
	case "go":
		p.inAProgram(b)
	case "sh":
		p.script(b.Text)
	case "console":
		for _, c := range session(b.Text) {
			p.command(c)
		}
	default:
		path := filepath.Join(p.dir, b.File())
		if err := os.WriteFile(path, []byte(p.here(b.Text)), 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
}

// inAProgram fails the test unless a block of Go is a part of the test that runs it.
func (p *page) inAProgram(b documents.Block) {
	p.t.Helper()
	path := programs[p.document]
	if path == "" {
		path = strings.TrimSuffix(p.document, ".md") + "_test.go"
	}
	program := "\n" + flat(documents.Read(p.t, path))
	if !strings.Contains(program, "\n"+flat(strings.TrimSpace(b.Text))) {
		p.t.Errorf("%s has a block that no test runs, because %s does not have it:\n%s", p.document, path, b.Text)
	}
}

// flat returns the lines of a program without their indentation.
func flat(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		lines.WriteString(strings.TrimSpace(line) + "\n")
	}
	return lines.String()
}

// lineOfSession is a line of a session, and what the page shows that it prints.
type lineOfSession struct {
	line, output string
	interrupt    bool // the person ends it with Ctrl-C, when it has printed that
}

// session returns the commands of a block: the lines that begin with a prompt, with the documents that follow
// them in the shell's way ("<<EOF").
func session(text string) (all []lineOfSession) {
	for _, part := range strings.Split("\n"+text, "\n$ ")[1:] {
		line, output, _ := strings.Cut(part+"\n", "\n")
		if _, mark, ok := strings.Cut(line, "<<'"); ok {
			mark, _, _ = strings.Cut(mark, "'")
			body, rest, _ := strings.Cut(output, "\n"+mark+"\n")
			line, output = line+"\n"+body+"\n"+mark, rest
		}
		output, interrupt := strings.CutSuffix(strings.TrimRight(output, "\n"), "^C")
		all = append(all, lineOfSession{line, output, interrupt})
	}
	return all
}
