package events

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	ceID      = "ce-id"
	ceTime    = "ce-time"
	ceSource  = "ce-source"
	ceSubject = "ce-subject"
	// longestError is the length to which truncate cuts the error of a rejection.
	longestError = 1 << 10
)

// Values of headers that all events share. Nobody changes them.
var (
	ceVersion    = []string{"1.0"}
	expiredType  = []string{"lapse.document.expired.v1"}
	expiringType = []string{"lapse.document.expiring.v1"}
	dueType      = []string{"lapse.message.due.v1"}
	contentType  = []string{"application/json"}
)

// Message is an output of the log, ready to be published.
type Message struct {
	msg *nats.Msg
	Key Key
}

// Source is the log whose outputs the messages are, as they name it. Make it with [NewSource].
type Source struct {
	prefix wire.Prefix
	shard  int
	shards int
	stream string   // of the log
	uri    string   // of its events, up to the collection
	former []former // logs that this one continues, the oldest first
}

// former is a log that another one continues since a promotion. It may have stored more messages, which the
// promotion has lost, and their outputs may be in the stream of events.
type former struct {
	uri    string
	last   uint64 // sequence of the log that the other one continues
	events uint64 // last sequence of the stream of events then
}

// Continues makes the source one that continues other logs. The outputs of their messages keep the name of the log
// that has stored them: a consumer that has had one from there knows it again.
func (s Source) Continues(logs []wire.Former) Source {
	for _, l := range logs {
		s.former = append(s.former, former{sourceURI(s.prefix, l.Identity/int64(time.Millisecond)), l.Last, l.Events})
	}
	return s
}

// uriOf is the beginning of the ce-source of an output of the message with a sequence.
func (s Source) uriOf(seq uint64) string {
	for _, f := range s.former {
		if seq <= f.last {
			return f.uri
		}
	}
	return s.uri
}

// lost reports whether an output at a sequence of the stream of events is of a message that a promotion has lost.
// Another message has that sequence of the log now.
func (s Source) lost(seq, at uint64) bool {
	for _, f := range s.former {
		if at <= f.events && seq > f.last {
			return true
		}
	}
	return false
}

func sourceURI(prefix wire.Prefix, created int64) string {
	return "/" + string(prefix) + "/" + strconv.FormatInt(created, 10) + "/collections/"
}

// NewSource names a log that was created at an instant, in Unix milliseconds. The instant
// distinguishes it from another log under the same name.
func NewSource(log wire.Log, created int64) Source {
	return Source{
		prefix: log.Prefix, shard: log.Shard, shards: max(log.Shards, 1),
		stream: log.Stream(), uri: sourceURI(log.Prefix, created),
	}
}

// Expired builds an expiry event. The bytes of its document are not changed. An event that is
// too large when it is published goes without its document: see [Publisher.Publish].
func Expired(source Source, e wire.Event, trace string) Message {
	id := wire.EscapeID(e.ID)
	h := source.cloudEvent(uint64(e.Etag), expiredType, e.Collection, id, e.Collection+"/"+id+"/"+e.Etag.String(),
		e.ExpiredAt, trace)
	m := &nats.Msg{Subject: source.prefix.Expired(e.Collection, e.ID), Header: h, Data: e.Encode()}
	return Message{m, Key{Kind: keyExpired, Seq: uint64(e.Etag)}}
}

// Due builds the message that the expiry of a document with a target delivers, in place of its expiry
// event, whose key it has. Its body is the document. If it is too large when it is published, it has none,
// and its header Lapse-Truncated has the length of the document.
func Due(source Source, target string, e wire.Event, trace string) Message {
	id := wire.EscapeID(e.ID)
	h := source.cloudEvent(uint64(e.Etag), dueType, e.Collection, id, e.Collection+"/"+id+"/"+e.Etag.String(), e.ExpiredAt,
		trace)
	h[wire.HeaderTarget] = []string{target}
	m := &nats.Msg{Subject: source.prefix.Due(target), Header: h, Data: e.Document}
	return Message{m, Key{Kind: keyExpired, Seq: uint64(e.Etag)}}
}

// isDue reports whether the message is of Due.
func (m Message) isDue() bool { return m.msg.Header[wire.HeaderTarget] != nil }

// Expiring builds a warning. It is like an expiry event in all else.
func Expiring(source Source, e wire.Expiring, trace string) Message {
	id := wire.EscapeID(e.ID)
	key := Key{keyExpiring, uint64(e.Etag), Warning{e.Before, int64(e.ExpiresAt)}}
	h := source.cloudEvent(uint64(e.Etag), expiringType, e.Collection, id,
		e.Collection+"/"+id+"/"+e.Etag.String()+"/expiring/"+key.Warning.String(), e.At(), trace)
	return Message{&nats.Msg{Subject: source.prefix.Expiring(e.Collection, e.ID), Header: h, Data: e.Encode()}, key}
}

// Changed builds the message about a write that has taken effect, or about a drop: kind is its ce-type, and
// seq the log sequence of the write or the drop, at an instant.
func Changed(source Source, kind string, seq uint64, c wire.Change, at wire.Time, trace string) Message {
	subject, id, name := source.prefix.Dropped(c.Collection), "", c.Collection+"/"+strconv.FormatUint(seq, 10)+dropped
	if kind != wire.TypeDropped {
		id = wire.EscapeID(c.ID)
		subject, name = subject+"."+id, c.Collection+"/"+id+"/"+strconv.FormatUint(seq, 10)+changed
	}
	h := source.cloudEvent(seq, []string{kind}, c.Collection, id, name, at, trace)
	if id == "" {
		delete(h, ceSubject)
	}
	return Message{&nats.Msg{Subject: subject, Header: h, Data: c.Encode()}, Key{Kind: keyChanged, Seq: seq}}
}

// The ends of the ce-id of a change and a drop.
const (
	changed = "/changed"
	dropped = "/dropped"
)

// cloudEvent is the header of an event about a document, whose id is escaped.
func (s Source) cloudEvent(
	seq uint64, kind []string, collection, document, id string, at wire.Time, trace string,
) nats.Header {
	values := []string{s.uriOf(seq) + collection, document, id, at.String(), s.prefix.EventsStream(), trace}
	value := func(i int) []string { return values[i : i+1 : i+1] }
	h := make(nats.Header, 14)
	h["ce-specversion"], h["ce-type"] = ceVersion, kind
	// the first is HTTP's name of it, the second NATS's
	h["content-type"], h["ce-datacontenttype"] = contentType, contentType
	h[ceSource], h[ceSubject], h[ceID], h[ceTime] = value(0), value(1), value(2), value(3)
	h[jetstream.ExpectedStreamHeader] = value(4)
	if trace != "" {
		h[wire.HeaderTrace], h["ce-"+wire.HeaderTrace] = value(5), value(5)
	}
	return h
}

// Rejection is a message of the log that has no effect, and the reason.
type Rejection struct {
	Subject string // of the original
	Rest    string // of the original's subject, behind the kind and the operation
	Seq     uint64 // of the original in the log
	Ts      int64  // stamp of the original, Unix milliseconds; 0 if it is not known
	Code    int
	Error   string
	Reason  string // for programs; "" if there is none
	Body    []byte // of the original
	Trace   string // of the original
}

// Rejected builds a rejection. If it is too large when it is published, it carries the
// beginning of the body, and its header Lapse-Truncated has the length of the whole body. If
// it is still too large, it carries the beginning of the subject, and dots for the rest.
func Rejected(source Source, r Rejection) Message {
	m := &nats.Msg{
		Subject: source.prefix.Rejected(r.Rest),
		Header: nats.Header{
			wire.HeaderCode:    {strconv.Itoa(r.Code)},
			wire.HeaderError:   {r.Error},
			wire.HeaderSubject: {r.Subject},
			wire.HeaderStream:  {source.stream},
			wire.HeaderSeq:     {strconv.FormatUint(r.Seq, 10)},
			wire.HeaderTs:      {wire.Time(r.Ts).String()},

			jetstream.ExpectedStreamHeader: {source.prefix.EventsStream()},
		},
		Data: r.Body,
	}
	if r.Trace != "" {
		m.Header[wire.HeaderTrace] = []string{r.Trace}
	}
	if r.Reason != "" {
		m.Header[wire.HeaderReason] = []string{r.Reason}
	}
	return Message{m, Key{Kind: keyRejected, Seq: r.Seq}}
}

// Name makes the message name the message of the log, and its stamp in Unix nanoseconds, up to which
// the log was read for the step that publishes it. If the log loses its end, others take the place of that message.
func (m Message) Name(seq uint64, stamp int64) {
	m.msg.Header[wire.HeaderOffset] = []string{fmt.Sprintf("%d:%d", seq, stamp)}
}

// Span is the span of the publication of an event, a due message or a warning. ok is false if the write carried no
// traceparent, and of a rejection, which belongs to the span of the write itself.
func (m Message) Span() (s trace.Span, ok bool) {
	s = trace.Span{Kind: trace.Event, Parent: m.msg.Header.Get(wire.HeaderTrace), Seq: m.Key.Seq}
	switch {
	case m.isDue():
		s.Subject = "due.<target>"
	case m.Key.Kind == keyExpired:
		s.Subject = "expired.<collection>.<id>"
	case m.Key.Kind == keyExpiring:
		s.Subject = "expiring.<collection>.<id>"
	default:
		return s, false
	}
	source := m.msg.Header.Get(ceSource)
	s.Collection = source[strings.LastIndexByte(source, '/')+1:]
	return s, s.Parent != ""
}

// named is the message of the log that a message names with Name; ok is false if it names none.
func named(h nats.Header) (seq uint64, stamp int64, ok bool) {
	n, err := fmt.Sscanf(h.Get(wire.HeaderOffset), "%d:%d", &seq, &stamp)
	return seq, stamp, n == 2 && err == nil
}

// shorten replaces the end of a text by dots, so that it loses at least that many bytes.
func shorten(s string, bytes int) string {
	const dots = "..."
	if bytes <= 0 {
		return s
	}
	return strings.ToValidUTF8(s[:max(0, len(s)-bytes-len(dots))], "") + dots
}
