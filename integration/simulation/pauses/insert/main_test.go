package main

import (
	"os/exec"
	"testing"
)

// TestAll_TheCopyCompiles: a limit is a variable in the copy, and lapse may use the constant where a variable
// of its type does not fit. It fails if nobody could run the simulation with pauses.
func TestAll_TheCopyCompiles(t *testing.T) {
	t.Chdir("../../../..") // the root of the module
	overlay, err := run(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./processor/...",
		"./sink/events").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestInsert: a call is in front of each statement, also in a case and in a function within a function. A mutex counts
// as held before it is locked, and until it is unlocked.
func TestInsert(t *testing.T) {
	const text = `package shard

func (b *Inbox) last() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch { // all
	case b.closed:
		b.mu.Unlock()
	default:
		go func() { n = 1 }()
	}
	return n
}
`
	const want = `package shard; import "github.com/seed18712806/lapse/integration/simulation/pauses"

func (b *Inbox) last() (n int) {
	pauses.Here(8); pauses.Hold(); b.mu.Lock()
	pauses.Here(9); defer pauses.Free(); defer b.mu.Unlock()
	pauses.Here(10); switch { // all
	case b.closed:
		pauses.Here(12); b.mu.Unlock(); pauses.Free()
	default:
		pauses.Here(13); go func() { pauses.Here(14); n = 1 }()
	}
	pauses.Here(11); return n
}
`
	got, n, err := insert("inbox.go", []byte(text), 7)
	if string(got) != want || n != 7 || err != nil {
		t.Errorf("%d statements, want 7; %v\n%s", n, err, got)
	}
	if _, _, err := insert("broken.go", []byte("package"), 0); err == nil {
		t.Error("a file that Go cannot parse gives no error")
	}
}
