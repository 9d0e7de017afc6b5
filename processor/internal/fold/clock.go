package fold

import (
	"fmt"
	"slices"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Asked is what the headers of a write ask of the clock of its version, and what its body
// says of the ttl.
type Asked struct {
	ExpiresAt *wire.Time // the absolute deadline; nil if there is none
	NotAfter  *wire.Time // the limit of the ttl; nil if there is none
	Keep      bool       // the clock of the live version
	NamesTTL  bool       // the body has a ttl, perhaps null
}

// expiresAtOps and clockOps are the operations that may have the headers.
var (
	expiresAtOps = []wire.Op{wire.Upsert, wire.Create, wire.Replace, wire.Patch, wire.Touch}
	notAfterOps  = []wire.Op{wire.Upsert, wire.Create, wire.Replace}
	clockOps     = []wire.Op{wire.Upsert, wire.Replace, wire.Patch}
)

// readClock reads the values of the headers Lapse-Expires-At, Lapse-Not-After and Lapse-Clock.
func (m *Message) readClock(deadlines, limits, clocks []string) (r *Refusal) {
	if m.Clock.ExpiresAt, r = m.instant(wire.HeaderExpiresAt, deadlines, expiresAtOps); r != nil {
		return r
	}
	if m.Clock.NotAfter, r = m.instant(wire.HeaderNotAfter, limits, notAfterOps); r != nil {
		return r
	}
	if m.Clock.ExpiresAt != nil && m.Clock.NotAfter != nil {
		return Refuse(wire.StatusBadRequest, "headers %s and %s exclude each other: the first is in place of a ttl, and the second limits one. Send one of them.", wire.HeaderExpiresAt, wire.HeaderNotAfter)
	}
	if r := m.takes(wire.HeaderClock, clocks, clockOps); r != nil {
		return r
	}
	if len(clocks) > 0 {
		if clocks[0] != wire.ClockKeep {
			return Refuse(wire.StatusBadRequest, "header %s is %s: use %s, or leave it out.", wire.HeaderClock, wire.Quote(clocks[0]), wire.ClockKeep)
		}
		m.Clock.Keep = true
	}
	return nil
}

// instant reads the values of a header that is an instant; nil if there are none.
func (m *Message) instant(header string, values []string, ops []wire.Op) (*wire.Time, *Refusal) {
	if r := m.takes(header, values, ops); r != nil || len(values) == 0 {
		return nil, r
	}
	at, err := wire.ParseInstant(values[0])
	if err != nil {
		return nil, Refuse(wire.StatusBadRequest, "header %s is %s: use an instant as in RFC 3339, such as 2030-01-31T18:00:00Z.", header, wire.Quote(values[0]))
	}
	return &at, nil
}

// takes refuses a header that is there several times, or has no meaning on the message.
func (m *Message) takes(header string, values []string, ops []wire.Op) *Refusal {
	switch {
	case len(values) == 0:
		return nil
	case len(values) > 1:
		return Refuse(wire.StatusBadRequest, severalTimes, header, len(values))
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
	return Refuse(wire.StatusBadRequest, "header %s has no meaning on a %s: it is only allowed on %s.", header, what, allOf(ops))
}

// checkClock returns why the ttl or the instant of a message is not allowed in a
// collection, for a version that is written at an instant.
func checkClock(m *Message, config store.Config, at int64) *Refusal {
	if config.History.Current() == ttlrules.Off {
		return nil // nobody interprets them
	}
	if m.TTLErr != nil {
		return Refuse(wire.StatusBadRequest, "%v", m.TTLErr)
	}
	if err := m.Clock.inRange(at); err != nil {
		return Refuse(wire.StatusBadRequest, "%v", err)
	}
	low, high := config.MinTTL, config.MaxTTL
	if low == 0 && high == 0 || m.Clock.ExpiresAt == nil && m.TTL == ttlrules.Inherit {
		return nil // the default keeps to the limits, and existing documents are left as they are
	}
	what, length := fmt.Sprintf("ttl %d", m.TTL), 1000*int64(m.TTL)
	if m.Clock.ExpiresAt != nil {
		length = int64(*m.Clock.ExpiresAt) - at
		what = fmt.Sprintf("header %s is %s, which is %d ms after the write's stamp %s: that", wire.HeaderExpiresAt, *m.Clock.ExpiresAt, length, wire.Time(at))
	}
	never := m.Clock.ExpiresAt == nil && m.TTL == ttlrules.Never
	switch {
	case high != 0 && (never || length > 1000*int64(high)):
		return Refuse(wire.StatusBadRequest, "%s is longer than collection %s allows: use at most its maxTtl, which is %d s.", what, m.Collection, high)
	case low != 0 && !never && length < 1000*int64(low):
		return Refuse(wire.StatusBadRequest, "%s is shorter than collection %s allows: use at least its minTtl, which is %d s.", what, m.Collection, low)
	}
	return nil
}

// inRange returns an error unless the absolute deadline or the limit lies at most MaxSeconds after an
// instant.
func (a Asked) inRange(at int64) error {
	header, named := wire.HeaderExpiresAt, a.ExpiresAt
	if a.NotAfter != nil {
		header, named = wire.HeaderNotAfter, a.NotAfter
	}
	if named == nil || int64(*named) > at && int64(*named)-at <= ttlrules.MaxSeconds*1000 {
		return nil
	}
	return bad("header %s is %s, and the write's stamp is %s: use an instant after the stamp, and at most %d s after it.", header, *named, wire.Time(at), ttlrules.MaxSeconds)
}

// checkLimited refuses what a document with a NotAfter does not allow. Its limit stays, so that a client
// that may only patch and touch cannot move it. Where a patch takes the ttl away, it is the deadline, and
// has to keep to maxTtl.
func checkLimited(m *Message, live *Version, h store.Header, config store.Config) *Refusal {
	if (m.Op == wire.Touch || m.Op == wire.Patch) && m.Clock.ExpiresAt != nil && live.Header.NotAfter != 0 {
		return Refuse(wire.StatusBadRequest, "the document has a %s, %s, which a %s keeps: send it without %s, or upsert or replace the document.", wire.HeaderNotAfter, wire.Time(live.Header.NotAfter), m.Op, wire.HeaderExpiresAt)
	}
	if !m.Clock.NamesTTL || h.NotAfter == 0 || h.TTL > 0 || config.MaxTTL == 0 || h.NotAfter-h.Ts <= 1000*int64(config.MaxTTL) {
		return nil
	}
	return Refuse(wire.StatusBadRequest, "without a ttl the document would live until its %s, %s, which is longer than collection %s allows: give it a ttl of at most its maxTtl, which is %d s.", wire.HeaderNotAfter, wire.Time(h.NotAfter), m.Collection, config.MaxTTL)
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
	if m.Clock.Keep && live != nil {
		if begin := live.Header.Clock().Begin(); begin < at {
			h.Kept = begin
		}
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
