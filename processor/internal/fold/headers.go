package fold

import (
	"fmt"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Asked is what the headers of a write ask of the clock of its version, and what its body says of the ttl.
type Asked struct {
	ExpiresAt *wire.Time // the absolute deadline; nil if there is none
	NotAfter  *wire.Time // the limit of the ttl; nil if there is none
	Keep      bool       // the clock of the live version
	Begin     *wire.Time // where the clock begins; nil if the message does not say
	Created   *wire.Time // when the document was created, before Begin; nil if the message does not say
	NamesTTL  bool       // the body has a ttl, perhaps null
}

// The operations that may have the headers, Lapse-Clock with keep or with an instant.
var (
	expiresAtOps = []wire.Op{wire.Upsert, wire.Create, wire.Replace, wire.Patch, wire.Touch}
	notAfterOps  = []wire.Op{wire.Upsert, wire.Create, wire.Replace}
	keepOps      = []wire.Op{wire.Upsert, wire.Replace, wire.Patch}
	beginOps     = expiresAtOps
)

// readClock reads the values of the headers Lapse-Expires-At, Lapse-Not-After and Lapse-Clock.
func (m *Message) readClock(values map[string][]string) (r *Refusal) {
	if m.Clock.ExpiresAt, r = m.instant(wire.HeaderExpiresAt, values, expiresAtOps); r != nil {
		return r
	}
	if m.Clock.NotAfter, r = m.instant(wire.HeaderNotAfter, values, notAfterOps); r != nil {
		return r
	}
	if m.Clock.ExpiresAt != nil && m.Clock.NotAfter != nil {
		return badRequest("headers %s and %s exclude each other: the first is in place of a ttl, and the second "+
			"limits one. Send one of them.", wire.HeaderExpiresAt, wire.HeaderNotAfter)
	}
	return m.readBegin(values[wire.HeaderClock])
}

// readBegin reads the values of the header Lapse-Clock.
func (m *Message) readBegin(clocks []string) *Refusal {
	if len(clocks) == 1 && clocks[0] == wire.ClockKeep {
		m.Clock.Keep = true
		return m.takes(wire.HeaderClock+": "+wire.ClockKeep, clocks, keepOps)
	}
	if r := m.takes(wire.HeaderClock, clocks, beginOps); r != nil || len(clocks) == 0 {
		return r
	}
	at, created, err := wire.ParseClock(clocks[0])
	switch {
	case err != nil && strings.Contains(clocks[0], ";"):
		return badRequest("header %s is %s: behind an instant as in RFC 3339 may be when the document was created, "+
			"not after that, as in 2026-01-31T18:00:00Z; created=2026-01-31T09:00:00Z.", wire.HeaderClock,
			wire.Quote(clocks[0]))
	case err != nil:
		return badRequest("header %s is %s: use %s, or an instant as in RFC 3339 that is not after the write's "+
			"stamp, such as 2026-01-31T18:00:00Z, or leave it out.", wire.HeaderClock, wire.Quote(clocks[0]),
			wire.ClockKeep)
	}
	m.Clock.Begin = &at
	if created != 0 {
		m.Clock.Created = &created
	}
	return nil
}

// instant reads the values of a header that is an instant; nil if there are none.
func (m *Message) instant(header string, all map[string][]string, ops []wire.Op) (*wire.Time, *Refusal) {
	values := all[header]
	if r := m.takes(header, values, ops); r != nil || len(values) == 0 {
		return nil, r
	}
	at, err := wire.ParseInstant(values[0])
	if err != nil {
		return nil, badRequest("header %s is %s: use an instant as in RFC 3339, such as 2030-01-31T18:00:00Z.", header,
			wire.Quote(values[0]))
	}
	return &at, nil
}

// takes refuses a header that is there several times, or has no meaning on the message.
func (m *Message) takes(header string, values []string, ops []wire.Op) *Refusal {
	switch {
	case len(values) == 0:
		return nil
	case len(values) > 1:
		return badRequest(severalTimes, header, len(values))
	case m.Kind == Write && slices.Contains(ops, m.Op):
		return nil
	}
	what := string(m.Op)
	switch m.Kind {
	case Configure:
		what = "configuration"
	case Drop:
		what = "drop"
	}
	return badRequest("header %s has no meaning on a %s: it is only allowed on %s.", header, what, allOf(ops))
}

// checkClock returns why the ttl or the instant of a message is not allowed in a
// collection, for a version that is written at an instant.
func checkClock(m *Message, config store.Config, at int64) *Refusal {
	if begin := m.Clock.Begin; begin != nil && (*begin < 1 || int64(*begin) > at) {
		return badRequest("header %s is %s, and the write's stamp is %s: use an instant that is not after the "+
			"stamp, and after 1970.", wire.HeaderClock, *begin, wire.Time(at))
	}
	if config.History.Current() == ttlrules.Off {
		return nil // nobody interprets the others
	}
	if m.TTLErr != nil {
		return badRequest("%v", m.TTLErr)
	}
	if err := m.Clock.inRange(at); err != nil {
		return badRequest("%v", err)
	}
	low, high := config.MinTTL, config.MaxTTL
	if low == 0 && high == 0 || m.Clock.ExpiresAt == nil && m.TTL == ttlrules.Inherit {
		return nil // the default keeps to the limits, and existing documents are left as they are
	}
	what, length := fmt.Sprintf("ttl %d", m.TTL), 1000*int64(m.TTL)
	if m.Clock.ExpiresAt != nil {
		from, name := m.Clock.from(at)
		length = int64(*m.Clock.ExpiresAt) - from
		what = fmt.Sprintf("header %s is %s, which is %d ms after %s %s: that", wire.HeaderExpiresAt,
			*m.Clock.ExpiresAt, length, name, wire.Time(from))
	}
	never := m.Clock.ExpiresAt == nil && m.TTL == ttlrules.Never
	switch {
	case high != 0 && (never || length > 1000*int64(high)):
		return badRequest("%s is longer than collection %s allows: use at most its maxTtl, which is %d s.", what,
			m.Collection, high)
	case low != 0 && !never && length < 1000*int64(low):
		return badRequest("%s is shorter than collection %s allows: use at least its minTtl, which is %d s.", what,
			m.Collection, low)
	}
	return nil
}

// from is where the clock of a new version begins that is written at an instant, and what that is.
func (a Asked) from(at int64) (from int64, name string) {
	if a.Begin != nil {
		return int64(*a.Begin), wire.HeaderClock
	}
	return at, "the write's stamp"
}

// inRange returns an error unless the absolute deadline or the limit lies at most MaxSeconds after the beginning of the
// clock. It has to be after the write's stamp too, unless the write says where the clock begins: such a write brings
// over a version, which may be over by now.
func (a Asked) inRange(at int64) error {
	header, named := wire.HeaderExpiresAt, a.ExpiresAt
	if a.NotAfter != nil {
		header, named = wire.HeaderNotAfter, a.NotAfter
	}
	if named == nil {
		return nil
	}
	from, name := a.from(at)
	switch far := int64(*named)-from > ttlrules.MaxSeconds*1000; {
	case a.Begin == nil && (far || int64(*named) <= at):
		return bad("header %s is %s, and %s is %s: use an instant after the stamp, and at most %d s after it.", header,
			*named, name, wire.Time(at), ttlrules.MaxSeconds)
	case far || *named < 1:
		return bad("header %s is %s, and %s is %s: use an instant at most %d s after that, and after 1970.", header,
			*named, name, wire.Time(from), ttlrules.MaxSeconds)
	}
	return nil
}

// checkLimited refuses what a document with a NotAfter does not allow. Its limit stays, so that a client that may only
// patch and touch cannot move it. Where a patch takes the ttl away, it is the deadline, and has to keep to maxTtl.
func checkLimited(m *Message, live *Version, h store.Header, config store.Config) *Refusal {
	if (m.Op == wire.Touch || m.Op == wire.Patch) && m.Clock.ExpiresAt != nil && live.Header.NotAfter != 0 {
		return badRequest("the document has a %s, %s, which a %s keeps: send it without %s, or upsert or replace "+
			"the document.", wire.HeaderNotAfter, wire.Time(live.Header.NotAfter), m.Op, wire.HeaderExpiresAt)
	}
	from, _ := m.Clock.from(h.Ts)
	named := m.Clock.NamesTTL || m.Clock.NotAfter != nil
	if !named || h.NotAfter == 0 || h.TTL > 0 || config.MaxTTL == 0 || h.NotAfter-from <= 1000*int64(config.MaxTTL) {
		return nil
	}
	return badRequest("without a ttl the document would live until its %s, %s, which is longer than collection %s "+
		"allows: give it a ttl of at most its maxTtl, which is %d s.", wire.HeaderNotAfter, wire.Time(h.NotAfter),
		m.Collection, config.MaxTTL)
}

// header is the header of the version that a message writes at an instant in place of a live
// one; nil if there is none. A touch and a patch keep what belongs to the document.
func (m *Message) header(live *Version, config store.Config, at int64) store.Header {
	if m.Slide {
		return slid(live.Header, config, at)
	}
	h := store.Header{Ts: at, Etag: m.Seq, TTL: m.TTL, Target: m.Target, Trace: m.Trace}
	if m.Op == wire.Touch || m.Op == wire.Patch {
		h.Target = live.Header.Target
		if !m.Clock.NamesTTL {
			h.TTL = ownTTL(live.Header)
		}
	}
	if h.Target != "" {
		h.Trace = traceBeside(h.Trace)
	}
	switch {
	case m.Clock.ExpiresAt != nil: // there is no NotAfter: see checkLimited
		if m.Clock.inRange(at) == nil { // else TTL is off, and it counts as absent
			h.Absolute = int64(*m.Clock.ExpiresAt)
		}
	case m.Clock.NotAfter != nil:
		if m.Clock.inRange(at) == nil {
			h.NotAfter = int64(*m.Clock.NotAfter)
		}
	case m.Op == wire.Patch && m.Clock.NamesTTL:
		h.NotAfter = live.Header.NotAfter
	case m.Op == wire.Touch, m.Op == wire.Patch:
		h.Absolute, h.NotAfter = live.Header.Absolute, live.Header.NotAfter
	}
	begin, _ := m.Clock.from(at)
	if m.Clock.Keep && live != nil {
		begin = live.Header.Clock().Begin()
	}
	if begin < at {
		h.Kept = begin
	}
	if m.Clock.Created != nil {
		h.Created = int64(*m.Clock.Created)
	}
	var was *store.Header
	if live != nil {
		was = &live.Header
	}
	return config.Live(h, was, at)
}

// slid is the header of a version after a read has renewed its clock at an instant. It is still the version of its last
// write, with its etag: a client that has read it can write on the condition that nobody else has.
func slid(live store.Header, config store.Config, at int64) store.Header {
	h := live
	h.SetClock(h.Clock().Slid(at))
	h.TTL, h.ByDefault, h.Limit = ownTTL(live), false, 0
	return config.Live(h, &live, at)
}

// ownTTL is the TTL that the document itself has.
func ownTTL(h store.Header) ttlrules.TTL {
	if h.ByDefault {
		return ttlrules.Inherit
	}
	return h.TTL
}

// checkSlide refuses the renewal for a read that would move no deadline.
func checkSlide(live, next store.Header, config store.Config) *Refusal {
	before, expires := live.Clock().Deadline(config.History.Current())
	after, _ := next.Clock().Deadline(config.History.Current())
	if expires && after != before {
		return nil
	}
	return Refuse(wire.StatusConflict, "a read does not move the deadline of this document: touch it, or leave it.")
}

// targetOps are the operations that may have the header Lapse-Target.
var targetOps = []wire.Op{wire.Upsert, wire.Create, wire.Replace}

// readTarget reads the values of the header Lapse-Target.
func (m *Message) readTarget(values []string) *Refusal {
	if r := m.takes(wire.HeaderTarget, values, targetOps); r != nil || len(values) == 0 {
		return r
	}
	if err := wire.CheckTarget(values[0]); err != nil {
		return badRequest("header %s: %v", wire.HeaderTarget, err)
	}
	m.Target = values[0]
	return nil
}

// undeliverable refuses a message to a target in a collection in which nothing expires.
func undeliverable(m *Message, config store.Config) *Refusal {
	if m.Target == "" || config.History.Current() != ttlrules.Off {
		return nil
	}
	r := Refuse(wire.StatusConflict, "TTL is off in collection %s, so nothing can ever be delivered to %s: %s.",
		m.Collection, m.Target, turnOn(m.Collection, config))
	r.Reason = wire.ReasonUndeliverable
	return r
}

// undelivered warns that a message to a target has no time: its document never expires.
func undelivered(m *Message) string {
	return fmt.Sprintf("this document never expires, so nothing is delivered to %s: give it a ttl, or a deadline in "+
		"the header %s.", m.Target, wire.HeaderExpiresAt)
}

// traceBeside is a traceparent as it is stored beside a target, where a long one has no room. Only a version after 00
// is long. Its beginning is as in version 00, which the W3C has a program write that does not know the version.
func traceBeside(trace string) string {
	const length = 55 // of version 00
	if len(trace) <= store.MaxTraceWithTarget {
		return trace
	}
	return "00" + trace[2:length]
}
