package load

import (
	"encoding/json"
	"testing"
	"time"
)

// Every document has its size, is an object, and is found in a text that contains it with
// any TTL.
func TestDocuments(t *testing.T) {
	for _, size := range []int{MinBody, 100, 256, 100_000} {
		l := New(3_000_000, size, LongTTL, 1)
		if size > MinBody {
			l.Groups = 30_000
		}
		for _, i := range []int{0, 1, 99, 8192, 2_999_999} {
			b := l.Body(i)
			var v struct {
				N, TTL int
				Group  string
			}
			if err := json.Unmarshal(b, &v); err != nil || v.N != i || v.TTL != LongTTL || l.Groups > 0 && v.Group != l.Group(i) {
				t.Errorf("document %d is %s (%v)", i, b, err)
			}
			if len(b) != size {
				t.Errorf("document %d has %d bytes, want %d", i, len(b), size)
			}
			if !l.In("before"+string(l.BodyWith(i, 7))+"behind", i) {
				t.Errorf("document %d is not found in itself", i)
			}
			if size > 200 && l.In(string(l.Body(i+1)), i) {
				t.Errorf("document %d is found in the next", i)
			}
		}
	}
}

func TestIDs(t *testing.T) {
	l := New(10, 256, 0, 1)
	for _, i := range []int{0, 7, 10, 12_345_678} {
		for _, l := range []Load{l, l.Warm()} {
			id := l.ID(i)
			if got, warm, err := Index(id); got != i || warm != l.Warming() || err != nil || len(id) != 12 {
				t.Errorf("%d has the id %q, which is %d, %t, %v", i, id, got, warm, err)
			}
		}
	}
	if _, _, err := Index("x"); err == nil {
		t.Error("Index accepts the id x")
	}
}

// The result counts early, doubled and missing documents.
func TestReceipts(t *testing.T) {
	due := time.Now()
	r := NewReceipts(4)
	r.Got(0, due, due.Add(2*time.Millisecond))
	r.Got(1, due, due.Add(-time.Millisecond))
	r.Got(2, due.Add(time.Second), due.Add(time.Second+time.Millisecond))
	r.Got(2, due, due)
	got := r.Result()
	if got.Missing != 1 || got.Early != 1 || got.Doubled != 1 || got.Max != 2*time.Millisecond || got.Spread != time.Second {
		t.Errorf("%+v", got)
	}
	select {
	case <-r.all:
		t.Error("all are received, though one is missing")
	default:
	}
	r.Got(3, due, due)
	<-r.all
}
