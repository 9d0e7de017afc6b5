package sink

import (
	"errors"
	"reflect"
	"testing"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

// FuzzDecodePosition: any continuation is either a position in one of the shards or an
// ErrInvalidRequest.
func FuzzDecodePosition(f *testing.F) {
	r, err := NewReader(nil, ReaderOptions{Shards: 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add("")
	f.Add(encodeContinuation(listPosition{Shard: 1, Index: layout.ByOwn, At: newPlace(layout.NeverScore, "é"),
		Prefix: "p"}))
	f.Add(encodeContinuation(listPosition{Shard: 2, Index: layout.ByInherit, At: newPlace(-5, "a")}))
	f.Add(encodeContinuation(listPosition{Ordered: &orderedPosition{Until: 7, Within: 5, Inherit: newPlace(2, "a"),
		Own: newPlace(3, "b")}}))
	f.Fuzz(func(t *testing.T, s string) {
		pos, err := r.found.Load().decodePosition(s)
		if err != nil {
			if !errors.Is(err, ErrInvalidRequest) || pos != (listPosition{}) {
				t.Errorf("%q is %+v, %v", s, pos, err)
			}
			return
		}
		if pos.Shard < 0 || pos.Shard > 2 || pos.Index < 0 || pos.Index > layout.ByOwn {
			t.Errorf("%q is %+v", s, pos)
		}
		if again, err := r.found.Load().decodePosition(encodeContinuation(pos)); err != nil ||
			!reflect.DeepEqual(again, pos) {
			t.Errorf("%q is %+v, and again %+v, %v", s, pos, again, err)
		}
	})
}
