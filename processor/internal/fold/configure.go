package fold

import (
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Answer decides the answer to the client that has published a configuration or a drop.
func (d *Decision) Answer(m *Message, rejected *Refusal) {
	switch {
	case rejected != nil:
		d.Reject(m, rejected)
	case m.Kind == Drop:
		d.done(m, wire.Outcome{Status: wire.StatusNoContent, Ts: wire.Time(d.Watermark)})
	default:
		d.done(m, wire.Outcome{Status: wire.StatusOK, Etag: wire.Etag(m.Etag()), Ts: wire.Time(d.Watermark)})
	}
}

// Configured is the configuration of a collection after a message that asks for another,
// or drops the collection; or why the message takes no effect. The order of its checks is
// that of a write. Every partition comes to the same result: that depends on the message
// and on the present configuration, and not on how much of its history is left.
func Configured(c store.Config, m *Message, at int64) (store.Config, *Refusal) {
	want := m.Config
	switch {
	case m.Kind == Malformed: // of the stream of configurations
		return c, m.Rejected
	case m.Kind == Drop:
	case want.NoIndex && c.History.Current() != ttlrules.Off:
		return c, Refuse(wire.StatusBadRequest, "indexingMode %q is not allowed while the collection's defaultTtl is set, because documents expire by the index: turn TTL off first, with defaultTtl null.", wire.NoIndex)
	case c.NoIndex && want.TTL != ttlrules.Off:
		return c, Refuse(wire.StatusBadRequest, "a defaultTtl is not allowed while the collection's indexingMode is %q, because documents expire by the index: set indexingMode to %q first.", wire.NoIndex, wire.Consistent)
	}
	switch {
	case !m.IfMatch.Set:
	case c.Etag == 0:
		return c, Refuse(wire.StatusPreconditionFailed, "the collection is not configured, and header %s needs a configuration: leave the header out.", wire.HeaderIfMatch)
	case m.IfMatch.Etag != 0 && m.IfMatch.Etag != wire.Etag(c.Etag):
		return c, Refuse(wire.StatusPreconditionFailed, "the configuration's etag is %d, and header %s is %s: read the configuration again, and use the etag that it has.", c.Etag, wire.HeaderIfMatch, m.IfMatch.Etag)
	}
	if m.Kind == Drop {
		return store.Config{}, nil
	}
	c.History = c.History.With(at, m.Seq, want.TTL)
	c.Building = !want.NoIndex && (c.NoIndex || c.Building)
	c.NoIndex, c.Lazy = want.NoIndex, want.Lazy
	c.Etag = m.Etag()
	return c, nil
}
