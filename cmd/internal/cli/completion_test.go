package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/cli"
	"github.com/seed18712806/lapse/cmd/internal/output"
)

// completed writes the completion for bash and a lapse that answers it with a text, and returns what bash offers.
func completed(t testing.TB, dir, answer string) []string {
	t.Helper()
	var script bytes.Buffer
	if code := cli.Run(t.Context(), []string{"completion", "bash"}, output.Streams{Out: &script,
		Err: os.Stderr}); code != 0 {
		t.Fatal(code)
	}
	for name, text := range map[string]string{
		"completion.bash": script.String(), "answer": answer,
		"lapse": "#!/bin/bash\nexec cat \"$(dirname \"$0\")/answer\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	bash := exec.Command("bash", "--norc", "-c",
		`source ./completion.bash; COMP_WORDS=(./lapse get ''); COMP_CWORD=2; COMP_LINE='./lapse get '; `+
			`COMP_POINT=${#COMP_LINE}; _lapse; printf '%s\n' "${COMPREPLY[@]}"`)
	bash.Dir = dir
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.Fields(string(out))
}

// files are what a completion leaves in its directory.
var files = []string{"answer", "completion.bash", "lapse"}

func checkFiles(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		found = append(found, e.Name())
	}
	if !slices.Equal(found, files) {
		t.Errorf("the answer was run: there are %v", found)
	}
}

// TestCompletionRunsNothing: bash offers the names of an answer that a collection can have, and runs nothing of it.
func TestCompletionRunsNothing(t *testing.T) {
	dir := t.TempDir()
	got := completed(t, dir, "orders\n$(touch run)\n`touch run`\n${x:=$(touch run)}\na$(touch run)b\n<(touch run)\nca "+
		"rts\n*\n~root\n--flag\nx_Y-9\n\x1b[2J\nlast")
	if want := []string{"orders", "--flag", "x_Y-9"}; !slices.Equal(got, want) {
		t.Errorf("bash offers %q, want %q", got, want)
	}
	checkFiles(t, dir)
}

// FuzzCompletion: bash runs nothing of an answer, and offers nothing else than names.
func FuzzCompletion(f *testing.F) {
	f.Add("orders\n$(touch run)\n")
	f.Add("a\\\n'\"`touch run`")
	f.Fuzz(func(t *testing.T, answer string) {
		dir := t.TempDir()
		for _, name := range completed(t, dir, answer) {
			if strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") != "" {
				t.Errorf("%q offers %q", answer, name)
			}
		}
		checkFiles(t, dir)
	})
}
