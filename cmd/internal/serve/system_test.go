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

// TestDisk: the embedded NATS server may use the whole disk, so its size has to be known.
func TestDisk(t *testing.T) {
	if size, free, err := disk(t.TempDir()); err != nil || size == 0 || free > size {
		t.Errorf("%d bytes, %d free, %v", size, free, err)
	}
	if _, _, err := disk(filepath.Join(t.TempDir(), "nothing")); err == nil {
		t.Error("a directory that does not exist has a disk")
	}
}
