package fold

import (
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Output is an event or a rejection to be published, and its cause.
type Output struct {
	Message events.Message
	// Seq is the log sequence of the message that caused it. It is 0 where the passing
	// of time caused it, up to the instant At.
	Seq   uint64
	At    int64
	Warns bool // it is a warning
}

// Rejection is that of the message with a sequence.
type Rejection struct {
	Seq  uint64
	Code int
}

// Outcome is the answer to the client that has published a message.
type Outcome struct {
	ReplyTo  string
	Position // of the message
	Body     wire.Outcome
}

// expire adds the expiry event of a version, and before it the warnings that were not published yet. It
// goes without the document where the collection's configuration says so. If the version has a target, its
// event is the message to that, whose body is the document in any case. The caller tells the cause of the output.
func (d *Decision) expire(key Key, v *Version, x ttlrules.Expiry, o Output) {
	d.leaves(key, v, x.At)
	d.Expired++
	event := wire.Event{
		ID:         key.ID,
		Collection: CollectionName(key.Collection),
		Document:   v.body(),
		Etag:       wire.Etag(v.Header.Etag),
		Ts:         wire.Time(v.Header.Ts),
		TTL:        x.TTL,
		ExpiredAt:  wire.Time(x.At),
	}
	if v.Header.Target != "" {
		o.Message = events.Due(d.limits.Log, v.Header.Target, event, v.Header.Trace)
	} else {
		event.Document, event.Omitted = d.document(key, v, x)
		o.Message = events.Expired(d.limits.Log, event, v.Header.Trace)
	}
	d.outputBytes += len(event.Document)
	d.Outputs = append(d.Outputs, o)
}

// document is the document of an event or a warning; or omitted reports that the collection's
// configuration, as it was at that instant, leaves it out.
func (d *Decision) document(key Key, v *Version, x ttlrules.Expiry) (body []byte, omitted bool) {
	if d.catalog.Config(key.Collection).OmitsDocument(x) {
		return nil, true
	}
	return v.body(), false
}

// Reject adds the rejection of a message, which takes no effect. There is none of a touch that lapse
// has appended for a read, if the document has been changed or is gone since.
func (d *Decision) Reject(m *Message, r *Refusal) {
	if !m.Slide || m.Rejected != nil {
		d.Rejections = append(d.Rejections, Rejection{m.Seq, r.Code})
		d.Outputs = append(d.Outputs, Output{
			Message: events.Rejected(d.limits.Log, events.Rejection{
				Subject: m.Subject, Rest: m.Rest, Seq: m.Seq, Ts: m.Stamp / 1e6, Code: r.Code, Error: r.Text,
				Reason: r.Reason, Body: m.Body, Trace: m.Trace,
			}),
			Seq: m.Seq,
		})
	}
	d.done(m, wire.Outcome{Status: r.Code, Ts: wire.Time(d.Watermark), Error: r.Text, Reason: r.Reason})
}

// done adds the outcome of a message, if its client has asked for it.
func (d *Decision) done(m *Message, o wire.Outcome) {
	if m.ReplyTo != "" {
		d.Outcomes = append(d.Outcomes, Outcome{ReplyTo: m.ReplyTo, Position: m.Position, Body: o})
	}
}

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
	d.Outputs = append(d.Outputs, Output{Message: events.Changed(d.limits.Log, kind, m.Seq, c, wire.Time(d.Watermark),
		trace), Seq: m.Seq})
}

// tells reports whether a message about a touch that lapse has appended for a read is published. In each TTL it is that
// about the first one, so that reads do not fill the stream of events.
func tells(live, next store.Header, config store.Config, at int64) bool {
	deadline, expires := next.Clock().Deadline(config.History.Current())
	length := max(deadline-at, 1)
	return !expires || live.Clock().Begin()/length < at/length
}

// Dropped adds the message about a drop of a collection whose changes are published.
func (d *Decision) Dropped(m *Message) {
	c := wire.Change{Collection: m.Collection, Ts: wire.Time(d.Watermark)}
	d.Outputs = append(d.Outputs, Output{Message: events.Changed(d.limits.Log, wire.TypeDropped, m.Seq, c, c.Ts,
		m.Trace), Seq: m.Seq})
}
