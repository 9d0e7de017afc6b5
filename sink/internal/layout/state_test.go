package layout

import "testing"

// TestSize: the size of a collection is its three numbers in their order, and one without a field has no documents.
func TestSize(t *testing.T) {
	if s := NewSize(6, 4, 2); s != "6 4 2" || s.Documents() != "6" || SizeOf(string(s)) != s {
		t.Errorf("size %q with %s documents", s, s.Documents())
	}
	if s := SizeOf(""); s != NewSize(0, 0, 0) || s.Documents() != "0" {
		t.Errorf("no field is %q", s)
	}
}
