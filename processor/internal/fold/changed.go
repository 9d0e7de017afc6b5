package fold

import (
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// changed adds the message about a write that has taken effect on the live version, nil if there was none,
// and leaves the next, nil if it leaves none. The document is left out where it is left out of events, and of a
// touch, which leaves it as it is: a few bytes of a client would become a large message otherwise.
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
		c.Etag, c.Ts = wire.Etag(next.Header.Etag), wire.Time(next.Header.Ts)
		c.ExpiresAt, trace = expiresAt(next.Header, config), next.Header.Trace
		c.Unchanged = m.Op == wire.Touch
		if c.Omitted = c.Unchanged || config.NoEventBody(); !c.Omitted {
			c.Document = next.body()
		}
	}
	d.outputBytes += len(c.Document)
	d.Outputs = append(d.Outputs, Output{Message: events.Changed(d.limits.Log, kind, m.Seq, c, wire.Time(d.Watermark), trace), Seq: m.Seq})
}

// tells reports whether a message about a touch that lapse has appended for a read is published. In each TTL it is that
// about the first one, so that reads do not fill the stream of events.
func tells(live, next store.Header, config store.Config, at int64) bool {
	deadline, expires := next.Clock().Deadline(config.History.Current())
	length := max(deadline-at, 1)
	return !expires || live.Clock().Begin()/length < at/length
}

// Full reports whether the step has to end: its outputs have so many bytes, or its patches have parsed so many beside
// one document. A patch and a touch are short, and their documents are not. All patches of the one document that is
// largest are merged in a step, as they parse it once. Or it changes so many entries of property indexes. The next
// message finds a new band in the configuration.
func (d *Decision) Full() bool {
	return d.outputBytes >= BatchBytes || d.parsed-d.largest >= parseBytes || d.entries >= entriesAtOnce || d.banded != nil
}

// Dropped adds the message about a drop of a collection whose changes are published.
func (d *Decision) Dropped(m *Message) {
	c := wire.Change{Collection: m.Collection, Ts: wire.Time(d.Watermark)}
	d.Outputs = append(d.Outputs, Output{Message: events.Changed(d.limits.Log, wire.TypeDropped, m.Seq, c, c.Ts, m.Trace), Seq: m.Seq})
}
