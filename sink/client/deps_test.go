package client_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestImportsNoServer: a program that imports the client gets neither Redis nor a server with it.
func TestImportsNoServer(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	const module = "github.com/seed18712806/lapse/"
	allowed := map[string]bool{
		"ttlrules": true, "sink/wire": true, "sink/internal/puback": true, "sink/credentials": true, "sink/client": true,
	}
	for _, path := range strings.Fields(string(out)) {
		own, isOwn := strings.CutPrefix(path, module)
		for _, server := range []string{"redis", "nats-server", "prometheus", "kong", "testing"} {
			if strings.Contains(path, server) {
				t.Errorf("it imports %s", path)
			}
		}
		if isOwn && !allowed[own] {
			t.Errorf("it imports %s", path)
		}
	}
}
