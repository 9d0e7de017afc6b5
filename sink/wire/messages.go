package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
)

// Headers that lapse reads or writes.
const (
	// HeaderIfMatch is the condition of a write, a configuration or a drop: the etag that
	// the live document, or the collection's configuration, must have; * for any.
	HeaderIfMatch = "Lapse-If-Match"
	HeaderReplyTo = "Lapse-Reply-To" // on a write, configuration or drop: the subject for the outcome
	HeaderEtag    = "Lapse-Etag"     // on the reply of a read
	HeaderTs      = "Lapse-Ts"       // on the reply of a read
	// HeaderExpiresAt is on the reply of a read, unless the document never expires. On a write it is an
	// absolute deadline, in place of a ttl.
	HeaderExpiresAt = "Lapse-Expires-At"
	// HeaderClock is on a write: from where the TTL counts, in place of the instant of the write. It is ClockKeep, or an
	// instant that is not after that one, perhaps with when the document was created: see [ParseClock].
	HeaderClock = "Lapse-Clock"
	// HeaderNotAfter is on a write whose body has a ttl: an absolute instant, from which the document is
	// expired however long its TTL is renewed. The sooner of both is its deadline.
	HeaderNotAfter = "Lapse-Not-After"
	// HeaderTarget is on a write whose document is a message: at its expiry its bytes are published on
	// [Prefix.Due], in place of an event. It is on that message and on the reply of a read too. See
	// [CheckTarget].
	HeaderTarget = "Lapse-Target"
	// HeaderSlide is on the touch that lapse appends for a read, where [Config.SlideOnRead] is set. Such a
	// touch that comes too late takes no effect, and is not rejected: no client has published it. It is
	// refused on a message that has no etag in HeaderIfMatch, or has a HeaderReplyTo. A client that forges
	// all of that goes without the rejection of its own touch, and gains nothing.
	HeaderSlide   = "Lapse-Slide"
	HeaderCode    = "Lapse-Code"    // on a rejection: the status, such as 400
	HeaderError   = "Lapse-Error"   // on a rejection: what was wrong and what is allowed
	HeaderWarning = "Lapse-Warning" // on the answer to a write over HTTP: Outcome.Warning
	HeaderSubject = "Lapse-Subject" // on a rejection: the subject of the rejected message
	HeaderStream  = "Lapse-Stream"  // on a rejection: the log that has the rejected message
	HeaderSeq     = "Lapse-Seq"     // on a rejection: the sequence of that message in the log
	// HeaderOffset is on the first event or rejection of some: up to which message of the log lapse had
	// read when it published them. It is "<sequence>:<stamp in Unix nanoseconds>", and for lapse itself.
	HeaderOffset = "Lapse-Offset"
	// HeaderTruncated is on a rejection that carries only the beginning of the rejected body, and on a
	// due message that carries nothing of its document: the length of the whole body.
	HeaderTruncated = "Lapse-Truncated"
	// HeaderDigest is on a message with a message id that a gateway has published: a hash of what
	// the gateway was asked. By it the gateway knows a request that is repeated from another one
	// with the same id.
	HeaderDigest = "Request-Digest"
	// HeaderTrace is the W3C trace context of a write. If it is valid, the event or the
	// rejection of the write carries it too; see [ValidTraceparent].
	HeaderTrace = "traceparent"
)

// ClockKeep is the value of HeaderClock with which the TTL of a document goes on counting from where
// it began.
const ClockKeep = "keep"

// ReplyPrefix begins the subjects on which lapse always publishes outcomes: inboxes. It
// refuses others, because a client could make lapse publish where the client itself must
// not. The operator may allow more; see [Prefix.CheckReplyPrefix].
const ReplyPrefix = "_INBOX."

// Status codes of outcomes and rejections, as in HTTP.
const (
	StatusOK                 = 200 // replaced, patched, touched, configured
	StatusCreated            = 201
	StatusNoContent          = 204 // deleted, dropped
	StatusBadRequest         = 400
	StatusNotFound           = 404
	StatusConflict           = 409
	StatusPreconditionFailed = 412
	StatusTooLarge           = 413
	StatusInternal           = 500
	StatusUnavailable        = 503
)

// Etag is the log sequence of a version's write, or of a configuration, in decimal.
type Etag uint64

func (e Etag) String() string { return strconv.FormatUint(uint64(e), 10) }

// ParseEtag reads an etag: a positive number in decimal.
func ParseEtag(s string) (Etag, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, etagError(s)
	}
	return Etag(n), nil
}

// etagError is a text that is not an etag.
type etagError string

func (e etagError) Error() string {
	return "etag " + Quote(string(e)) + " is not valid: use a positive whole number in decimal."
}

// MarshalText implements [encoding.TextMarshaler].
func (e Etag) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (e *Etag) UnmarshalText(b []byte) error {
	n, err := ParseEtag(string(b))
	*e = n
	return err
}

// Outcome is the result of a write, a configuration or a drop. lapse publishes it on the
// subject in Lapse-Reply-To, once the message is committed.
type Outcome struct {
	Status    int    `json:"status"`
	Etag      Etag   `json:"etag,omitzero"`
	Ts        Time   `json:"ts,omitzero"`
	ExpiresAt *Time  `json:"expiresAt,omitempty"` // absent if it never expires
	Error     string `json:"error,omitempty"`
	// Reason is why it took no effect, for programs: [ReasonNoCollection], [ReasonUndeliverable], or none.
	Reason string `json:"reason,omitempty"`
	// Warning, of a write that took effect, is what will not do what its author may think.
	Warning string `json:"warning,omitempty"`
}

// Indexing is the indexing mode of a collection. The index is always kept: no mode costs or saves anything.
type Indexing string

// The indexing modes. Lazy is stored and reported, and does what Consistent does. While it is NoIndex, no default
// TTL may be set, and it may not be set while a default TTL is.
const (
	Consistent Indexing = "consistent"
	Lazy       Indexing = "lazy"
	NoIndex    Indexing = "none"
)

// Config is a collection's configuration, as clients publish and read it. To parse a
// configuration that a client published, use ttlrules.ParseDefault, which says what is
// allowed.
type Config struct {
	// DefaultTTL is nil (TTL is off), -1 (on, without a default), or whole seconds.
	DefaultTTL *int32 `json:"defaultTtl"`
	// IndexingMode may be left out when it is published, for Consistent; a read always has it.
	IndexingMode Indexing `json:"indexingMode,omitempty"`
	// MinTTL and MaxTTL are limits of the TTL that counts for what is written, in seconds; 0 if there
	// is none. They need a DefaultTTL.
	MinTTL int32 `json:"minTtl,omitempty"`
	MaxTTL int32 `json:"maxTtl,omitempty"`
	// WarnBefore are up to four numbers of seconds before the deadline of a document, at which a
	// warning ([Expiring]) is published.
	WarnBefore []int32 `json:"warnBefore,omitempty"`
	// MaxLife is how many seconds a document lives at most after it was created, whatever renews it; 0 if there is no
	// limit. It needs a DefaultTTL.
	MaxLife int32 `json:"maxLife,omitempty"`
	// SlideOnRead renews the clock of a document that is read with get, once more than this part of its
	// TTL has passed. An absolute deadline does not slide.
	SlideOnRead Slide `json:"slideOnRead,omitempty"`
	// EventBody false lets the events of the collection go without the document, marked as Omitted. Nil is
	// true.
	EventBody *bool `json:"eventBody,omitempty"`
	// Changes has each write that takes effect published: see [Change].
	Changes bool `json:"changes,omitempty"`
	// Paused holds back what expires: it is hidden from readers, and gets its event when the collection is resumed.
	Paused bool `json:"paused,omitempty"`
	// Indexes are up to MaxIndexes JSON pointers (RFC 6901) by whose values the documents can be queried.
	Indexes []string `json:"indexes,omitempty"`
	// Etag, in a read, is the log sequence of the message that made this
	// configuration; absent if the collection was never configured.
	Etag Etag `json:"etag,omitzero"`
}

// ConfigProperties are the names that a published [Config] may have.
var ConfigProperties = []string{
	"defaultTtl", "indexingMode", "minTtl", "maxTtl", "maxLife", "warnBefore", "slideOnRead", "eventBody", "changes",
	"paused",
	"indexes",
}

// Published is the configuration as clients publish it, without what only a read has.
func (c Config) Published() Config {
	c.Etag = 0
	return c
}

// Document is one document of a list.
type Document struct {
	ID        string `json:"id"`
	Etag      Etag   `json:"etag"`
	Ts        Time   `json:"ts"`
	ExpiresAt *Time  `json:"expiresAt,omitempty"` // absent if it never expires
	Target    string `json:"target,omitempty"`    // see HeaderTarget
	// Clock is from where the TTL counts; absent where that is Ts. Created is when the document was created, if that is
	// before Clock and maxLife counts from there. Deadline is the absolute deadline that a write has named, and NotAfter
	// the limit of the TTL. They and Traceparent are what an export needs beside the body.
	Clock       Time            `json:"clock,omitzero"`
	Created     Time            `json:"created,omitzero"`
	Deadline    *Time           `json:"deadline,omitempty"`
	NotAfter    *Time           `json:"notAfter,omitempty"`
	Traceparent string          `json:"traceparent,omitempty"`
	Document    json.RawMessage `json:"document"`
}

// UnmarshalJSON implements [json.Unmarshaler]. It keeps the white space around the document, which belongs to its
// bytes: [ListReply.Encode] writes the document last.
func (d *Document) UnmarshalJSON(b []byte) error {
	type plain Document
	if err := json.Unmarshal(b, (*plain)(d)); err != nil {
		return err
	}
	// A quote within a string is escaped, so what is found is the member.
	if _, rest, ok := bytes.Cut(b, []byte(`,"document":`)); ok {
		if whole := bytes.TrimSuffix(rest, []byte("}")); bytes.Equal(bytes.TrimSpace(whole), d.Document) {
			d.Document = bytes.Clone(whole)
		}
	}
	return nil
}

// GetRequest asks for a document. It may be left out.
type GetRequest struct {
	// Renew waits until the read has renewed the clock of a document that slides ([Config.SlideOnRead]), if it is to: the
	// reply has the new deadline.
	Renew bool `json:"renew,omitempty"`
}

// ListRequest asks for a page of a collection. Every member may be left out.
//
// With a continuation, the members after it are those of the page before if they are left out, and
// may not be others.
type ListRequest struct {
	Limit        int    `json:"limit,omitempty"`        // 1 to MaxListLimit, DefaultListLimit if left out
	Continuation string `json:"continuation,omitempty"` // of the page before
	Order        Order  `json:"order,omitempty"`        // no particular order if left out
	// Until and Within, of which one may be set, limit a list by deadline to the documents that
	// will expire by an instant, or within a duration, as ParseDuration reads it, from the first page on.
	Until  *Time  `json:"until,omitempty"`
	Within string `json:"within,omitempty"`
	Prefix string `json:"prefix,omitempty"` // of the ids; not in a list by deadline
}

// Order is the order of a list.
type Order string

// ByDeadline lists the documents that will expire, by their deadlines, and by their ids where these
// are the same.
const ByDeadline Order = "deadline"

// Limits of a list.
const (
	DefaultListLimit = 100
	MaxListLimit     = 1000
)

// ListReply is a page of a collection. The last page has no continuation. Write it with
// [ListReply.Encode]: json.Marshal would change the documents' bytes.
type ListReply struct {
	Documents    []Document `json:"documents"`
	Continuation string     `json:"continuation,omitempty"`
}

// Encode writes the page as JSON, and does not change the bytes of the documents. Each must be
// valid JSON; Encode does not check that. An empty page has [], not null.
func (r ListReply) Encode() []byte {
	return endPage(appendDocuments([]byte{'{'}, r.Documents, len(r.Continuation)), r.Continuation)
}

// appendDocuments appends the member of a page that has its documents. rest is about how much follows.
func appendDocuments(b []byte, documents []Document, rest int) []byte {
	size := rest + 64
	for _, d := range documents {
		size += len(d.Document) + len(d.ID) + 160
	}
	b = append(slices.Grow(b, size), `"documents":[`...)
	for i, d := range documents {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"id":`...), d.ID)
		b = appendVersion(b, d.Etag, d.Ts)
		if d.ExpiresAt != nil {
			b = append(d.ExpiresAt.append(append(b, `,"expiresAt":"`...)), '"')
		}
		if d.Target != "" {
			b = appendString(append(b, `,"target":`...), d.Target)
		}
		if d.Clock != 0 {
			b = append(d.Clock.append(append(b, `,"clock":"`...)), '"')
		}
		if d.Created != 0 {
			b = append(d.Created.append(append(b, `,"created":"`...)), '"')
		}
		if d.Deadline != nil {
			b = append(d.Deadline.append(append(b, `,"deadline":"`...)), '"')
		}
		if d.NotAfter != nil {
			b = append(d.NotAfter.append(append(b, `,"notAfter":"`...)), '"')
		}
		if d.Traceparent != "" {
			b = appendString(append(b, `,"traceparent":`...), d.Traceparent)
		}
		b = append(append(b, `,"document":`...), d.Document...)
		b = append(b, '}')
	}
	return append(b, ']')
}

// endPage ends a page, with its continuation if there is one.
func endPage(b []byte, continuation string) []byte {
	if continuation != "" {
		b = appendString(append(b, `,"continuation":`...), continuation)
	}
	return append(b, '}')
}

// MarshalJSON implements [json.Marshaler] with Encode, so that json.Marshal writes an empty page
// with [] too.
func (r ListReply) MarshalJSON() ([]byte, error) { return r.Encode(), nil }

func appendString(b []byte, s string) []byte {
	if isLiteral(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	text, _ := json.Marshal(s) // a string cannot fail
	return append(b, text...)
}

// isLiteral reports whether a string needs no escape in JSON.
func isLiteral(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// CollectionsRequest asks for a page of the collections. Every member may be left out.
type CollectionsRequest struct {
	Limit        int    `json:"limit,omitempty"`        // 1 to MaxListLimit, DefaultListLimit if left out
	Continuation string `json:"continuation,omitempty"` // of the page before
}

// CollectionsReply is a page of the collections that are configured or hold
// documents, in the order of their names. The last page has no continuation.
type CollectionsReply struct {
	Collections  []Collection `json:"collections"`
	Continuation string       `json:"continuation,omitempty"`
}

// Collection is one collection in a CollectionsReply.
type Collection struct {
	Name         string   `json:"name"`
	DefaultTTL   *int32   `json:"defaultTtl"` // as in Config
	IndexingMode Indexing `json:"indexingMode"`
	MaxLife      int32    `json:"maxLife,omitempty"`
	Paused       bool     `json:"paused,omitempty"`
	Indexes      []string `json:"indexes,omitempty"`
	Etag         Etag     `json:"etag,omitzero"` // absent if the collection was never configured
	Live         int64    `json:"live"`
	Expired      int64    `json:"expired"` // not reaped yet
}

// CountReply counts the documents of a collection.
type CountReply struct {
	Live    int64        `json:"live"`
	Expired int64        `json:"expired"` // not reaped yet
	Indexes []IndexCount `json:"indexes,omitempty"`
}
