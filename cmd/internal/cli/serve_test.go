package cli

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOpenFiles: a file with a secret that everybody can read is a warning, which does not show it.
func TestOpenFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil { // whatever the umask is
			t.Fatal(err)
		}
		return path
	}
	var c serveCommand
	c.TokenFile = file("tokens", "secret", 0o644)
	c.Key = file("key", "secret", 0o600)
	c.Token = file("token", "secret", 0o440) // as Kubernetes mounts it
	c.NATSLogin.PasswordFile = file("nats", "secret", 0o604)
	c.RedisLogin.PasswordFile = file("redis", "secret", 0o444)
	c.RedisLogin.SentinelPasswordFile = file("empty", "", 0o644)
	var log bytes.Buffer
	c.warnOfOpenFiles(slog.New(slog.NewTextHandler(&log, nil)))
	for _, flag := range []string{"--http-token-file", "--nats-password-file", "--redis-password-file"} {
		if !strings.Contains(log.String(), "flag="+flag+" ") {
			t.Errorf("no warning of %s", flag)
		}
	}
	if strings.Count(log.String(), "level=WARN") != 3 || strings.Contains(log.String(), "secret\"") {
		t.Errorf("the log:\n%s", &log)
	}
}
