// Package documents reads the Markdown of the project: its documents, and their words, paragraphs,
// headings, links and blocks. Its tests hold the documents to the rules of structure; package elsewhere
// runs their blocks.
package documents

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/seed18712806/lapse/integration/harness/programs"
)

// Root is the directory of the module.
func Root(t testing.TB) string {
	t.Helper()
	root, err := programs.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// All returns the paths of all documents, relative to the root, in the order of their names.
func All(t testing.TB) (paths []string) {
	t.Helper()
	root := Root(t)
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{".git", ".ci", "node_modules", "lapse-data"}, d.Name()):
			return filepath.SkipDir
		case filepath.Ext(path) == ".md":
			path, err = filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(path))
		}
		return err
	})
	if err != nil || len(paths) < 10 {
		t.Fatalf("found the documents %v: %v", paths, err)
	}
	return paths
}

// Read returns the text of a document.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Block is the text between two fences of a document.
type Block struct{ Language, Text string }

var fence = regexp.MustCompile("(?ms)^```([a-z]*)\n(.*?)^```$")

// Blocks returns the blocks of a text, in their order.
func Blocks(text string) (all []Block) {
	for _, match := range fence.FindAllStringSubmatch(text, -1) {
		all = append(all, Block{match[1], match[2]})
	}
	return all
}

// File returns the name of the file that a block has in its first line: a comment of one word, such as
// "// visits.mjs" or "# http-tokens". It is empty if there is none.
func (b Block) File() string {
	first, _, _ := strings.Cut(b.Text, "\n")
	mark, name, _ := strings.Cut(first, " ")
	if mark != "//" && mark != "#" || strings.ContainsAny(name, " /") {
		return ""
	}
	return name
}

// Words counts the words of a text: what stands between white space and has a letter or a digit.
func Words(text string) (n int) {
	for _, word := range strings.Fields(text) {
		if strings.ContainsFunc(word, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			n++
		}
	}
	return n
}

var (
	item    = regexp.MustCompile(`^\s*([-*]|\d+\.)\s`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// Paragraphs returns the paragraphs of a text: those between blank lines, each item of a list, and each cell
// of a table. Headings and blocks are none.
func Paragraphs(text string) (all []string) {
	var lines []string
	flush := func() {
		if len(lines) > 0 {
			all = append(all, strings.Join(lines, " "))
		}
		lines = nil
	}
	for line := range strings.Lines(fence.ReplaceAllString(comment.ReplaceAllString(text, ""), "\n")) {
		trimmed := strings.TrimSpace(line)
		if quoted, ok := strings.CutPrefix(trimmed, ">"); ok {
			line = strings.TrimPrefix(quoted, " ")
			trimmed = strings.TrimSpace(quoted)
		}
		switch {
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
			flush()
			continue
		case strings.HasPrefix(trimmed, "|"):
			flush()
			all = append(all, strings.Split(strings.Trim(trimmed, "|"), "|")...)
			continue
		case item.MatchString(line):
			flush()
		}
		lines = append(lines, trimmed)
	}
	flush()
	return all
}

var (
	heading      = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInAHref   = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	linkInText   = regexp.MustCompile(`\]\(([^)" ]*)\)`)
	linkInHTML   = regexp.MustCompile(`(?:src|srcset|href)="([^"]*)"`)
	codeInText   = regexp.MustCompile("`[^`\n]*`")
	linkInLegend = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// Headings returns the headings of a text.
func Headings(text string) (all []string) {
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, match[1])
	}
	return all
}

// Anchor is the anchor that GitHub gives to a heading.
func Anchor(heading string) string {
	heading = linkInLegend.ReplaceAllString(heading, "$1")
	return strings.ReplaceAll(notInAHref.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// Anchors returns the anchors of a text.
func Anchors(text string) map[string]bool {
	all := make(map[string]bool)
	for _, h := range Headings(text) {
		all[Anchor(h)] = true
	}
	return all
}

// Links returns the targets of the links and the images of a text.
func Links(text string) (all []string) {
	text = codeInText.ReplaceAllString(fence.ReplaceAllString(text, ""), "")
	for _, kind := range []*regexp.Regexp{linkInText, linkInHTML} {
		for _, match := range kind.FindAllStringSubmatch(text, -1) {
			all = append(all, match[1])
		}
	}
	return all
}
