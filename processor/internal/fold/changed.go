package fold

import (
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// changed adds the message about a write that has taken effect on the live version, nil if there was none,
// and leaves the next, nil if it leaves none. The document is left out where it is left out of events.
func (d *Decision) changed(m *Message, live, next *Version, config store.Config) {
	kind, c := wire.TypeUpdated, wire.Change{ID: m.ID, Collection: m.Collection, Ts: wire.Time(d.Watermark)}
	switch {
	case next == nil:
		kind = wire.TypeDeleted
	case live == nil:
		kind = wire.TypeCreated
	}
	trace := m.Trace
	if next != nil {
		c.Etag, c.ExpiresAt, trace = wire.Etag(m.Seq), expiresAt(next.Header, config), next.Header.Trace
		if c.Omitted = config.NoEventBody(); !c.Omitted {
			c.Document = next.body()
		}
	}
	d.outputBytes += len(c.Document)
	d.Outputs = append(d.Outputs, Output{Message: events.Changed(d.limits.Log, kind, m.Seq, c, trace), Seq: m.Seq})
}

// Full reports whether the step has to end: its outputs have so many bytes, or its patches have parsed so many
// beside one document. A patch and a touch are short, and their documents are not. All patches of the one
// document that is largest are merged in a step, as they parse it once. The next message finds a new band in the
// configuration.
func (d *Decision) Full() bool {
	return d.outputBytes >= BatchBytes || d.parsed-d.largest >= parseBytes || d.banded != nil
}

// Dropped adds the message about a drop of a collection whose changes are published.
func (d *Decision) Dropped(m *Message) {
	c := wire.Change{Collection: m.Collection, Ts: wire.Time(d.Watermark)}
	d.Outputs = append(d.Outputs, Output{Message: events.Changed(d.limits.Log, wire.TypeDropped, m.Seq, c, m.Trace), Seq: m.Seq})
}
