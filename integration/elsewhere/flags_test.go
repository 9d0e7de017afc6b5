package elsewhere

import (
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/documents"
	harnessprograms "github.com/seed18712806/lapse/integration/harness/programs"
)

// others are flags of other programs that the documents name.
var others = []string{
	"--build", "--build-arg", "--wait", "--rm", "--json", "--header", "--cacert", "--silent", "--install",
	"--from-file",
	"--replicas", "--signal", "--cluster", "--latency", "--bigkeys", "--rdb", "--previous", "--since", "--max-bytes",
	"--js-api-prefix", "--js-domain", "--inbox-prefix", "--runtime", "--now", "--scan", "--port", "--show-error",
	"--context", "--format",
	"--accept", // the beginning of some of lapse
}

var (
	flagInText     = regexp.MustCompile("(?:^|[ `\\[(\"'])(--[a-z][a-z-]+)")
	variableInText = regexp.MustCompile(`\bLAPSE_[A-Z_]+\b`)
	stream         = regexp.MustCompile(`^LAPSE_(LOG|EVENTS|CONFIG|CHECKPOINTS|SNAPSHOTS|MEMBERS|DEAD|ITSELF)(_|$)`)
)

// TestFlags: each flag and each variable that a document names is one of lapse, or of another program that it is
// about.
//
// It fails if somebody renames or removes a flag, and not in the documents.
func TestFlags(t *testing.T) {
	t.Parallel()
	lapse := harnessprograms.Path(t, "lapse")
	help := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), lapse, args...).Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	known := ""
	for _, match := range regexp.MustCompile(`(?m)^  ([a-z-]+)  +[A-Z]`).FindAllStringSubmatch(help("help"), -1) {
		known += help("help", match[1])
	}
	known += help("help", "connection")
	flags := regexp.MustCompile(`--(?:\[no-\])?([a-z][a-z-]+)`).FindAllStringSubmatch(known, -1)
	var names []string
	for _, match := range flags {
		names = append(names, "--"+match[1], "--no-"+match[1])
	}
	if len(names) < 150 {
		t.Fatalf("lapse has only the flags %v", names)
	}
	for _, path := range documents.All(t) {
		if path == ".github/CHANGELOG.md" || strings.HasPrefix(path, "integration/") {
			continue
		}
		text := documents.Read(t, path)
		for _, match := range flagInText.FindAllStringSubmatch(text, -1) {
			if flag := strings.TrimRight(match[1], "-"); !slices.Contains(names, flag) &&
				!slices.Contains(others, flag) {
				t.Errorf("%s names the flag %s, which lapse does not have", path, flag)
			}
		}
		for _, variable := range variableInText.FindAllString(text, -1) {
			if !strings.Contains(known, "$"+variable) && !stream.MatchString(variable) &&
				!strings.HasPrefix(path, ".github/") {
				t.Errorf("%s names the variable %s, which lapse does not have", path, variable)
			}
		}
	}
}
