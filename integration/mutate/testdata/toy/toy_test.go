package toy

import (
	"strings"
	"testing"
)

func TestToy(t *testing.T) {
	if n, err := sum(9); n != 3 || err != nil || !strings.Contains(script, "n = 1") {
		t.Fatal(n, err, script)
	}
	if n := count(2); n != 4 {
		t.Fatal(n)
	}
}
