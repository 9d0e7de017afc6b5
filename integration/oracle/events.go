package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/integration/oracle/patch"
	"github.com/seed18712806/lapse/sink/wire"
)

// expected holds the events that may exist at an instant.
type expected struct {
	expiries   map[string]Expiry    // by ce-id: the log has reached the deadline
	dueOnly    map[string]Expiry    // by ce-id: due by the clock, but the log has not reached the deadline
	rejections map[uint64]Rejection // by sequence

	changes map[string]Change // by ce-id

	warnings, warningsDue map[string]Warning // as expiries and dueOnly
}

// expected returns what lapse may have published by an instant.
func (m *Model) expected(at wire.Time) expected {
	want := expected{expiries: map[string]Expiry{}, dueOnly: map[string]Expiry{}, rejections: map[uint64]Rejection{},
		changes: map[string]Change{}, warnings: map[string]Warning{}, warningsDue: map[string]Warning{}}
	for _, e := range m.Expiries {
		want.expiries[e.ID()] = e
	}
	for _, e := range m.toPublish(max(at, m.now)) {
		if e.ExpiredAt <= m.now { // the last message itself made it so
			want.expiries[e.ID()] = e
		} else {
			want.dueOnly[e.ID()] = e
		}
	}
	for _, r := range m.Rejections {
		want.rejections[r.Seq] = r
	}
	for _, c := range m.Changes {
		want.changes[c.ID()] = c
	}
	for _, w := range m.Warnings {
		want.warnings[w.ID()] = w
	}
	for _, w := range m.warningsDue(max(at, m.now)) {
		want.warningsDue[w.ID()] = w
	}
	return want
}

// CompareEvents compares the events stream with the model. Every expiration that is due
// at the instant at must have its event, and so must every rejection. There must be no
// other event, none twice, none early, and none out of order. The caller must have
// applied the log as it was after it read the events.
func (m *Model) CompareEvents(events []Message, at wire.Time) Diff {
	var d Diff
	want := m.expected(at)
	prefix := string(m.set.Prefix)
	seen := map[string]uint64{} // the sequence of each event in the stream
	for _, msg := range events {
		switch {
		case m.lost(msg):
		case strings.HasPrefix(msg.Subject, prefix+".expired."), strings.HasPrefix(msg.Subject, prefix+".due."):
			m.compareExpiry(&d, want, msg, seen)
		case strings.HasPrefix(msg.Subject, prefix+".expiring."):
			m.compareWarning(&d, want, msg, seen)
		case strings.HasPrefix(msg.Subject, prefix+".changed."):
			m.compareChange(&d, want, msg, seen)
		case strings.HasPrefix(msg.Subject, prefix+".rejected."):
			m.compareRejection(&d, want, msg, seen)
		default:
			d.add(Unexpected, "event %d: subject %s", msg.Seq, msg.Subject)
		}
	}

	for id, e := range want.expiries {
		if _, there := seen[expiryOf(id)]; !there && e.ExpiredAt <= at {
			d.add(Missing, "expiry of %s, expired at %s", id, e.ExpiredAt)
		}
	}
	for id, e := range want.dueOnly {
		if _, there := seen[expiryOf(id)]; !there {
			d.add(Missing, "expiry of %s, expired at %s; the log has not reached that instant (a tick is missing)", id,
				e.ExpiredAt)
		}
	}
	for seq, r := range want.rejections {
		if _, there := seen[rejectionOf(seq)]; !there {
			d.add(Missing, "rejection of message %d (%s), code %v", seq, r.Subject, r.Codes)
		}
	}
	for id := range want.changes {
		if _, there := seen[changeOf(id)]; !there {
			d.add(Missing, "change %s", id)
		}
	}
	d.compareWarnings(want, seen)
	compareOrder(&d, m.outputs, seen)
	compareOrder(&d, m.notices, seen)
	return d
}

func (m *Model) compareExpiry(d *Diff, want expected, msg Message, seen map[string]uint64) {
	id := msg.Header.Get("ce-id")
	if before, twice := seen[expiryOf(id)]; twice {
		d.add(Twice, "expiry of %s: events %d and %d", id, before, msg.Seq)
		return
	}
	seen[expiryOf(id)] = msg.Seq
	e, ok := want.expiries[id]
	if !ok {
		if due, there := want.dueOnly[id]; there {
			d.add(Early, "expiry of %s: event %d was published before the log reached %s", id, msg.Seq, due.ExpiredAt)
			return
		}
		d.add(Unexpected, "expiry of %s: event %d on %s; that version: %s", id, msg.Seq, msg.Subject, m.fate(id))
		return
	}
	if msg.At < e.ExpiredAt {
		d.add(Early, "expiry of %s: event %d is stamped %s, but the document expired at %s", id, msg.Seq, msg.At,
			e.ExpiredAt)
	}
	n := notice{
		what: "expiry of " + id, subject: m.set.Prefix.Expired(e.Collection, e.Name.ID), kind: "expired",
		Name: e.Name, Document: e.Document, bare: e.Bare, seconds: e.Seconds, at: e.ExpiredAt,
		members: map[string]any{"expiredAt": e.ExpiredAt.String()},
	}
	if e.Target != "" {
		n.subject, n.kind = string(m.set.Prefix)+".due."+e.Target, "due"
	}
	m.compareNotice(d, msg, n)
}

// notice is an expiry event, a due message or a warning, as it has to be.
type notice struct {
	what, subject, kind string
	Name
	Document
	bare    bool  // it has no document
	seconds int32 // the TTL that counts; 0 if an absolute deadline does
	at      wire.Time
	members map[string]any // those that only its kind has
}

func (m *Model) compareNotice(d *Diff, msg Message, e notice) {
	compare := func(what string, got, want any) {
		if got != want {
			d.add(Wrong, "%s: event %d: %s is %q, want %q", e.what, msg.Seq, what, got, want)
		}
	}
	compare("subject", msg.Subject, bucketed(strings.Replace(e.subject, ".expired.", "."+e.kind+".", 1)))
	for name, want := range map[string]string{
		"Nats-Msg-Id":    "",
		"ce-specversion": "1.0",
		"ce-type": map[bool]string{
			true: "lapse.message.due.v1", false: "lapse.document." + e.kind + ".v1"}[e.kind == "due"],
		"ce-source":      m.source(e.Etag, e.Collection),
		"ce-subject":     wire.EscapeID(e.Name.ID),
		"ce-time":        e.at.String(),
		"traceparent":    e.Trace,
		"ce-traceparent": e.Trace,
	} {
		compare(name, value(msg, name), want)
	}
	if e.kind == "due" {
		compareDue(compare, msg, e)
		return
	}
	members, ok := object(msg.Data)
	if !ok {
		compare("body", string(msg.Data), "a JSON object")
		return
	}
	wanted := map[string]any{
		"id": e.Name.ID, "collection": e.Collection, "etag": e.Etag.String(), "ts": e.Ts.String(),
		"ttl": e.seconds,
	}
	maps.Copy(wanted, e.members)
	if e.seconds == 0 {
		delete(wanted, "ttl") // an absolute deadline counted
	}
	for member, want := range wanted {
		text, err := json.Marshal(want)
		if err != nil || !patch.Same(members[member], text) {
			compare(member, string(members[member]), string(text))
		}
		delete(members, member)
	}
	if body := members["document"]; e.bare {
		compare("documentOmitted", string(members["documentOmitted"]), "true")
		compare("document", string(body), "")
		delete(members, "documentOmitted")
	} else if !e.sameBody(body, bytes.TrimSpace(e.Body)) {
		compare("document", abbreviate(body), abbreviate(e.Body))
	}
	delete(members, "document")
	for member, raw := range members {
		compare("member "+member, string(raw), "none")
	}
}

// sameBody compares a published or read body with a version's body.
func (doc Document) sameBody(got, want []byte) bool {
	if doc.Merged {
		return patch.Same(got, want)
	}
	return bytes.Equal(got, want)
}

// fate returns what became of the version that a ce-id names.
func (m *Model) fate(id string) string {
	etag, err := wire.ParseEtag(id[strings.LastIndexByte(id, '/')+1:])
	if fate, there := m.fates[etag]; err == nil && there {
		return fate
	}
	return "never written"
}

func (m *Model) compareRejection(d *Diff, want expected, msg Message, seen map[string]uint64) {
	seq, err := strconv.ParseUint(msg.Header.Get(wire.HeaderSeq), 10, 64)
	if err != nil {
		d.add(Wrong, "rejection: event %d: %s is %q", msg.Seq, wire.HeaderSeq, msg.Header.Get(wire.HeaderSeq))
		return
	}
	if before, twice := seen[rejectionOf(seq)]; twice {
		d.add(Twice, "rejection of message %d: events %d and %d", seq, before, msg.Seq)
		return
	}
	seen[rejectionOf(seq)] = msg.Seq
	r, ok := want.rejections[seq]
	if !ok {
		d.add(Unexpected, "rejection of message %d: event %d, code %s: %s", seq, msg.Seq,
			msg.Header.Get(wire.HeaderCode), msg.Header.Get(wire.HeaderError))
		return
	}
	wrong := func(what string, got, want any) {
		d.add(Wrong, "rejection of message %d: event %d: %s is %v, want %v", seq, msg.Seq, what, got, want)
	}
	if code, err := strconv.Atoi(value(msg, wire.HeaderCode)); err != nil || !slices.Contains(r.Codes, code) {
		wrong(wire.HeaderCode, value(msg, wire.HeaderCode)+" ("+value(msg, wire.HeaderError)+")", r.Codes)
	}
	if msg.Subject != bucketed(r.Target) {
		wrong("subject", msg.Subject, bucketed(r.Target))
	}
	for name, want := range map[string]string{
		"Nats-Msg-Id":      "",
		wire.HeaderSubject: r.Subject,
		"Lapse-Stream":     m.log().Stream(),
		"traceparent":      r.Trace,
	} {
		if got := value(msg, name); got != want {
			wrong(name, strconv.Quote(got), strconv.Quote(want))
		}
	}
	if value(msg, wire.HeaderError) == "" {
		wrong(wire.HeaderError, "empty", "a sentence")
	}
	switch size := value(msg, wire.HeaderTruncated); {
	case size == "" && !bytes.Equal(msg.Data, r.Body):
		wrong("body", abbreviate(msg.Data), abbreviate(r.Body))
	case size != "" && (size != strconv.Itoa(len(r.Body)) || len(msg.Data) >= len(r.Body) ||
		!bytes.HasPrefix(r.Body, msg.Data)):
		wrong("truncated body", fmt.Sprintf("%d bytes of %s", len(msg.Data), size),
			fmt.Sprintf("the first part of %d bytes", len(r.Body)))
	}
}

// expiryOf is the name of an expiry in findings.
func expiryOf(id string) string { return "expiry of " + id }

// rejectionOf is the name of a rejection in findings.
func rejectionOf(seq uint64) string { return fmt.Sprintf("rejection of message %d", seq) }

// compareOrder checks that the outputs of each document stand in the order of the log. It
// passes over those that are missing. seen has the sequence of each event.
func compareOrder(d *Diff, all map[Name][]string, seen map[string]uint64) {
	for name, outputs := range all {
		last, before := uint64(0), ""
		for _, now := range outputs {
			at, there := seen[now]
			if !there {
				continue
			}
			if at < last {
				d.add(Order, "%s: %s is event %d, but %s, which comes before it, is event %d", name, now, at, before,
					last)
			}
			last, before = at, now
		}
	}
}

// bucketed is the subject under which the stream of events stores a message that is published on a
// subject with a prefix and three tokens: it has a number from 0 to 15 in place of the last, the
// 32-bit FNV-1a hash of it modulo 16.
func bucketed(subject string) string {
	tokens := strings.Split(subject, ".")
	if len(tokens) != 4 {
		return subject
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(tokens[3]))
	tokens[3] = strconv.Itoa(int(h.Sum32() % 16))
	return strings.Join(tokens, ".")
}
