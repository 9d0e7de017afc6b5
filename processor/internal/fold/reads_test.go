package fold

import (
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestMayBeNew: the guess covers only writes whose result is the same for any document
// that is not stored.
func TestMayBeNew(t *testing.T) {
	m := func(op wire.Op, id string) *Message {
		return &Message{Kind: Write, Op: op, Collection: "c", ID: id}
	}
	conditional := m(wire.Upsert, "a")
	conditional.IfMatch.Set = true
	catalog := NewCollections(nil, nil)
	var queue DueQueue
	queue.Set([]*DueDocument{{Key: Key{Collection: "c", ID: "due"}}})
	for _, tt := range []struct {
		messages []*Message
		want     bool
	}{
		{nil, false},
		{[]*Message{m(wire.Upsert, "a"), m(wire.Create, "b"), {Kind: Malformed}}, true},
		{[]*Message{m(wire.Upsert, "a"), m(wire.Upsert, "due")}, false},
		{[]*Message{m(wire.Upsert, "a"), conditional}, false},
		{[]*Message{m(wire.Upsert, "a"), m(wire.Replace, "b")}, false},
		{[]*Message{m(wire.Patch, "a")}, false}, {[]*Message{m(wire.Touch, "a")}, false}, {[]*Message{m(wire.Delete, "a")}, false},
	} {
		if got := MayBeNew(tt.messages, catalog, &queue); got != tt.want {
			var ops []string
			for _, m := range tt.messages {
				ops = append(ops, string(m.Op)+" "+m.ID)
			}
			t.Errorf("%s: %v, want %v", strings.Join(ops, ", "), got, tt.want)
		}
	}
}
