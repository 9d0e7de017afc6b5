package check

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	// deploy is the folder of the files to check, and repository the one above it.
	deploy     = ".."
	repository = "../.."

	// limit is how long a test waits for anything but a build.
	limit = 2 * time.Minute
)

// binDir is for the programs that the tests build.
var binDir string

func TestMain(m *testing.M) {
	var err error
	if binDir, err = os.MkdirTemp("", "lapse-check-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := os.RemoveAll(binDir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

var buildLapse = sync.OnceValues(func() (string, error) {
	path := filepath.Join(binDir, "lapse")
	// As in the Dockerfile, so that TestImage finds the packages compiled.
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", path, "./cmd/lapse")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return path, nil
})

// lapse returns the path of the program.
func lapse(t *testing.T) string {
	t.Helper()
	path, err := buildLapse()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// need fails the test if a program is missing, and names the Debian package that has it.
func need(t *testing.T, program, debian string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Fatalf("%s is missing: install the Debian package %s, or run .ci/need", program, debian)
	}
}

// run runs a command and returns its output. A failure ends the test.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, out.String(), errs.String())
	}
	return out.String()
}

var buildSecrets = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(binDir, "trial")
	if out, err := exec.Command(filepath.Join(deploy, "secrets"), dir).CombinedOutput(); err != nil {
		return "", fmt.Errorf("deploy/secrets: %w\n%s", err, out)
	}
	return dir, nil
})

// secrets returns a folder with what deploy/secrets makes.
func secrets(t *testing.T) string {
	t.Helper()
	dir, err := buildSecrets()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// read returns the text of a file.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	variable = regexp.MustCompile(`\$(LAPSE_[A-Z_]+)`)
	address  = regexp.MustCompile(`//[^,/]+`)
)

// knownVariables are the environment variables that the help of a command lists.
func knownVariables(t *testing.T, command string) map[string]bool {
	t.Helper()
	known := make(map[string]bool)
	help := run(t, lapse(t), command, "--help")
	if command != "serve" {
		help += run(t, lapse(t), "help", "connection")
	}
	for _, m := range variable.FindAllStringSubmatch(help, -1) {
		known[m[1]] = true
	}
	return known
}

// accepts fails the test unless lapse knows each variable and takes its value. Files are
// looked up in the folder of the secrets, whatever folder the value names. A command that
// takes all of them gets as far as the servers; there are none.
func accepts(t *testing.T, env map[string]string, args ...string) {
	t.Helper()
	command := args[0]
	known := knownVariables(t, command)
	cmd := exec.Command(lapse(t), args...)
	cmd.Dir = t.TempDir() // for the data of a server that should not be embedded
	cmd.Env = []string{"HOME=" + cmd.Dir}
	for name, value := range env {
		if !strings.HasPrefix(name, "LAPSE_") {
			continue
		}
		if !known[name] {
			t.Errorf("%s=%s: lapse %s --help does not list this variable", name, value, command)
		}
		switch {
		case strings.HasPrefix(value, "/"):
			value = filepath.Join(secrets(t), filepath.Base(value))
		case strings.Contains(value, "://"):
			value = address.ReplaceAllString(value, "//127.0.0.1:9") // nothing listens there
		case name == "LAPSE_HTTP_LISTEN":
			value = "127.0.0.1:0"
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("no NATS server answers")) {
		t.Errorf("lapse %s does not take these variables: %v\n%s\n%s", command, err, strings.Join(cmd.Env, "\n"), out)
	}
}
