package decide

import (
	"strings"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/message"
	"github.com/seed18712806/lapse/processor/internal/state"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestMayBeNew: the guess covers only writes whose result is the same for any document
// that is not stored.
func TestMayBeNew(t *testing.T) {
	m := func(op wire.Op, id string) *message.Message {
		return &message.Message{Kind: message.Write, Op: op, Collection: "c", ID: id}
	}
	conditional := m(wire.Upsert, "a")
	conditional.IfMatch.Set = true
	catalog := state.NewCollections(nil, nil)
	var queue state.DueQueue
	queue.Set([]*state.DueDocument{{Key: state.Key{Collection: "c", ID: "due"}}})
	for _, tt := range []struct {
		messages []*message.Message
		want     bool
	}{
		{nil, false},
		{[]*message.Message{m(wire.Upsert, "a"), m(wire.Create, "b"), {Kind: message.Malformed}}, true},
		{[]*message.Message{m(wire.Upsert, "a"), m(wire.Upsert, "due")}, false},
		{[]*message.Message{m(wire.Upsert, "a"), conditional}, false},
		{[]*message.Message{m(wire.Upsert, "a"), m(wire.Replace, "b")}, false},
		{[]*message.Message{m(wire.Patch, "a")}, false}, {[]*message.Message{m(wire.Touch, "a")}, false}, {[]*message.Message{m(wire.Delete, "a")}, false},
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
