package documents_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/documents"
)

// TestParagraphs: an item of a list and a cell of a table are paragraphs, and a block is none.
func TestParagraphs(t *testing.T) {
	t.Parallel()
	text := "# Title\n\none two\nthree\n- four\n  five\n\n| six | seven |\n|---|---|\n" +
		"```sh\neight\n```\nnine [ten](x.md#a) `[no](y.md)`\n"
	want := []string{"one two three", "- four five", " six ", " seven ", "---", "---",
		"nine [ten](x.md#a) `[no](y.md)`"}
	if diff := cmp.Diff(want, documents.Paragraphs(text)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"x.md#a"}, documents.Links(text)); diff != "" {
		t.Error(diff)
	}
	if n := documents.Words(text); n != 13 {
		t.Errorf("%d words", n)
	}
	if got := documents.Anchor("Problem: `Redis` may evict (1.5)"); got != "problem-redis-may-evict-15" {
		t.Error(got)
	}
}
