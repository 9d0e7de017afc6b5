package processor

import (
	"github.com/seed18712806/lapse/processor/document"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// docKey names a document.
type docKey struct{ collection, id string }

// version is a document as it stands in the course of a step. Body is nil where it
// is what is stored, and was not read.
type version struct {
	header sink.Header
	body   []byte
}

// slot is what a step knows of a document: what is stored, and what it has become.
type slot struct {
	key    docKey
	stored *sink.Header // nil if nothing is
	now    *version     // nil if nothing is, or nothing is any more
}

// output is something to be said, and what caused it.
type output struct {
	message events.Message
	// seq is the log sequence of the message that caused it; 0 where it was the
	// passing of time, up to the instant at.
	seq uint64
	at  int64
}

// outcome is what became of a message, for who asked.
type outcome struct {
	replyTo string
	seq     uint64
	body    wire.Outcome
}

// decision is what follows from applying messages to documents. It is pure: it
// depends on what it was made with and on the messages, and on no clock.
type decision struct {
	limits    limits
	configs   func(collection string) sink.Config
	docs      map[docKey]*slot
	order     []*slot // in which the documents were first met
	watermark int64

	outputs    []output
	outcomes   []outcome
	rejections int
	expired    int
}

// limits are what a decision goes by beside the rules.
type limits struct {
	prefix     wire.Prefix
	maxBody    int   // of a document
	maxPayload int64 // of what is published
}

func newDecision(l limits, configs func(string) sink.Config, watermark int64) *decision {
	return &decision{limits: l, configs: configs, docs: make(map[docKey]*slot), watermark: watermark}
}

// slot is the place of a document in the decision.
func (d *decision) slot(key docKey) *slot {
	s, ok := d.docs[key]
	if !ok {
		s = &slot{key: key}
		d.docs[key] = s
		d.order = append(d.order, s)
	}
	return s
}

// apply applies a message that is not a configuration or a drop.
func (d *decision) apply(m *message) {
	d.watermark = max(d.watermark, m.at)
	switch m.kind {
	case write:
		d.write(m)
	case malformed:
		d.reject(m, m.rejected)
	}
}

// write applies a write. The expired version that it meets has its say first,
// whatever becomes of the write.
func (d *decision) write(m *message) {
	config := d.configs(m.collection)
	s := d.slot(docKey{m.collection, m.id})
	if s.now != nil {
		if x, ok := config.History.ExpiredAt(s.now.header.Ts, s.now.header.TTL); ok && x.At <= d.watermark {
			d.expire(s.key, *s.now, x)
			s.now = nil
		}
	}
	if r := d.check(m, s.now, config); r != nil {
		d.reject(m, r)
		return
	}
	next := &version{
		header: sink.Header{Ts: d.watermark, Etag: m.seq, TTL: m.ttl, Trace: m.trace},
		body:   m.body,
	}
	status := wire.StatusOK
	if s.now == nil {
		status = wire.StatusCreated
	}
	switch m.op {
	case wire.Touch:
		next.header.TTL, next.body = s.now.header.TTL, s.now.body
	case wire.Patch:
		next.body = document.Merge(s.now.body, m.body)
		if len(next.body) > d.limits.maxBody {
			d.reject(m, refuse(wire.StatusTooLarge, "the patched document has %d bytes: allowed are %d", len(next.body), d.limits.maxBody))
			return
		}
		next.header.TTL = storedTTL(next.body)
	case wire.Delete:
		s.now = nil
		d.done(m, wire.Outcome{Status: wire.StatusNoContent, Ts: wire.Time(d.watermark)})
		return
	}
	s.now = next
	o := wire.Outcome{Status: status, Etag: wire.Etag(m.seq), Ts: wire.Time(d.watermark)}
	if at, expires := ttlrules.Deadline(next.header.Ts, next.header.TTL, config.History.Current()); expires {
		o.ExpiresAt = (*wire.Time)(&at)
	}
	d.done(m, o)
}

// check says why a write takes no effect on the live version (nil if there is
// none), in the order of the contract: what the message and the configuration
// decide, whether the document is there, its etag.
func (d *decision) check(m *message, live *version, config sink.Config) *refusal {
	if m.rejected != nil {
		return m.rejected
	}
	if m.ttlErr != nil && config.History.Current() != ttlrules.Off {
		return refuse(wire.StatusBadRequest, "%v", m.ttlErr)
	}
	switch {
	case m.op == wire.Create && live != nil:
		return refuse(wire.StatusConflict, "the document exists: allowed is to create one that does not")
	case m.op != wire.Create && m.op != wire.Upsert && live == nil:
		return refuse(wire.StatusNotFound, "there is no such document: allowed is to %s one that exists and is not expired", m.op)
	case !m.ifMatch.set:
		return nil
	case live == nil:
		return refuse(wire.StatusPreconditionFailed, "there is no such document, so %s cannot be met", wire.HeaderIfMatch)
	case m.ifMatch.etag != 0 && m.ifMatch.etag != wire.Etag(live.header.Etag):
		return refuse(wire.StatusPreconditionFailed, "the document's etag is %d, and %s says %s", live.header.Etag, wire.HeaderIfMatch, m.ifMatch.etag)
	}
	return nil
}

// storedTTL is the item TTL of a document that may hold anything as its ttl: what
// is not valid counts as absent.
func storedTTL(body []byte) ttlrules.TTL {
	var raw []byte
	for name, value := range document.Members(body) {
		if name == "ttl" {
			raw = value
		}
	}
	ttl, err := ttlrules.ParseTTL(raw)
	if err != nil {
		return ttlrules.Inherit
	}
	return ttl
}

// expire says that a version has expired.
func (d *decision) expire(key docKey, v version, x ttlrules.Expiry) {
	d.expired++
	d.outputs = append(d.outputs, output{
		message: events.Expired(d.limits.prefix, wire.Event{
			ID:         key.id,
			Collection: key.collection,
			Document:   v.body,
			Etag:       wire.Etag(v.header.Etag),
			Ts:         wire.Time(v.header.Ts),
			TTL:        x.TTL,
			ExpiredAt:  wire.Time(x.At),
		}, v.header.Trace, d.limits.maxPayload),
		seq: x.Seq,
		at:  x.At,
	})
}

// reject says that a message takes no effect.
func (d *decision) reject(m *message, r *refusal) {
	d.rejections++
	d.outputs = append(d.outputs, output{
		message: events.Rejected(d.limits.prefix, events.Rejection{
			Subject: m.subject, Rest: m.rest, Seq: m.seq, Code: r.code, Error: r.text, Body: m.body, Trace: m.trace,
		}, d.limits.maxPayload),
		seq: m.seq,
	})
	d.done(m, wire.Outcome{Status: r.code, Ts: wire.Time(d.watermark), Error: r.text})
}

// done tells who asked what became of the message.
func (d *decision) done(m *message, o wire.Outcome) {
	if m.replyTo != "" {
		d.outcomes = append(d.outcomes, outcome{replyTo: m.replyTo, seq: m.seq, body: o})
	}
}

// changes are what becomes of the documents that were met; fresh says that none of
// them was there.
func (d *decision) changes(fresh bool) []sink.CollectionChanges {
	var out []sink.CollectionChanges
	at := make(map[string]int)
	for _, s := range d.order {
		change := sink.Change{ID: s.key.id, Old: s.stored}
		switch {
		case s.now == nil && s.stored == nil:
			continue
		case s.now == nil:
		case s.stored != nil && s.now.header.Etag == s.stored.Etag:
			continue
		default:
			change.New, change.Body = &s.now.header, s.now.body
		}
		i, ok := at[s.key.collection]
		if !ok {
			i = len(out)
			at[s.key.collection] = i
			out = append(out, sink.CollectionChanges{Collection: s.key.collection, NoIndex: d.configs(s.key.collection).NoIndex, Fresh: fresh})
		}
		out[i].Changes = append(out[i].Changes, change)
	}
	return out
}

// configured is the configuration of a collection after a message that asks for
// another, and whether it is one that the current configuration allows.
func configured(c sink.Config, m *message, at int64) (sink.Config, *refusal) {
	want := m.config
	switch {
	case want.noIndex && c.History.Current() != ttlrules.Off:
		return c, refuse(wire.StatusBadRequest, "indexingMode is none, and the collection's defaultTtl is set: allowed is to turn TTL off first (defaultTtl null), as what expires is found by the index")
	case c.NoIndex && want.ttl != ttlrules.Off:
		return c, refuse(wire.StatusBadRequest, "defaultTtl is set, and the collection's indexingMode is none: allowed is to make it consistent first, as what expires is found by the index")
	}
	c.History = c.History.With(at, m.seq, want.ttl)
	c.Building = !want.noIndex && (c.NoIndex || c.Building)
	c.NoIndex = want.noIndex
	return c, nil
}
