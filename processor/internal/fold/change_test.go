package fold

import (
	"testing"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG3_ChangesWhileAnIndexIsBuilt: documents may be due that an index does not have yet. So a
// collection that is dropped, or whose index is turned off, is kept until its index is built and they
// are reaped. Where TTL is off, nothing is due, and nothing is kept.
//
// It fails if only what the index has counts as due, or if nobody builds on.
func TestG3_ChangesWhileAnIndexIsBuilt(t *testing.T) {
	const at = 5000
	queue := &DueQueue{}
	building := func(d ttlrules.Default) *Collections {
		return NewCollections(map[string]store.Config{"c": {Building: true, History: ttlrules.History{}.With(1000, 1, d)}}, nil)
	}
	for d, due := range map[ttlrules.Default]bool{1: true, ttlrules.NoDefault: true, ttlrules.Off: false} {
		if got := building(d).MayBeDue("c", at, queue); got != due {
			t.Errorf("default %v: a document may be due: %v, want %v", d, got, due)
		}
	}

	s := building(1)
	configs, changes := s.Drop("c", 7, at, true)
	if c := s.Building(); c == nil || c.Name != "c.7" || !configs[1].Config.Building {
		t.Errorf("after a drop of what is due, %+v is built, and stored is %+v", c, configs)
	}
	if changes[0].Drop != store.DropMoves || !s.MayBeDue("c.7", at, queue) {
		t.Errorf("after a drop of what is due: %+v, due: %v", changes, s.MayBeDue("c.7", at, queue))
	}
	s = building(ttlrules.Off)
	if _, changes = s.Drop("c", 7, at, false); changes[0].Drop != store.DropAll || s.Building() != nil || s.Get("c") != nil {
		t.Errorf("after a drop where nothing is due: %+v, %v is built", changes, s.Building())
	}

	s = building(1)
	current := s.Config("c")
	configs, changes = s.Reconfigure("c", current, store.Config{NoIndex: true, History: current.History.With(at, 7, ttlrules.Off)}, 1, true)
	if c := s.Building(); c == nil || !configs[0].Config.Building || !configs[0].Config.Draining || len(changes) > 0 {
		t.Errorf("after the index of what is due was turned off, %+v is built, and stored is %+v", c, configs[0].Config)
	}
	s = building(ttlrules.Off)
	current = s.Config("c")
	configs, changes = s.Reconfigure("c", current, store.Config{NoIndex: true, History: current.History}, 1, false)
	if s.Building() != nil || configs[0].Config.Building || configs[0].Config.Draining || len(changes) != 1 || changes[0].Drop != store.DropIndex {
		t.Errorf("after an index was turned off, %v is built, stored is %+v, and removed %+v", s.Building(), configs[0].Config, changes)
	}
}
