package observer

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// ReadAll checks what readers get now.
func (h *Observer) ReadAll() {
	if h.reason == "" || h.servers.First != nil {
		h.ReadFinally()
	}
}

// ReadFinally is ReadAll at the end, also where the log has lost something and lapse goes on.
func (h *Observer) ReadFinally() {
	if h.servers.NATS.Stream(Log) == nil || h.second.holes || h.servers.First != nil && h.reason != "" &&
		h.faults["far-flush"] > 0 {
		return
	}
	h.checkIndexes()
	live := h.model.Live(h.model.LogTime())
	now := wire.Time(h.servers.RedisClock().UnixMilli())
	for name := range h.names.written {
		h.readOne(name, live[name], now)
	}
}

// Unreadable is why a document cannot be read; nil if all can, or if lapse may refuse to go on.
func (h *Observer) Unreadable() error {
	if h.reason != "" {
		return nil
	}
	for name := range h.names.written {
		if _, err := h.servers.Redis.Get(name.Collection, name.ID); err != nil && !errors.Is(err, sink.ErrNotFound) {
			return err
		}
	}
	return nil
}

// readOne checks what a reader gets of one document, when Redis's clock shows now. live is
// the version that log time has left.
func (h *Observer) readOne(name oracle.Name, live oracle.Live, now wire.Time) {
	state, ok := h.servers.Redis.State()
	if !ok {
		return
	}
	now = max(now, wire.Time(state.Watermark))
	document, err := h.servers.Redis.Get(name.Collection, name.ID)
	if err != nil && !errors.Is(err, sink.ErrNotFound) {
		return
	}
	if h.reason == "" && state.Offset < h.losses.rebuilt {
		h.Fail("H6", "a reader at offset %d gets an answer for %s, and had one up to %d before the shard was "+
			"cleared or lost", state.Offset, name, h.losses.rebuilt)
	}
	got := wire.Etag(document.Header.Etag)
	id := fmt.Sprint(name, "/", got)
	if got != 0 && !h.follows() && !h.second.mirrored[id] && h.stored[h.source()+id] && h.sure() {
		h.Fail("H4", "a reader gets %s, and its event is stored", id)
	}
	decided := h.names.control[name.Collection] <= state.Offset // nothing is to come that changes deadlines
	held, isHeld := h.model.Held(name)                          // it has expired, in a paused collection
	e, ok := h.expired[id]
	if isHeld && held.ID() == id {
		e, ok = held, true
	}
	if ok && e.ExpiredAt <= now && decided {
		h.Fail("H5", "a reader gets %s at %s, and it has expired at %s", id, now, e.ExpiredAt)
	}
	expired := max(h.names.expired[name], held.ExpiredAt)
	if max(h.names.written[name], h.names.control[name.Collection]) > state.Offset || expired > now {
		return // or log time is ahead of the reader's
	}
	want := live.Etag
	if live.ExpiresAt != nil && *live.ExpiresAt <= now {
		want = 0
	}
	if got != want {
		h.Fail("H6", "at %s a reader at offset %d gets version %s of %s, and the oracle has %s", now, state.Offset, got,
			name, want)
	}
}

// SetBack notes that Redis's clock is set back.
func (h *Observer) SetBack(known time.Duration) { h.losses.unsure = time.Now().Add(known) }

// Damaged notes that the shard loses something.
func (h *Observer) Damaged() { h.losses.damaged = true }
