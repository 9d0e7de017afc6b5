package live

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Kind is a kind of messages, as in their subjects.
type Kind = wire.Kind

// The kinds that clients can follow.
const (
	Expired  = wire.KindExpired
	Due      = wire.KindDue
	Expiring = wire.KindExpiring
	Rejected = wire.KindRejected
	// Changed follows changes and drops, and the expiry events and due messages of the same collection.
	Changed = wire.KindChanged
)

// Message is an event, a due message, a warning, a rejection or a change in the stream.
type Message struct {
	wire.About
	Seq  uint64 // in the stream
	Data []byte // as clients get it: a wire.Event, a wire.Due, a wire.Expiring, a [Rejection] or a wire.Change

	name   string // of the event, for clients that follow changes
	prefix wire.Prefix
	stored *jetstream.RawStreamMsg
}

// Notification is what the message says, and when the stream stored it. What is not valid is left out.
func (m Message) Notification() (n wire.Notification, at wire.Time) {
	n, _ = wire.ParseEvent(m.prefix, m.stored.Subject, m.stored.Header, m.stored.Data)
	return n, wire.Time(m.stored.Time.UnixMilli())
}

// What tells what has happened: created, updated or deleted, expired or due; dropped of a collection. It is empty of a
// warning and a rejection.
func (m Message) What() string { return strings.TrimPrefix(m.name, "collection-") }

// Rejection is a rejection, as clients get it.
type Rejection struct {
	*wire.Rejection
	At wire.Time `json:"at"` // when the stream stored it
}

// read reads a message for the clients: an event or a warning is as it is in the stream. ok = false if it is
// lapse's own.
func read(prefix wire.Prefix, s *jetstream.RawStreamMsg) (m Message, ok bool) {
	a, err := wire.ParseAbout(prefix, s.Subject, s.Header)
	m = Message{About: a, Seq: s.Sequence, Data: s.Data, prefix: prefix, stored: s}
	switch a.Kind {
	case "":
		return m, false
	case Expired:
		m.name = string(Expired)
	case Changed:
		m.name = wire.Changed{Type: s.Header.Get("ce-type")}.Kind()
		if a.ID == "" && err == nil {
			m.name = "collection-dropped" // "dropped" is what every stream calls the end of a connection
		}
	case Due:
		n, err := wire.ParseEvent(prefix, s.Subject, s.Header, s.Data)
		m.name, m.Data = string(Due), n.Due.Encode()
		return m, err == nil
	case Rejected:
		n, at := m.Notification()
		m.Data, _ = json.Marshal(Rejection{n.Rejected, at}) // it cannot fail
	}
	return m, true
}

// message is the message, written for the clients.
func (m Message) message() message {
	return message{m.Seq, m.About, m.name, frame("", strconv.FormatUint(m.Seq, 10), m.Data)}
}

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
