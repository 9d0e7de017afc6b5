package serve

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestLock: one process at a time can use a data directory.
func TestLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	release, err := lockData(dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = lockData(dir)
	if err == nil || !strings.Contains(err.Error(), "--data "+dir+": another lapse serve is using it") {
		t.Errorf("the second lock: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = lockData(dir)
	if err != nil {
		t.Fatalf("after its release: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
}
