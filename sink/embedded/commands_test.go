package embedded_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/redistest"
)

// TestForPeople: redis-cli and the clients of other programs get answers to what they ask first,
// and a clear refusal of what there is not.
func TestForPeople(t *testing.T) {
	client := redistest.StartMini(t).Client.Conn()
	defer client.Close()
	for _, c := range []struct{ command, want string }{
		{"COMMAND DOCS", "[]"},
		{"CLIENT SETINFO LIB-NAME x", "OK"}, {"CLIENT SETNAME me", "OK"}, {"CLIENT LIST",
			"ERR unknown command 'CLIENT LIST'"},
		{"SELECT 0", "OK"}, {"SELECT 1", "ERR DB index is out of range"},
		{"SET k v", "OK"}, {"GET", "ERR wrong number of arguments for 'get' command"}, {"SET k v EX 10",
			"ERR syntax error: SET takes no options"},
		{"LPUSH l v", "ERR unknown command 'LPUSH'"}, {"MULTI", "ERR unknown command 'MULTI'"},
	} {
		var args []any
		for _, word := range strings.Fields(c.command) {
			args = append(args, word)
		}
		v, err := client.Do(t.Context(), args...).Result()
		got := fmt.Sprint(v)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.command, got, c.want)
		}
	}
}
