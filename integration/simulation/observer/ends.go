package observer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// ends are the ends of streams that NATS has lost, and who remembers them.
type ends struct {
	remembers string // who remembers a client's message that the log has lost; "" if nobody does, or that is not known
	holds     bool   // the shard has applied such a message
	lost      bool   // streams have lost their ends
	limited   bool   // the stream of events has not had its beginning since, or a snapshot was harmed
}

// note notes a step, and reports whether it makes streams lose their ends. A step that may make who
// remembers forget leaves it unknown.
func (e *ends) note(s plan.Step) bool {
	switch s.Verb {
	case "power-loss", "leader-change":
		e.lost = true
	case "redis-flush", "redis-rollback", "redis-damage":
		e.holds = false
	case "snapshot-lose", "snapshot-damage", "events-age", "log-tail", "log-truncate", "log-anew":
	default:
		return false
	}
	e.remembers = ""
	return s.Verb == "power-loss" || s.Verb == "leader-change"
}

// Remembered says who remembers a message that the log has lost; "" if that is not known.
func (h *Observer) Remembered() string { return h.ends.remembers }

// MayRefuse reports whether a person may have to decide: after a step that says so, and where streams have
// lost their ends, and something else is gone. If events are, lapse may not know which to publish again. If a
// snapshot is, lapse may have no other. The log alone may be truncated: behind snapshots that are on disk.
func (h *Observer) MayRefuse() bool {
	if s := h.servers.NATS.Stream(Events); s != nil && s.FirstSeq() > 1 ||
		h.faults["snapshot-lose"]+h.faults["snapshot-damage"] > 0 {
		h.ends.limited = true
	}
	return h.reason != "" || h.ends.lost && h.ends.limited
}

// noteLost finds out who remembers a message of a client that the log has just lost.
func (h *Observer) noteLost(s *natsmodel.Stream) {
	if !h.identity(s).Equal(h.created) {
		return
	}
	first := slices.IndexFunc(h.log, func(m oracle.Message) bool {
		return m.Seq > s.LastSeq() && !strings.HasSuffix(m.Subject, "tick") && !strings.Contains(m.Subject, "snapshot")
	})
	if first < 0 {
		return
	}
	lost := h.log[first].Seq
	remember := func(who string, seq uint64) {
		if seq >= lost {
			h.ends.remembers = fmt.Sprintf("%s remembers message %d, and the log ended at %d", who, seq, s.LastSeq())
		}
	}
	if state, ok := h.servers.Redis.State(); ok && state.Rebuild != store.Clearing {
		remember("the shard", state.Offset)
		h.ends.holds = h.ends.holds || state.Offset >= lost
	}
	if bucket := h.servers.NATS.Stream(Checkpoints); bucket != nil {
		for _, m := range bucket.Messages() {
			var point struct{ Seq uint64 }
			if strings.Contains(m.Subject, ".shard.") && json.Unmarshal(m.Data, &point) == nil {
				remember("the checkpoint "+m.Subject, point.Seq)
			}
		}
	}
	if events := h.servers.NATS.Stream(Events); events != nil {
		for _, m := range events.Messages() {
			offset, _, _ := strings.Cut(m.Header.Get(wire.HeaderOffset), ":")
			id, _, _ := strings.Cut(m.Header.Get("ce-id"), warning)
			id = strings.TrimSuffix(strings.TrimSuffix(id, "/changed"), "/dropped")
			for _, named := range []string{offset, m.Header.Get(wire.HeaderSeq),
				id[strings.LastIndexByte(id, '/')+1:]} {
				seq, _ := strconv.ParseUint(named, 10, 64)
				remember(fmt.Sprintf("message %d of the stream of events", m.Seq), seq)
			}
		}
	}
}

// loseEvents forgets the events that their stream has lost. Versions whose events were lost may have left
// Redis before.
func (h *Observer) loseEvents(s *natsmodel.Stream) {
	h.MayRefuse() // notes what was removed by now
	for n := len(h.events); n > 0 && h.events[n-1].Seq > s.LastSeq(); n-- {
		m := h.events[n-1]
		h.events = h.events[:n-1]
		id, kind := output(m)
		if id == "" {
			continue
		}
		delete(h.stored, h.source()+id)
		if e, ok := h.expired[id]; ok && kind == "expired" {
			h.owed[id] = e
			h.Damaged()
		}
	}
}
