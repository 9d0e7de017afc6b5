package httpapi_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestREADME runs the commands with curl of the README as they stand there, but for the port,
// and compares what they print, but for times, etags and ids.
func TestREADME(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "## Over HTTP")
	_, session, _ := strings.Cut(section, "```\n")
	session, _, _ = strings.Cut(session, "```\n")
	numbers := regexp.MustCompile(`\d+`)
	same := func(s string) string { return strings.TrimSpace(numbers.ReplaceAllString(s, "0")) }
	r := start(t)
	commands := strings.Split(session, "$ curl ")[1:]
	if len(commands) < 4 {
		t.Fatalf("the README has %d commands", len(commands))
	}
	for _, c := range commands {
		command, want, _ := strings.Cut(c, "\n")
		command = strings.ReplaceAll(command, "http://127.0.0.1:7070/v1", r.base)
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "curl --silent "+command).Output()
		if err != nil && !strings.Contains(command, "--max-time") { // which ends curl with an error
			t.Fatalf("curl %s: %v", command, err)
		}
		if same(string(out)) != same(want) {
			t.Errorf("curl %s printed\n%s\nand the README has\n%s", command, out, want)
		}
	}
}
