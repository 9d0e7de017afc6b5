package events

import (
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	ceID = "ce-id"
	// otherSize is more than what an event has beside its data: its subject and headers
	// have the id four times and the collection three times.
	otherSize = 16 << 10
)

// Values of headers that all events share. They are not changed.
var (
	ceVersion   = []string{"1.0"}
	ceType      = []string{"lapse.document.expired.v1"}
	contentType = []string{"application/json"}
)

// Message is an output of the log, ready to be stored.
type Message struct {
	msg *nats.Msg
	// order is what grows along a subject: the etag of an expired version, the
	// log sequence of what was rejected.
	order uint64
}

// Expired builds an expiry event. Its document goes out as its bytes are, unless
// the whole would be larger than maxPayload: then it is left out, and said to be.
func Expired(prefix wire.Prefix, e wire.Event, trace string, maxPayload int64) Message {
	id := wire.EscapeID(e.ID)
	unique := e.Collection + "/" + id + "/" + e.Etag.String()
	values := []string{"/collections/" + e.Collection, id, unique, e.ExpiredAt.String(), prefix.EventsStream(), trace}
	value := func(i int) []string { return values[i : i+1 : i+1] }
	m := &nats.Msg{Subject: prefix.Expired(e.Collection, e.ID), Header: make(nats.Header, 12)}
	h := m.Header
	h["ce-specversion"], h["ce-type"], h["content-type"] = ceVersion, ceType, contentType
	h["ce-source"], h["ce-subject"], h[ceID], h["ce-time"] = value(0), value(1), value(2), value(3)
	h[jetstream.MsgIDHeader] = value(2)
	h[jetstream.ExpectedStreamHeader] = value(4)
	if trace != "" {
		h[wire.HeaderTrace] = value(5)
	}
	m.Data = e.Encode()
	if int64(len(m.Data)) > maxPayload-otherSize && int64(m.Size()) > maxPayload {
		e.Document, e.Omitted = nil, true
		m.Data = e.Encode()
	}
	return Message{msg: m, order: uint64(e.Etag)}
}

// Rejection is a message of the log that takes no effect, and why.
type Rejection struct {
	Subject string // of the original
	Rest    string // of the original's subject, behind the kind and the operation
	Seq     uint64 // of the original in the log
	Code    int
	Error   string
	Body    []byte // of the original
	Trace   string // of the original
}

// Rejected builds a rejection. If the whole would be larger than maxPayload, it
// carries the beginning of the body, and its header Lapse-Truncated says how long
// the original was.
func Rejected(prefix wire.Prefix, r Rejection, maxPayload int64) Message {
	m := &nats.Msg{
		Subject: prefix.Rejected(r.Rest),
		Header: nats.Header{
			wire.HeaderCode:       {strconv.Itoa(r.Code)},
			wire.HeaderError:      {r.Error},
			wire.HeaderSubject:    {r.Subject},
			wire.HeaderSeq:        {strconv.FormatUint(r.Seq, 10)},
			jetstream.MsgIDHeader: {"rejected/" + strconv.FormatUint(r.Seq, 10)},

			jetstream.ExpectedStreamHeader: {prefix.EventsStream()},
		},
		Data: r.Body,
	}
	if r.Trace != "" {
		m.Header[wire.HeaderTrace] = []string{r.Trace}
	}
	if over := int64(m.Size()) - maxPayload; over > 0 {
		m.Header[wire.HeaderTruncated] = []string{strconv.Itoa(len(r.Body))}
		m.Header[wire.HeaderError] = []string{r.Error + " (this rejection carries only the beginning of the body)"}
		over = int64(m.Size()) - maxPayload
		m.Data = m.Data[:max(0, int64(len(m.Data))-over)]
	}
	return Message{msg: m, order: r.Seq}
}
