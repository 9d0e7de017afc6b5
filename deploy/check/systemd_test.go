package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// mostExposure is the greatest "overall exposure level" of systemd-analyze security for the
// unit, from 0 (closed) to 10 (open).
const mostExposure = 1.5

// unit writes the unit with the program where this machine has it, and returns its path.
func unit(t *testing.T) string {
	t.Helper()
	need(t, "systemd-analyze", "systemd")
	const installed = "/usr/local/bin/lapse "
	text := read(t, deploy, "systemd/lapse.service")
	if strings.Count(text, "\nExecStart="+installed) != 1 {
		t.Fatalf("the unit does not start %s", installed)
	}
	path := filepath.Join(t.TempDir(), "lapse.service")
	text = strings.ReplaceAll(text, "\nExecStart="+installed, "\nExecStart="+lapse(t)+" ")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnitIsValid: systemd knows every setting of the unit. It goes red with a misspelled
// setting, of which systemd-analyze only warns.
func TestUnitIsValid(t *testing.T) {
	out, err := exec.Command("systemd-analyze", "verify", "--man=no", unit(t)).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestUnitIsClosed: the unit gives lapse little more than a network. It goes red when a
// setting that closes something is removed.
func TestUnitIsClosed(t *testing.T) {
	out := run(t, "systemd-analyze", "security", "--offline=true", "--no-pager", unit(t))
	m := regexp.MustCompile(`Overall exposure level for lapse.service: ([0-9.]+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("systemd-analyze security tells no exposure:\n%s", out)
	}
	exposure, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("exposure %.1f", exposure)
	if exposure > mostExposure {
		t.Errorf("the exposure of the unit is %.1f, and %.1f is allowed:\n%s", exposure, mostExposure, out)
	}
}

// TestUnitStartsLapse: lapse knows the variables that the unit sets, each file among them is
// a credential that the unit loads, and deploy/secrets makes a file of that name.
func TestUnitStartsLapse(t *testing.T) {
	env, loaded := map[string]string{}, map[string]bool{}
	for line := range strings.Lines(read(t, deploy, "systemd/lapse.service")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch key {
		case "Environment":
			name, value, _ := strings.Cut(value, "=")
			env[name] = value
		case "LoadCredential":
			name, source, _ := strings.Cut(value, ":")
			loaded[name] = true
			if source != "/etc/lapse/secrets/"+name {
				t.Errorf("%s: the credential comes from %s", line, source)
			}
		}
	}
	used := map[string]bool{}
	for name, value := range env {
		if file, ok := strings.CutPrefix(value, "%d/"); ok {
			used[file] = true
			env[name] = "/" + file
			if !loaded[file] {
				t.Errorf("%s=%s: the unit loads no credential %s", name, value, file)
			}
		}
	}
	for file := range loaded {
		if !used[file] {
			t.Errorf("the unit loads the credential %s and does not use it", file)
		}
	}
	if !strings.Contains(read(t, deploy, "systemd/lapse.service"), "Environment=LAPSE_DATA=%S/lapse") {
		t.Error("the unit does not say how to keep the data of an embedded server in the StateDirectory")
	}
	// The variables that the comment at the top of the unit puts into lapse.env.
	for _, m := range regexp.MustCompile(`(?m)^# +(LAPSE_[A-Z_]+)=(.*)$`).FindAllStringSubmatch(read(t, deploy, "systemd/lapse.service"), -1) {
		env[m[1]] = m[2]
	}
	accepts(t, env, "serve")
}
