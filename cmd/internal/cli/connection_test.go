package cli

import (
	"strings"
	"testing"
)

// TestHintAtTheVariableOfServe: a user whose shell has the variable of serve alone learns that a client command does
// not read it.
func TestHintAtTheVariableOfServe(t *testing.T) {
	t.Setenv("LAPSE_NATS", "")
	if hint := (&Connection{}).hint(); hint != "" {
		t.Errorf("without LAPSE_NATS: %q", hint)
	}
	t.Setenv("LAPSE_NATS", "nats://elsewhere:4222")
	for server, want := range map[string]bool{"": true, defaultServer: true, "nats://127.0.0.1:9": false} {
		if hint := (&Connection{Server: server}).hint(); strings.Contains(hint, "LAPSE_NATS") != want {
			t.Errorf("with the server %q: %q", server, hint)
		}
	}
}
