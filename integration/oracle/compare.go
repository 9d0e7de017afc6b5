package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// Diff is what is wrong, a sentence each. The zero value is that all is well.
type Diff struct {
	Missing    []string // not said, or not readable, though it must be
	Twice      []string // said more than once
	Early      []string // said before its instant, or before the log had reached it
	Unexpected []string // said or readable, though it must not be
	Wrong      []string // said or read with another content
	Order      []string // said about one document in another order than it happened
}

// OnlyMissing says whether waiting may help.
func (d Diff) OnlyMissing() bool {
	return len(d.Twice)+len(d.Early)+len(d.Unexpected)+len(d.Wrong)+len(d.Order) == 0
}

// Empty says whether all is well.
func (d Diff) Empty() bool { return d.OnlyMissing() && len(d.Missing) == 0 }

// Add adds what another diff holds.
func (d *Diff) Add(other Diff) {
	d.Missing = append(d.Missing, other.Missing...)
	d.Twice = append(d.Twice, other.Twice...)
	d.Early = append(d.Early, other.Early...)
	d.Unexpected = append(d.Unexpected, other.Unexpected...)
	d.Wrong = append(d.Wrong, other.Wrong...)
	d.Order = append(d.Order, other.Order...)
}

// String tells a person, of each kind the first few.
func (d Diff) String() string {
	const most = 10
	var b strings.Builder
	for _, part := range []struct {
		title string
		lines []string
	}{
		{"missing", d.Missing},
		{"twice", d.Twice},
		{"early", d.Early},
		{"unexpected", d.Unexpected},
		{"wrong", d.Wrong},
		{"out of order", d.Order},
	} {
		if len(part.lines) == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s (%d):\n", part.title, len(part.lines))
		for _, line := range part.lines[:min(most, len(part.lines))] {
			fmt.Fprintf(&b, "  %s\n", line)
		}
		if more := len(part.lines) - most; more > 0 {
			fmt.Fprintf(&b, "  and %d more\n", more)
		}
	}
	return b.String()
}

func note(list *[]string, format string, args ...any) {
	*list = append(*list, fmt.Sprintf(format, args...))
}

// expected is what may be said by now, and what must be.
type expected struct {
	expiries   map[string]Expiry    // by ce-id: the log has got there
	dueOnly    map[string]Expiry    // by ce-id: due at the instant, but the log has not got there
	rejections map[uint64]Rejection // by sequence
}

// CompareEvents holds the stream of events against the model: all that is due
// at the instant at must be there, nothing but what the log has caused may be,
// each once, with the right content, not early, and in order. Only the log that
// the model has applied counts, so it must have been read after the events.
func (m *Model) CompareEvents(events []Message, at wire.Time) Diff {
	var d Diff
	want := expected{expiries: map[string]Expiry{}, dueOnly: map[string]Expiry{}, rejections: map[uint64]Rejection{}}
	for _, e := range m.Expiries {
		want.expiries[e.ID()] = e
	}
	for _, p := range m.partitions {
		for _, e := range p.due(max(at, m.now)) {
			if e.ExpiredAt <= m.now { // made so by the last message itself
				want.expiries[e.ID()] = e
			} else {
				want.dueOnly[e.ID()] = e
			}
		}
	}
	for _, r := range m.Rejections {
		want.rejections[r.Seq] = r
	}

	prefix := string(m.set.Prefix)
	expiries, rejections := map[string]uint64{}, map[uint64]uint64{} // where in the stream
	for _, msg := range events {
		switch {
		case strings.HasPrefix(msg.Subject, prefix+".expired."):
			m.compareExpiry(&d, want, msg, expiries)
		case strings.HasPrefix(msg.Subject, prefix+".rejected."):
			compareRejection(&d, want, msg, rejections)
		default:
			note(&d.Unexpected, "event %d: subject %s", msg.Seq, msg.Subject)
		}
	}

	for id, e := range want.expiries {
		if _, there := expiries[id]; !there && e.ExpiredAt <= at {
			note(&d.Missing, "expiry of %s, expired at %s", id, e.ExpiredAt)
		}
	}
	for id, e := range want.dueOnly {
		if _, there := expiries[id]; !there {
			note(&d.Missing, "expiry of %s, expired at %s; the log has not got there (a tick is missing)", id, e.ExpiredAt)
		}
	}
	for seq, r := range want.rejections {
		if _, there := rejections[seq]; !there {
			note(&d.Missing, "rejection of message %d (%s), code %v", seq, r.Subject, r.Codes)
		}
	}
	m.compareOrder(&d, expiries, rejections)
	slices.Sort(d.Missing)
	slices.Sort(d.Order)
	return d
}

func (m *Model) compareExpiry(d *Diff, want expected, msg Message, seen map[string]uint64) {
	id := msg.Header.Get("ce-id")
	if before, twice := seen[id]; twice {
		note(&d.Twice, "expiry of %s: events %d and %d", id, before, msg.Seq)
		return
	}
	seen[id] = msg.Seq
	e, ok := want.expiries[id]
	if !ok {
		if due, there := want.dueOnly[id]; there {
			note(&d.Early, "expiry of %s: event %d was sent before the log reached %s", id, msg.Seq, due.ExpiredAt)
			return
		}
		note(&d.Unexpected, "expiry of %s: event %d on %s; that version: %s", id, msg.Seq, msg.Subject, m.fate(id))
		return
	}
	if msg.At < e.ExpiredAt {
		note(&d.Early, "expiry of %s: event %d is stamped %s, but it expired at %s", id, msg.Seq, msg.At, e.ExpiredAt)
	}
	wrong := func(what string, got, want any) {
		note(&d.Wrong, "expiry of %s: event %d: %s is %v, want %v", id, msg.Seq, what, got, want)
	}
	if target := m.set.Prefix.Expired(e.Collection, e.Name.ID); msg.Subject != target {
		wrong("subject", msg.Subject, target)
	}
	for _, h := range [][2]string{
		{"Nats-Msg-Id", e.ID()},
		{"ce-specversion", "1.0"},
		{"ce-type", "lapse.document.expired.v1"},
		{"ce-source", "/collections/" + e.Collection},
		{"ce-subject", wire.EscapeID(e.Name.ID)},
		{"ce-time", e.ExpiredAt.String()},
		{wire.HeaderTrace, e.Trace},
	} {
		if got := value(msg, h[0]); got != h[1] {
			wrong(h[0], strconv.Quote(got), strconv.Quote(h[1]))
		}
	}
	members, ok := object(msg.Data)
	if !ok {
		wrong("body", string(msg.Data), "a JSON object")
		return
	}
	for member, want := range map[string]any{
		"id": e.Name.ID, "collection": e.Collection, "etag": e.Etag.String(), "ts": e.Ts.String(),
		"ttl": e.Seconds, "expiredAt": e.ExpiredAt.String(),
	} {
		text, err := json.Marshal(want)
		if err != nil || !sameValue(members[member], text) {
			wrong(member, string(members[member]), string(text))
		}
		delete(members, member)
	}
	if body := members["document"]; !e.sameBody(body, bytes.TrimSpace(e.Body)) {
		wrong("document", abbreviate(body), abbreviate(e.Body))
	}
	delete(members, "document")
	for member, raw := range members {
		wrong("member "+member, string(raw), "none")
	}
}

// sameBody compares what was said or read with a version's body.
func (doc Document) sameBody(got, want []byte) bool {
	if doc.Merged {
		return sameValue(got, want)
	}
	return bytes.Equal(got, want)
}

// fate tells what became of the version that a ce-id names.
func (m *Model) fate(id string) string {
	etag, err := wire.ParseEtag(id[strings.LastIndexByte(id, '/')+1:])
	if fate, there := m.fates[etag]; err == nil && there {
		return fate
	}
	return "there is none"
}

func compareRejection(d *Diff, want expected, msg Message, seen map[uint64]uint64) {
	seq, err := strconv.ParseUint(msg.Header.Get(wire.HeaderSeq), 10, 64)
	if err != nil {
		note(&d.Wrong, "rejection: event %d: %s is %q", msg.Seq, wire.HeaderSeq, msg.Header.Get(wire.HeaderSeq))
		return
	}
	if before, twice := seen[seq]; twice {
		note(&d.Twice, "rejection of message %d: events %d and %d", seq, before, msg.Seq)
		return
	}
	seen[seq] = msg.Seq
	r, ok := want.rejections[seq]
	if !ok {
		note(&d.Unexpected, "rejection of message %d: event %d, code %s: %s", seq, msg.Seq, msg.Header.Get(wire.HeaderCode), msg.Header.Get(wire.HeaderError))
		return
	}
	wrong := func(what string, got, want any) {
		note(&d.Wrong, "rejection of message %d: event %d: %s is %v, want %v", seq, msg.Seq, what, got, want)
	}
	if code, err := strconv.Atoi(value(msg, wire.HeaderCode)); err != nil || !slices.Contains(r.Codes, code) {
		wrong(wire.HeaderCode, value(msg, wire.HeaderCode)+" ("+value(msg, wire.HeaderError)+")", r.Codes)
	}
	if msg.Subject != r.Target {
		wrong("subject", msg.Subject, r.Target)
	}
	if got, want := value(msg, "Nats-Msg-Id"), fmt.Sprintf("rejected/%d", seq); got != want {
		wrong("Nats-Msg-Id", got, want)
	}
	if got := value(msg, wire.HeaderSubject); got != r.Subject {
		wrong(wire.HeaderSubject, strconv.Quote(got), strconv.Quote(r.Subject))
	}
	if value(msg, wire.HeaderError) == "" {
		wrong(wire.HeaderError, "empty", "a sentence")
	}
	switch size := value(msg, wire.HeaderTruncated); {
	case size == "" && !bytes.Equal(msg.Data, r.Body):
		wrong("body", abbreviate(msg.Data), abbreviate(r.Body))
	case size != "" && (size != strconv.Itoa(len(r.Body)) || len(msg.Data) >= len(r.Body) || !bytes.HasPrefix(r.Body, msg.Data)):
		wrong("truncated body", fmt.Sprintf("%d bytes of %s", len(msg.Data), size), fmt.Sprintf("the beginning of %d bytes", len(r.Body)))
	}
}

// compareOrder checks, document by document, that what was said came in the
// order in which it happened. What was not said is not its concern.
func (m *Model) compareOrder(d *Diff, expiries map[string]uint64, rejections map[uint64]uint64) {
	for name, said := range m.said {
		last, what := uint64(0), ""
		for _, o := range said {
			at, there := expiries[o.expiry]
			now := "expiry " + o.expiry
			if o.expiry == "" {
				at, there = rejections[o.rejection]
				now = fmt.Sprintf("rejection of message %d", o.rejection)
			}
			if !there {
				continue
			}
			if at < last {
				note(&d.Order, "%s: %s is event %d, but %s, which came before it, is event %d", name, now, at, what, last)
			}
			last, what = at, now
		}
	}
}

func abbreviate(b []byte) string {
	const longest = 200
	if len(b) <= longest {
		return strconv.Quote(string(b))
	}
	return strconv.Quote(string(b[:longest])) + fmt.Sprintf("… (%d bytes)", len(b))
}
