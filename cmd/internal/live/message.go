package live

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// source is a message as it comes from the stream.
type source struct {
	seq     uint64
	at      time.Time // when the stream stored it
	subject string
	header  nats.Header
	data    []byte
}

// Kind is a kind of messages, as in their subjects.
type Kind string

// The kinds that clients can follow.
const (
	Expired  Kind = "expired"
	Due      Kind = "due"
	Expiring Kind = "expiring"
	Rejected Kind = "rejected"
	// Changed follows changes and drops, and the expiry events and due messages of the same collection.
	Changed Kind = "changed"
)

// Message is an event, a due message, a warning, a rejection or a change, as clients get it.
type Message struct {
	Seq        uint64 // in the stream
	Kind       Kind
	Collection string
	Data       []byte // a wire.Event, a wire.Due, a wire.Expiring, a [Rejection] or a wire.Change

	about client.About // zero of a warning and a rejection
	name  string       // of the event, for clients that follow changes
}

// What tells what has happened: created, updated or deleted, expired or due; dropped of a collection. It is empty of a
// warning and a rejection.
func (m Message) What() string { return strings.TrimPrefix(m.name, "collection-") }

// Rejection is a rejection, as clients get it.
type Rejection struct {
	client.Rejection
	At wire.Time `json:"at"` // when the stream stored it
}

var kinds = []Kind{Expired, Due, Expiring, Rejected, Changed}

// topicOf is the topic of a subject, with its collection; ok = false if it is lapse's own. The subject of a
// due message has its target in place of the collection.
func topicOf(prefix wire.Prefix, subject string) (t topic, ok bool) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(subject, string(prefix)+"."), ".")
	t.kind = Kind(kind)
	t.collection, _, _ = strings.Cut(rest, ".")
	return t, slices.Contains(kinds, t.kind)
}

// read reads a message for the clients: an event or a warning is as it is in the stream. ok = false if it is
// lapse's own.
func read(prefix wire.Prefix, s source) (m Message, ok bool) {
	t, ok := topicOf(prefix, s.subject)
	m = Message{Seq: s.seq, Kind: t.kind, Collection: t.collection, Data: s.data}
	m.readAbout(s.header)
	switch t.kind {
	case Due:
		d, err := wire.ReadDue(s.header, s.data)
		m.Collection, m.Data = d.Collection, d.Encode()
		return m, err == nil
	case Rejected:
	default:
		return m, ok
	}
	r := Rejection{At: wire.Time(s.at.UnixMilli()), Rejection: client.Rejection{
		Error:   s.header.Get(wire.HeaderError),
		Subject: s.header.Get(wire.HeaderSubject),
		Body:    string(s.data),
	}}
	// lapse writes these numbers itself.
	r.Code, _ = strconv.Atoi(s.header.Get(wire.HeaderCode))
	r.Seq, _ = strconv.ParseUint(s.header.Get(wire.HeaderSeq), 10, 64)
	r.Truncated, _ = strconv.Atoi(s.header.Get(wire.HeaderTruncated))
	m.Data, _ = json.Marshal(r) // strings, numbers and an instant cannot fail
	return m, ok
}

// readAbout reads what a message is about from its headers: ce-id is collection/id/etag of what expires, and
// collection/id/sequence/changed of a change.
func (m *Message) readAbout(header nats.Header) {
	part := strings.Split(header.Get("ce-id"), "/")
	if m.Kind != Changed && m.Kind != Expired && m.Kind != Due || len(part) < 3 {
		return
	}
	m.name = string(m.Kind)
	if m.Kind == Changed {
		m.name = client.Changed{Type: header.Get("ce-type")}.Kind()
	}
	if m.Kind == Changed && len(part) == 3 {
		m.name = "collection-dropped" // "dropped" is what every stream calls the end of a connection
		m.about.Seq, _ = strconv.ParseUint(part[1], 10, 64)
		return
	}
	// lapse writes these itself.
	m.about.ID, _ = wire.UnescapeID(part[1])
	n, _ := strconv.ParseUint(part[2], 10, 64)
	if m.Kind == Changed {
		m.about.Seq = n
		return
	}
	m.about.Etag = wire.Etag(n)
	_ = m.about.At.UnmarshalText([]byte(header.Get("ce-time")))
}

// write writes a message for the clients.
func write(prefix wire.Prefix, s source) (m message, ok bool) {
	r, ok := read(prefix, s)
	if !ok {
		return message{}, false
	}
	return r.message(), true
}

func (m Message) message() message { return message{m.Seq, m.topic(), m.about, m.name, m.frame()} }

func (m Message) topic() topic { return topic{m.Kind, m.Collection, m.about.ID} }

func (m Message) frame() []byte { return frame("", strconv.FormatUint(m.Seq, 10), m.Data) }

// frame writes a server-sent event. White space at the end of a line of data may change: JSON
// has it only between its tokens.
func frame(name, id string, data []byte) []byte {
	b := make([]byte, 0, len(data)+len(name)+len(id)+32)
	if name != "" {
		b = append(append(append(b, "event: "...), name...), '\n')
	}
	if id != "" {
		b = append(append(append(b, "id: "...), id...), '\n')
	}
	for len(data) > 0 {
		line := data
		end := bytes.IndexAny(data, "\r\n")
		if end < 0 {
			data = nil
		} else {
			line, data = data[:end], data[end+1:]
		}
		b = append(append(append(b, "data: "...), line...), '\n')
	}
	return append(b, '\n')
}

// notice is an event about the connection itself. It has no id, so it moves no position.
func notice(name, reason string) []byte {
	data, _ := json.Marshal(map[string]string{"reason": reason}) // a string cannot fail
	return frame(name, "", data)
}
