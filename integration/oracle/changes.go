package oracle

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/seed18712806/lapse/integration/oracle/patch"
	"github.com/seed18712806/lapse/sink/wire"
)

// Change is a message about a write or a drop that must exist.
type Change struct {
	Name // without an id of a drop
	Document
	Seq       uint64    // of the write or the drop
	At        wire.Time // when it took effect
	Kind      string    // created, updated, deleted or dropped
	Touched   bool      // the write has renewed the clock alone: the message has no document
	Bare      bool      // the message has no document
	ExpiresAt *wire.Time
}

// ID returns the ce-id of the message.
func (c Change) ID() string {
	if c.Kind == "dropped" {
		return fmt.Sprintf("%s/%d/dropped", c.Collection, c.Seq)
	}
	return fmt.Sprintf("%s/%d/changed", c.Name, c.Seq)
}

// change records what must be published of a write or a drop.
func (m *Model) change(in Collection, c Change) {
	if !in.Changes {
		return
	}
	c.Bare = in.Bare || c.Touched
	m.Changes = append(m.Changes, c)
	m.outputs[c.Name] = append(m.outputs[c.Name], changeOf(c.ID()))
	if len(m.notices[c.Name]) > 0 {
		m.notices[c.Name] = append(m.notices[c.Name], changeOf(c.ID()))
	}
}

func changeOf(id string) string { return "change " + id }

// compareChange compares a message about a change with those that the model requires.
func (m *Model) compareChange(d *Diff, want expected, msg Message, seen map[string]uint64) {
	id := msg.Header.Get("ce-id")
	if before, twice := seen[changeOf(id)]; twice {
		d.add(Twice, "change %s: events %d and %d", id, before, msg.Seq)
		return
	}
	seen[changeOf(id)] = msg.Seq
	c, ok := want.changes[id]
	if !ok {
		d.add(Unexpected, "change %s: event %d on %s", id, msg.Seq, msg.Subject)
		return
	}
	compare := func(what string, got, want any) {
		if got != want {
			d.add(Wrong, "change %s: event %d: %s is %q, want %q", id, msg.Seq, what, got, want)
		}
	}
	subject, kind, token := string(m.set.Prefix)+".changed."+c.Collection, "document", wire.EscapeID(c.Name.ID)
	members := map[string]any{"collection": c.Collection, "ts": c.Ts.String()}
	if c.Kind == "dropped" {
		kind = "collection"
	} else {
		subject, members["id"] = subject+"."+token, c.Name.ID
	}
	compare("subject", msg.Subject, bucketed(subject))
	for name, want := range map[string]string{
		"Nats-Msg-Id":    "",
		"ce-specversion": "1.0",
		"ce-type":        "lapse." + kind + "." + c.Kind + ".v1",
		"ce-source":      m.source(wire.Etag(c.Seq), c.Collection),
		"ce-subject":     token,
		"ce-time":        c.At.String(),
		"traceparent":    c.Trace,
		"ce-traceparent": c.Trace,
	} {
		compare(name, value(msg, name), want)
	}
	if c.Kind == "created" || c.Kind == "updated" {
		members["etag"] = c.Etag.String()
		if c.ExpiresAt != nil {
			members["expiresAt"] = c.ExpiresAt.String()
		}
	}
	c.compareBody(compare, msg.Data, members)
}

// compareBody compares the body of a message about a change.
func (c Change) compareBody(compare func(what string, got, want any), body []byte, wanted map[string]any) {
	members, ok := object(body)
	if !ok {
		compare("body", string(body), "a JSON object")
		return
	}
	switch document := members["document"]; {
	case wanted["etag"] == nil:
	case c.Bare:
		wanted["documentOmitted"] = true
		if c.Touched {
			wanted["documentUnchanged"] = true
		}
	case !c.sameBody(document, bytes.TrimSpace(c.Body)):
		compare("document", abbreviate(document), abbreviate(c.Body))
		fallthrough
	default:
		delete(members, "document")
	}
	for member, want := range wanted {
		text, err := json.Marshal(want)
		if err != nil || !patch.Same(members[member], text) {
			compare(member, string(members[member]), string(text))
		}
		delete(members, member)
	}
	for member, raw := range members {
		compare("member "+member, string(raw), "none")
	}
}

// dropped is what must be published of a drop.
func (m *Model) dropped(collection string, msg Message) Change {
	return Change{Name: Name{Collection: collection}, Seq: msg.Seq, At: m.now, Kind: "dropped",
		Document: Document{Etag: wire.Etag(msg.Seq), Ts: m.now, Trace: trace(msg)}}
}
