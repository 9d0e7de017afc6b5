package deploy

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestImages: each image has a digest, or a comment beside it says why it has none.
func TestImages(t *testing.T) {
	names, beside := regexp.MustCompile(`^\s*(- )?(image:|newTag:|digest:|FROM |ARG BUILDER=)`), 4
	found := 0
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".yaml") && name != "Dockerfile" {
			return err
		}
		text, err := os.ReadFile(name)
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if !names.MatchString(line) || strings.HasPrefix(line, "FROM ${") { // that is what ARG names
				continue
			}
			found++
			near := line
			for before := i - 1; before >= max(0, i-beside) && strings.HasPrefix(strings.TrimSpace(lines[before]), "#"); before-- {
				near = lines[before] + "\n" + near
			}
			_, comment, _ := strings.Cut(near, "#")
			if !strings.Contains(line, "sha256:") && !strings.Contains(comment, "digest") {
				t.Errorf("%s:%d: %s: pin it by its digest, or say why not", name, i+1, strings.TrimSpace(line))
			}
		}
		return err
	})
	if err != nil || found < 8 {
		t.Errorf("%d images, %v", found, err)
	}
}
