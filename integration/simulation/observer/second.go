package observer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/simulation/natsmodel"
	"github.com/seed18712806/lapse/integration/simulation/plan"
	"github.com/seed18712806/lapse/sink/wire"
)

// second is what an observer knows of a region that follows another one, or did so.
type second struct {
	holes    bool   // the mirror of the log lacks messages: nobody knows what is to be
	first    uint64 // sequence of the log
	handover bool   // the promotion is to lose nothing
	promoted bool
	last     uint64          // sequence of the log when it was promoted
	events   uint64          // sequence of the stream of events then
	mirrored map[string]bool // ids of what the first region has published
	former   string          // how the outputs of the log name it: its ce-source up to the collection
	becomes  string          // how those of the messages behind last name it
}

// follows reports whether the region is one that follows another one now.
func (h *Observer) follows() bool { return h.servers.First != nil && !h.second.promoted }

// Promoted reports whether the region is the first now.
func (h *Observer) Promoted() bool { return h.second.promoted }

// identity is when the log was created. A mirror has the identity of its original, and keeps it for the observer.
func (h *Observer) identity(s *natsmodel.Stream) time.Time {
	if h.servers.First == nil {
		return s.Created()
	}
	return h.created
}

// StepOfFirst notes a step of the plan that the first region is concerned with. Where that loses messages, its streams
// and the mirrors may differ from then on.
func (h *Observer) StepOfFirst(s plan.Step) {
	h.faults[s.Verb]++
	lost := s.Verb == "power-loss" || s.Verb == "leader-change"
	if lost || s.Verb == "events-age" || s.Lasts() && s.Verb != "redis-damage" {
		h.reason = s.Verb
	}
}

// Skipped notes that a mirror could not take over the messages between two: the first region has them no more.
func (h *Observer) Skipped(stream string, after, before uint64) {
	missed := slices.ContainsFunc(h.servers.First.events, func(m oracle.Message) bool {
		id, _ := output(m)
		return stream == Events && after < m.Seq && m.Seq < before && id != ""
	})
	h.second.holes = h.second.holes || stream == Log
	if missed || h.second.holes {
		h.reason = "skipped messages of " + stream
	}
}

// HandsOver notes that a promotion is to lose nothing.
func (h *Observer) HandsOver() { h.second.handover = true }

// Publishes checks what a process publishes: R2.
func (h *Observer) Publishes(subject string) {
	if h.follows() && !strings.HasPrefix(subject, wire.DefaultPrefix.Region("")) &&
		(strings.HasPrefix(subject, string(wire.DefaultPrefix)+".") ||
			strings.HasPrefix(subject, "_INBOX.simulation")) {
		h.Fail("R2", "a process of a region that follows another one publishes %s", subject)
	}
}

// lookAtMirror looks at what became of the log of the second region: R6, R7.
func (h *Observer) lookAtMirror(s *natsmodel.Stream) {
	far := &h.second
	if first := s.FirstSeq(); first > far.first && len(s.Messages()) > 0 {
		if far.first > 0 {
			h.losses.truncated = time.Now()
		}
		state, _ := h.servers.Redis.State()
		if far.first > 0 && h.follows() && state.Offset+1 < first && h.faults["far-flush"] == 0 {
			h.Fail("R6", "the log is truncated up to %d, and the shard has applied it up to %d", first, state.Offset)
		}
		far.first = first
	}
	if far.promoted || s.Mirrors() {
		return
	}
	region, err := wire.ParseRegion(s.Config().Metadata)
	if err != nil {
		h.Fail("R7", "the promoted log has the metadata %v", s.Config().Metadata)
	}
	if len(region.Former) == 0 {
		return // it takes messages from nowhere yet
	}
	far.promoted, far.last = true, s.LastSeq()
	if outputs := h.servers.NATS.Stream(Events); outputs != nil {
		far.events = outputs.LastSeq()
	}
	if f := region.Former[len(region.Former)-1]; f.Last != far.last || f.Events != far.events {
		h.Fail("R7", "the promotion says that the log ended at %d and the events at %d, and they did at %d and %d",
			f.Last, f.Events, far.last, far.events)
	}
	name := func(ms int64) string { return fmt.Sprintf("/%s/%d/collections/", wire.DefaultPrefix, ms) }
	far.former, far.becomes = name(h.created.UnixMilli()), name(region.Identity/int64(time.Millisecond))
	if original := h.servers.First.servers.NATS.Stream(Log); far.handover && h.reason == "" &&
		original.LastSeq() != far.last {
		h.Fail("R7", "a handover leaves the log at %d, and that of the first region ends at %d", far.last,
			original.LastSeq())
	}
	far.mirrored = map[string]bool{}
	// Other messages get the sequences of those that the promotion has lost.
	h.events = slices.DeleteFunc(h.events, func(m oracle.Message) bool {
		id, _ := output(m)
		lost := cause(m) > far.last
		if lost {
			delete(h.stored, h.source()+id)
		} else {
			far.mirrored[id] = true
		}
		return lost
	})
}

// cause is the sequence of the message whose output a message of the stream of events is.
func cause(m oracle.Message) uint64 {
	text := m.Header.Get(wire.HeaderSeq)
	if id := m.Header.Get("ce-id"); id != "" {
		id, _, _ = strings.Cut(id, warning)
		id = strings.TrimSuffix(strings.TrimSuffix(id, "/changed"), "/dropped")
		text = id[strings.LastIndexByte(id, '/')+1:]
	}
	seq, _ := strconv.ParseUint(text, 10, 64)
	return seq
}

// mirroredEvent is an event of a region that follows another one, or did so, as the oracle knows it: that has heard of
// no
// promotion.
func (h *Observer) mirroredEvent(m oracle.Message) oracle.Message {
	far := &h.second
	if h.servers.First == nil {
		return m
	}
	if !far.promoted || m.Seq <= far.events {
		m.At = max(m.At, h.servers.First.model.LogTime())
		return m
	}
	source := m.Header.Get("ce-source")
	if rest, ok := strings.CutPrefix(source, far.becomes); ok && cause(m) > far.last {
		m.Header = maps.Clone(m.Header)
		m.Header["ce-source"] = []string{far.former + rest}
	} else if ok {
		h.Fail("R8", "event %d of message %d names the log %s, and %s has stored that message", m.Seq, cause(m),
			far.becomes, far.former)
	}
	return m
}

// excused are the outputs that the first region had a reason for that a promotion has lost.
func (h *Observer) excused(published []oracle.Message, at wire.Time) map[string]bool {
	all := map[string]bool{}
	if far := &h.second; far.promoted && !far.handover {
		for _, m := range published {
			if m.Seq > far.events {
				continue
			}
			if slices.ContainsFunc(h.model.CompareEvents([]oracle.Message{m}, at),
				func(f oracle.Finding) bool { return f.Kind != oracle.Missing }) {
				id, _ := output(m)
				all[id] = true
			}
		}
	}
	return all
}
