package observer

import (
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink/wire"
)

// Slides notes that a reader gets a version, and that its process is to append a touch. It fails if the version must
// not
// slide: its deadline is absolute, or no more than the part of its time has passed that the collection's slideOnRead
// names.
func (h *Observer) Slides(collection, id string, etag wire.Etag) {
	name := oracle.Name{Collection: collection, ID: id}
	if h.slid[name] == nil {
		h.slid[name] = map[wire.Etag]bool{}
	}
	h.slid[name][etag] = true
	state, _ := h.servers.Redis.State()
	live := h.model.Live(h.model.LogTime())[name]
	behind := max(h.names.written[name], h.names.control[collection]) > state.Offset // a renewal leaves the etag
	if behind || live.Etag != etag || live.ExpiresAt == nil || h.reason != "" {
		return // the reader is behind, or ahead
	}
	now := max(wire.Time(h.servers.RedisClock().UnixMilli()), wire.Time(state.Watermark))
	part := float64(h.model.Config(collection).SlideOnRead)
	if live.End != nil || part == 0 || float64(now-live.Begin) <= part*float64(*live.ExpiresAt-live.Begin) {
		h.Fail("H18", "a read at %s is to renew %s/%s, whose clock began at %s and ends at %s", now, name, etag,
			live.Begin, live.ExpiresAt)
	}
}

// slide checks a write that took effect: if lapse has appended it for a read, the version that it
// replaces is one that was read.
func (h *Observer) slide(m oracle.Message, name oracle.Name) {
	if before := h.names.etag[name]; m.Header.Get(wire.HeaderSlide) != "" && !h.slid[name][before] && h.reason == "" &&
		h.servers.First == nil {
		h.Fail("H18", "message %d renews %s/%s for a read, and nobody has read that version", m.Seq, name, before)
	}
}
