package sink

import (
	"errors"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// FuzzDecodePosition: any continuation is either a position in one of the partitions or an
// ErrInvalidRequest.
func FuzzDecodePosition(f *testing.F) {
	r, err := NewReader(nil, ReaderOptions{Partitions: 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("")
	f.Add(encodeContinuation(listPosition{Partition: 2, Server: "abc", Cursor: "12", Count: 7, Next: "13", After: "é"}))
	f.Fuzz(func(t *testing.T, s string) {
		pos, err := r.found.Load().decodePosition(s)
		if err != nil {
			if !errors.Is(err, ErrInvalidRequest) || pos != (listPosition{}) {
				t.Errorf("%q is %+v, %v", s, pos, err)
			}
			return
		}
		if pos.Partition < 0 || pos.Partition > 2 || pos.Cursor == "" || pos.Count < 0 || pos.Count > wire.MaxListLimit {
			t.Errorf("%q is %+v", s, pos)
		}
		if again, err := r.found.Load().decodePosition(encodeContinuation(pos)); err != nil || again != pos {
			t.Errorf("%q is %+v, and again %+v, %v", s, pos, again, err)
		}
	})
}
