package fold

import (
	"testing"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG9_ABatchIsBounded: in messages and in bytes. The stored bodies that it needs are bounded as they are read: see
// TestG9_StoredBodiesAreBounded.
func TestG9_ABatchIsBounded(t *testing.T) {
	for _, tt := range []struct {
		op       wire.Op
		n, bytes int
		want     int
	}{
		{wire.Upsert, 2 * BatchMessages, 0, BatchMessages},
		{wire.Upsert, 9, BatchBytes / 2, 2},
		{wire.Upsert, 9, BatchBytes/2 - 1, 3},
		{wire.Patch, 2 * BatchMessages, 0, BatchMessages},
		{wire.Touch, 9, 0, 9},
	} {
		pending := make([]*Message, tt.n)
		for i := range pending {
			pending[i] = &Message{Kind: Write, Op: tt.op, Body: make([]byte, tt.bytes)}
		}
		if got := len(Batch(pending)); got != tt.want {
			t.Errorf("%d messages %s of %d bytes: %d in a batch, want %d", tt.n, tt.op, tt.bytes, got, tt.want)
		}
	}
}

// TestG3_ATouchedDocumentThatExpiresIsReadWhole: its event needs the body. No TTL is shorter than a
// second, so it cannot expire in a shorter batch.
func TestG3_ATouchedDocumentThatExpiresIsReadWhole(t *testing.T) {
	for after, want := range map[int64]int{999: 0, 1000: 1} {
		d := New(testLimits, oneConfig(store.Config{}), 0)
		touch := func(id string, at int64) *Message {
			return decoder.Decode(wire.DefaultPrefix.Write(wire.Touch, "c", id), nil, nil, Position{Seq: uint64(at), Time: at})
		}
		later := decoder.Decode(wire.DefaultPrefix.Write(wire.Delete, "c", "b"), nil, nil, Position{Seq: 2, Time: 5000 + after})
		if _, whole := d.Name([]*Message{touch("a", 5000), later}); len(whole) != want {
			t.Errorf("a batch of %d ms: %d documents are read whole, want %d", after, len(whole), want)
		}
	}
}

// TestG2_ReapOnceReadersHaveReachedTheDeadline: not a millisecond before, and not one after.
func TestG2_ReapOnceReadersHaveReachedTheDeadline(t *testing.T) {
	for reached, want := range map[int64]int{8999: 0, 9000: 1} {
		d := New(testLimits, oneConfig(store.Config{}), 0)
		queue := &DueQueue{}
		queue.Set([]*DueDocument{{Key: Key{Collection: "c", ID: "a"}, Expiry: ttlrules.Expiry{At: 9000}}})
		if due, held := d.Reap(queue, 9000, reached); len(due) != want || held != (want == 0) {
			t.Errorf("readers have reached %d: %d documents are reaped, held %t", reached, len(due), held)
		}
	}
}
