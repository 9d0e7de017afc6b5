package live

import (
	"bytes"
	"encoding/json"
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
)

// Message is an event, a due message, a warning or a rejection, as clients get it.
type Message struct {
	Seq        uint64 // in the stream
	Kind       Kind
	Collection string
	Data       []byte // a wire.Event, a wire.Due, a wire.Expiring or a [Rejection]
}

// Rejection is a rejection, as clients get it.
type Rejection struct {
	client.Rejection
	At wire.Time `json:"at"` // when the stream stored it
}

// topicOf is the topic of a subject, with its collection; ok = false if it is lapse's own. The subject of a
// due message has its target in place of the collection.
func topicOf(prefix wire.Prefix, subject string) (t topic, ok bool) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(subject, string(prefix)+"."), ".")
	t.kind = Kind(kind)
	t.collection, _, _ = strings.Cut(rest, ".")
	return t, t.kind == Expired || t.kind == Due || t.kind == Expiring || t.kind == Rejected
}

// read reads a message for the clients: an event or a warning is as it is in the stream. ok = false if it is
// lapse's own.
func read(prefix wire.Prefix, s source) (m Message, ok bool) {
	t, ok := topicOf(prefix, s.subject)
	m = Message{s.seq, t.kind, t.collection, s.data}
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

// write writes a message for the clients.
func write(prefix wire.Prefix, s source) (m message, ok bool) {
	r, ok := read(prefix, s)
	if !ok {
		return message{}, false
	}
	return message{seq: r.Seq, topic: r.topic(), frame: r.frame()}, true
}

func (m Message) topic() topic { return topic{m.Kind, m.Collection} }

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
