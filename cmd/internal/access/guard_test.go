package access

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckHost(t *testing.T) {
	got := map[string]bool{}
	for _, host := range []string{"localhost", "LOCALHOST:1", "127.0.0.1:7070", "127.9.9.9", "[::1]:1", "[::1]", "::1",
		"", "example.com", "127.0.0.1.example.com:1", "10.0.0.1:7070", "localhost.example.com"} {
		got[host] = checkHost(host) == nil
	}
	want := map[string]bool{
		"localhost": true, "LOCALHOST:1": true, "127.0.0.1:7070": true, "127.9.9.9": true, "[::1]:1": true, "[::1]": true,
		"::1": true,
		"":    false, "example.com": false, "127.0.0.1.example.com:1": false, "10.0.0.1:7070": false,
		"localhost.example.com": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
