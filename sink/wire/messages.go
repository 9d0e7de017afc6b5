package wire

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Headers that lapse reads or writes.
const (
	HeaderIfMatch   = "Lapse-If-Match"   // on a write: the etag that the live document must have, or *
	HeaderReplyTo   = "Lapse-Reply-To"   // on a write, configuration or drop: where the outcome goes
	HeaderEtag      = "Lapse-Etag"       // on the reply of a read
	HeaderTs        = "Lapse-Ts"         // on the reply of a read
	HeaderExpiresAt = "Lapse-Expires-At" // on the reply of a read, unless the document never expires
	HeaderCode      = "Lapse-Code"       // on a rejection: the status, such as 400
	HeaderError     = "Lapse-Error"      // on a rejection: what was wrong and what is allowed
	HeaderSubject   = "Lapse-Subject"    // on a rejection: the subject of what was rejected
	HeaderSeq       = "Lapse-Seq"        // on a rejection: its sequence in the log
	// HeaderTruncated is on a rejection that does not carry the whole original
	// body: the number of bytes that the original had.
	HeaderTruncated = "Lapse-Truncated"
	HeaderTrace     = "traceparent" // W3C trace context, taken over from a write to its event
)

// ReplyPrefix is where outcomes may go: a client must not make lapse speak where
// it may not speak itself.
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

const timeLayout = "2006-01-02T15:04:05.000Z"

// Time is an instant in Unix milliseconds, written as RFC 3339 in UTC with
// milliseconds. Any RFC 3339 can be read; what is finer than a millisecond is cut
// off. The zero Time, 1970, stands for none where JSON leaves it out.
type Time int64

func (t Time) String() string { return string(t.append(nil)) }

func (t Time) append(b []byte) []byte {
	return time.UnixMilli(int64(t)).UTC().AppendFormat(b, timeLayout)
}

// MarshalText implements [encoding.TextMarshaler].
func (t Time) MarshalText() ([]byte, error) { return t.append(nil), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Time) UnmarshalText(b []byte) error {
	at, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return err
	}
	*t = Time(at.UnixMilli())
	return nil
}

// Etag is the log sequence of a version's write, in decimal.
type Etag uint64

func (e Etag) String() string { return strconv.FormatUint(uint64(e), 10) }

// ParseEtag reads an etag: a positive number in decimal.
func ParseEtag(s string) (Etag, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != s {
		return 0, fmt.Errorf("etag %q: allowed is a positive number in decimal", abbreviate(s))
	}
	return Etag(n), nil
}

// MarshalText implements [encoding.TextMarshaler].
func (e Etag) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (e *Etag) UnmarshalText(b []byte) error {
	n, err := ParseEtag(string(b))
	*e = n
	return err
}

// Outcome is what became of a write, a configuration or a drop. It goes to the
// message's Lapse-Reply-To, once committed.
type Outcome struct {
	Status    int    `json:"status"`
	Etag      Etag   `json:"etag,omitzero"`
	Ts        Time   `json:"ts,omitzero"`
	ExpiresAt *Time  `json:"expiresAt,omitempty"` // absent if it never expires
	Error     string `json:"error,omitempty"`
}

// Indexing says whether a collection keeps an expiry index.
type Indexing string

// The indexing modes.
const (
	Consistent Indexing = "consistent"
	NoIndex    Indexing = "none"
)

// Config is a collection's configuration, as it is published and as it is read.
// It is for writing, and for reading what lapse has written: reading what
// anyone may have published takes ttlrules.ParseDefault, which says what is allowed.
type Config struct {
	// DefaultTTL is nil (TTL is off), -1 (on, without a default), or whole seconds.
	DefaultTTL *int32 `json:"defaultTtl"`
	// IndexingMode is Consistent if left out of what is published; what is read
	// always has it.
	IndexingMode Indexing `json:"indexingMode,omitempty"`
	// IndexBuilding, in a read, says that the index is being built.
	IndexBuilding bool `json:"indexBuilding,omitempty"`
}

// Event is the body of an expiry event. Write it with [Event.Encode]: json.Marshal
// would take the white space out of the document and rewrite its <, > and &, so
// that it might no longer fit where it had fitted as a write.
type Event struct {
	ID         string `json:"id"`
	Collection string `json:"collection"`
	// Document is the last version, its bytes unchanged; absent if Omitted.
	Document  json.RawMessage `json:"document,omitempty"`
	Omitted   bool            `json:"documentOmitted,omitempty"` // too large for the server's limits
	Etag      Etag            `json:"etag"`
	Ts        Time            `json:"ts"`
	TTL       int32           `json:"ttl"` // the seconds that counted
	ExpiredAt Time            `json:"expiredAt"`
}

// Encode is the event as JSON, its document's bytes unchanged. They must be valid
// JSON; that is not checked again here.
func (e Event) Encode() []byte {
	b := make([]byte, 0, len(e.Document)+len(e.ID)+len(e.Collection)+192)
	b = appendString(append(b, `{"id":`...), e.ID)
	b = appendString(append(b, `,"collection":`...), e.Collection)
	if len(e.Document) > 0 {
		b = append(append(b, `,"document":`...), e.Document...)
	}
	if e.Omitted {
		b = append(b, `,"documentOmitted":true`...)
	}
	b = appendVersion(b, e.Etag, e.Ts)
	b = strconv.AppendInt(append(b, `,"ttl":`...), int64(e.TTL), 10)
	b = e.ExpiredAt.append(append(b, `,"expiredAt":"`...))
	return append(b, `"}`...)
}

// appendVersion appends the members that tell a version.
func appendVersion(b []byte, etag Etag, ts Time) []byte {
	b = strconv.AppendUint(append(b, `,"etag":"`...), uint64(etag), 10)
	b = ts.append(append(b, `","ts":"`...))
	return append(b, '"')
}

// Document is one document of a list.
type Document struct {
	ID        string          `json:"id"`
	Etag      Etag            `json:"etag"`
	Ts        Time            `json:"ts"`
	ExpiresAt *Time           `json:"expiresAt,omitempty"` // absent if it never expires
	Document  json.RawMessage `json:"document"`
}

// ListRequest asks for a page of a collection. All may be left out.
type ListRequest struct {
	Limit        int    `json:"limit,omitempty"`        // 1 to MaxListLimit, DefaultListLimit if left out
	Continuation string `json:"continuation,omitempty"` // of the page before
}

// Limits of a list.
const (
	DefaultListLimit = 100
	MaxListLimit     = 1000
)

// ListReply is a page of a collection. Without a continuation it is the last.
// Write it with [ListReply.Encode]: json.Marshal would change the documents' bytes.
type ListReply struct {
	Documents    []Document `json:"documents"` // in no particular order
	Continuation string     `json:"continuation,omitempty"`
}

// Encode is the page as JSON, its documents' bytes unchanged. Each must be valid
// JSON; that is not checked again here. An empty page has [], not null.
func (r ListReply) Encode() []byte {
	size := len(r.Continuation) + 64
	for _, d := range r.Documents {
		size += len(d.Document) + len(d.ID) + 160
	}
	b := append(make([]byte, 0, size), `{"documents":[`...)
	for i, d := range r.Documents {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendString(append(b, `{"id":`...), d.ID)
		b = appendVersion(b, d.Etag, d.Ts)
		if d.ExpiresAt != nil {
			b = append(d.ExpiresAt.append(append(b, `,"expiresAt":"`...)), '"')
		}
		b = append(append(b, `,"document":`...), d.Document...)
		b = append(b, '}')
	}
	b = append(b, ']')
	if r.Continuation != "" {
		b = appendString(append(b, `,"continuation":`...), r.Continuation)
	}
	return append(b, '}')
}

// MarshalJSON implements [json.Marshaler]. It is Encode, so that an empty page is
// right whoever writes it.
func (r ListReply) MarshalJSON() ([]byte, error) { return r.Encode(), nil }

func appendString(b []byte, s string) []byte {
	if isLiteral(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	text, _ := json.Marshal(s) // a string cannot fail
	return append(b, text...)
}

// isLiteral says whether a string stands in JSON as it is.
func isLiteral(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}

// CountReply counts the documents of a collection.
type CountReply struct {
	Live    int64 `json:"live"`
	Expired int64 `json:"expired"` // not reaped yet
}

// ForecastRequest asks how many documents will expire. All may be left out.
type ForecastRequest struct {
	Buckets int    `json:"buckets,omitempty"` // 1 to MaxBuckets, DefaultBuckets if left out
	Within  string `json:"within,omitempty"`  // a Go duration such as "1h", DefaultWithin if left out
}

// Limits of a forecast.
const (
	DefaultBuckets = 10
	MaxBuckets     = 1000
	DefaultWithin  = time.Hour
)

// ForecastReply says how many documents will expire, if nothing is written and
// nothing configured until then.
type ForecastReply struct {
	Buckets []Bucket `json:"buckets"`
}

// Bucket counts the documents that expire after From and at or before Until.
type Bucket struct {
	From  Time  `json:"from"`
	Until Time  `json:"until"`
	Count int64 `json:"count"`
}
