package wire

import (
	"testing"
	"time"
)

// TestRestored: the metadata of a restored log keeps the identity of the original, and tells the
// sequences that only the original can have used.
func TestRestored(t *testing.T) {
	created := time.Unix(5, 7)
	if got := Identity(nil, created); got != 5000000007 {
		t.Errorf("a log that was not restored: %d", got)
	}
	want := Restored{Identity: 123, End: 10, Next: 20}
	metadata := map[string]string{RestoredKey: want.String()}
	got, ok, err := ParseRestored(metadata)
	if got != want || !ok || err != nil {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	if got := Identity(metadata, created); got != 123 {
		t.Errorf("a restored log: %d", got)
	}
	for seq, hidden := range map[uint64]bool{9: false, 10: false, 11: true, 18: true, 19: false, 20: false} {
		if got := want.Hides(seq); got != hidden {
			t.Errorf("%d: %v", seq, got)
		}
	}
	for _, text := range []string{"1", "1 2", "a 2 3", "1 2 3 4", "01 2 3", "1 -2 3", " 1 2 3"} {
		if r, ok, err := ParseRestored(map[string]string{RestoredKey: text}); ok || err == nil {
			t.Errorf("%q: %+v", text, r)
		}
	}
}
