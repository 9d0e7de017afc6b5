package deploy

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestBuildsNameTheirVersion: the image and the archives of a release set the variables that
// "lapse version" prints. The linker passes over a name that does not exist.
func TestBuildsNameTheirVersion(t *testing.T) {
	source, err := os.ReadFile("../cmd/internal/cli/version.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^var (\w+)(?:, (\w+))? string$`).FindAllSubmatch(source, -1) {
		want = append(want, string(m[1]), string(m[2]))
	}
	want = slices.DeleteFunc(want, func(name string) bool { return name == "" })
	slices.Sort(want)
	for _, name := range []string{"Dockerfile", "goreleaser.yaml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range regexp.MustCompile(`-X (?:github\.com/seed18712806/lapse/cmd/internal/cli|\$package)\.(\w+)=`).FindAllSubmatch(text, -1) {
			got = append(got, string(m[1]))
		}
		slices.Sort(got)
		if len(want) != 3 || !slices.Equal(got, want) {
			t.Errorf("%s sets %v, and the program has %v", name, got, want)
		}
	}
}
