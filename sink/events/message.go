package events

import (
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	ceType = "lapse.document.expired.v1"
	ceID   = "ce-id"
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
	m := &nats.Msg{
		Subject: prefix.Expired(e.Collection, e.ID),
		Header: nats.Header{
			"ce-specversion":      {"1.0"},
			"ce-type":             {ceType},
			"ce-source":           {"/collections/" + e.Collection},
			"ce-subject":          {id},
			ceID:                  {unique},
			"ce-time":             {e.ExpiredAt.String()},
			"content-type":        {"application/json"},
			jetstream.MsgIDHeader: {unique},
			// Here and not as an option of the publication, so that the size is the whole.
			jetstream.ExpectedStreamHeader: {prefix.EventsStream()},
		},
	}
	if trace != "" {
		m.Header[wire.HeaderTrace] = []string{trace}
	}
	m.Data = e.Encode()
	if int64(m.Size()) > maxPayload {
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
			wire.HeaderCode:                {strconv.Itoa(r.Code)},
			wire.HeaderError:               {r.Error},
			wire.HeaderSubject:             {r.Subject},
			wire.HeaderSeq:                 {strconv.FormatUint(r.Seq, 10)},
			jetstream.MsgIDHeader:          {"rejected/" + strconv.FormatUint(r.Seq, 10)},
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
