package documents_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/documents"
)

// limits are the most words of a document, everything in it counted. Others have no limit.
// the last has a part for each store
var limits = map[string]int{"README.md": 900, "deploy/README.md": 300, "deploy/recipes/migrate.md": 530}

// notes are the documents for those who measure and simulate lapse: they name what was, such as a metric of then.
var notes = []string{"integration/bench/README.md", "integration/simulation/README.md"}

const (
	recipe         = 300 // most words of a recipe
	paragraph      = 60  // most words of a paragraph
	wordsPerMinute = 200
)

// TestWords: no document is longer than its reader has time for, and no paragraph is long. It logs how long
// each takes to read.
func TestWords(t *testing.T) {
	t.Parallel()
	total := 0
	for _, path := range documents.All(t) {
		text := documents.Read(t, path)
		words, long := documents.Words(text), 0
		limit := limits[path]
		if limit == 0 && strings.HasPrefix(path, "deploy/recipes/") {
			limit = recipe
		}
		if limit > 0 && words > limit {
			t.Errorf("%s has %d words: the limit is %d", path, words, limit)
		}
		for _, p := range documents.Paragraphs(text) {
			if n := documents.Words(p); n > paragraph {
				long++
				t.Errorf("%s has a paragraph of %d words, and the limit is %d: %.80s…", path, n, paragraph, p)
			}
		}
		total += words
		minutes := (words + wordsPerMinute - 1) / wordsPerMinute
		t.Logf("%-34s %6d words %3d minutes, %d long paragraphs", path, words, minutes, long)
	}
	t.Logf("%d words", total)
}

// TestDocuments: the documents are those of the plan, and the first line of each guide names its reader.
func TestDocuments(t *testing.T) {
	t.Parallel()
	want := []string{
		".github/CHANGELOG.md", ".github/CONTRIBUTING.md", ".github/SECURITY.md",
		"README.md", "deploy/README.md",
		"deploy/docs/backup.md", "deploy/docs/durability.md", "deploy/docs/install.md", "deploy/docs/monitoring.md",
		"deploy/docs/queries.md", "deploy/docs/redis.md", "deploy/docs/regions.md", "deploy/docs/runbook.md",
		"deploy/docs/scale.md",
		"deploy/docs/security.md", "deploy/docs/upgrade.md",
		"deploy/recipes/carts.md", "deploy/recipes/holds.md", "deploy/recipes/locks.md", "deploy/recipes/migrate.md",
		"deploy/recipes/retention.md", "deploy/recipes/sessions.md",
		"integration/README.md", "integration/bench/README.md", "integration/simulation/README.md",
		"sink/README.md", "sink/client/README.md", "ttlrules/README.md",
	}
	if got := documents.All(t); !slices.Equal(got, want) {
		t.Errorf("the documents are\n%s\nand should be\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, path := range want {
		if strings.HasPrefix(path, "deploy/docs/") {
			if first := documents.Paragraphs(documents.Read(t, path))[0]; !strings.HasPrefix(first, "For ") {
				t.Errorf("%s does not begin with whom it is for: %s", path, first)
			}
		}
	}
}

// TestLinks: each link and each image leads to a file, and each anchor to a heading. So do those that other
// files of the project have, such as alerts and error messages.
func TestLinks(t *testing.T) {
	t.Parallel()
	root := documents.Root(t)
	anchors := map[string]map[string]bool{}
	check := func(from, path, anchor string) {
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			t.Errorf("%s has a link that leads nowhere: %v", from, err)
			return
		}
		if anchor == "" {
			return
		}
		if anchors[path] == nil {
			anchors[path] = documents.Anchors(documents.Read(t, path))
		}
		if !anchors[path][anchor] {
			t.Errorf("%s links to #%s of %s, which does not have it", from, anchor, path)
		}
	}
	for _, path := range documents.All(t) {
		for _, target := range documents.Links(documents.Read(t, path)) {
			if strings.Contains(target, ":") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			if file == "" {
				check(path, path, anchor)
			} else {
				check(path, filepath.ToSlash(filepath.Join(filepath.Dir(path), file)), anchor)
			}
		}
	}
	for path, text := range others(t) {
		for _, match := range named.FindAllStringSubmatch(text, -1) {
			check(path, match[1], match[2])
		}
	}
}

// named is a document that a file names: by its path below the root, perhaps behind the address of the
// repository.
var named = regexp.MustCompile(`\b((?:deploy|sink|ttlrules|integration|\.github)/[a-z/]*[A-Za-z]+\.md)` +
	`(?:#([a-z0-9-]+)\b($|[^-]))?`)

// others returns the other files of the project that may name a document, by their paths.
func others(t *testing.T) map[string]string {
	t.Helper()
	root := documents.Root(t)
	all := map[string]string{}
	kinds := []string{
		"", ".acl", ".conf", ".go", ".html", ".js", ".json", ".mjs", ".py", ".service", ".tpl", ".txtar", ".yaml",
		".yml",
	}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{".git", "node_modules", "tools", "lapse-data"}, d.Name()) {
				return filepath.SkipDir
			}
			return nil
		}
		info, err := d.Info()
		if err != nil || !slices.Contains(kinds, filepath.Ext(path)) || info.Size() > 1<<20 ||
			!info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		path, _ = filepath.Rel(root, path)
		if strings.Contains(string(text), ".md") && !strings.HasPrefix(path, "integration/documents/") {
			all[path] = string(text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestFences: each block says what it is, so that a test knows how to run it.
func TestFences(t *testing.T) {
	t.Parallel()
	data := []string{"js", "python", "yaml", "json", "ini", "text"}
	known := append([]string{"sh", "console", "go"}, data...)
	for _, path := range documents.All(t) {
		text := documents.Read(t, path)
		if strings.Count(text, "\n```")%2 != 0 {
			t.Errorf("%s has a block without an end", path)
		}
		for _, b := range documents.Blocks(text) {
			if !slices.Contains(known, b.Language) {
				t.Errorf("%s has a block of the language %q: use one of %v\n%s", path, b.Language, known, b.Text)
			}
			if slices.Contains(data, b.Language) && b.File() == "" {
				t.Errorf("%s has a block that no test can use, because its first line names no file\n%s", path, b.Text)
			}
		}
	}
}

// TestNothingReleased: there is no release, so no section says how to come from an earlier version.
func TestNothingReleased(t *testing.T) {
	t.Parallel()
	for _, path := range documents.All(t) {
		for _, h := range documents.Headings(documents.Read(t, path)) {
			if strings.HasPrefix(h, "From a version") {
				t.Errorf("%s has the section %q", path, h)
			}
		}
	}
}
