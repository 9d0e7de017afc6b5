package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Kind is a kind of messages in the stream of events: the token of their subjects behind the prefix.
type Kind string

// The kinds of messages in the stream of events, beside lapse's own.
const (
	KindExpired  Kind = "expired"  // [Event]
	KindDue      Kind = "due"      // [Due]
	KindExpiring Kind = "expiring" // [Expiring]
	KindRejected Kind = "rejected" // [Rejection]
	KindChanged  Kind = "changed"  // [Changed]
)

// About is what a message of the stream of events is about, as its subject and its headers tell.
type About struct {
	Kind       Kind
	Log        string // the ce-source up to the collection; of a rejection, the stream of the log
	Collection string
	ID         string // empty of a drop and a rejection
	// Seq is a sequence of the log: the etag of the version that has expired or will, or the sequence of the write, of
	// the drop or of the message that was rejected.
	Seq uint64
	At  Time // when it was due, or when the change happened; 0 of a rejection
	// Before and ExpiresAt tell the warnings of a version apart: see [Expiring].
	Before    int32
	ExpiresAt Time
}

// errOwn is the error of ParseAbout and ParseEvent about a message that lapse has published for itself.
var errOwn = errors.New("no message for clients: its subject has none of the kinds expired, due, expiring, rejected " +
	"and changed")

// ParseAbout reads what a message of the stream of events is about. After an error, a Kind and a Collection that are
// not empty are those of the message. Without a Kind the message is lapse's own.
func ParseAbout(p Prefix, subject string, header map[string][]string) (a About, err error) {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(subject, string(p)+"."), ".")
	get := valuesOf(header)
	switch a.Kind = Kind(kind); a.Kind {
	case KindExpired, KindDue, KindExpiring, KindChanged:
	case KindRejected:
		a.Collection, _, _ = strings.Cut(rest, ".")
		a.Log = get(HeaderStream)
		a.Seq, err = strconv.ParseUint(get(HeaderSeq), 10, 64)
		return a, err
	default:
		return About{}, errOwn
	}
	source := get("ce-source")
	name := strings.LastIndexByte(source, '/') + 1
	a.Log, a.Collection = source[:name], source[name:]
	if a.Kind != KindDue { // the subject of a due message has its target in place of the collection
		if a.Collection, _, _ = strings.Cut(rest, "."); a.Collection != source[name:] {
			return a, fmt.Errorf("ce-source %s does not end with the collection of the subject", Quote(source))
		}
	}
	err = a.parseID(get("ce-subject"), get("ce-id"))
	if timeErr := a.At.UnmarshalText([]byte(get("ce-time"))); timeErr != nil {
		err = errors.Join(err, fmt.Errorf("ce-time: %w", timeErr))
	}
	return a, err
}

// parseID reads the ce-subject and the ce-id: <collection>/<id>/<etag> of what has expired, with
// /expiring/<before>/<deadline in Unix milliseconds> behind it of a warning; <collection>/<id>/<seq>/changed, or
// <collection>/<seq>/dropped.
func (a *About) parseID(token, name string) (err error) {
	rest, found := strings.CutPrefix(name, a.Collection+"/")
	isDrop := a.Kind == KindChanged && token == ""
	if !isDrop {
		if a.ID, err = UnescapeID(token); err != nil {
			return err
		}
		var ofID bool
		rest, ofID = strings.CutPrefix(rest, token+"/")
		found = found && ofID
	}
	number, rest, _ := strings.Cut(rest, "/")
	a.Seq, err = strconv.ParseUint(number, 10, 64)
	switch {
	case isDrop:
		found = found && rest == "dropped"
	case a.Kind == KindChanged:
		found = found && rest == "changed"
	case a.Kind == KindExpiring:
		n, _ := fmt.Sscanf(rest, "expiring/%d/%d", &a.Before, &a.ExpiresAt)
		found = found && n == 2 && rest == fmt.Sprintf("expiring/%d/%d", a.Before, int64(a.ExpiresAt))
	default:
		found = found && rest == ""
	}
	if !found || err != nil {
		return fmt.Errorf("ce-id %s is not that of a message of the kind %s", Quote(name), a.Kind)
	}
	return nil
}

// Notification is a message of the stream of events: what it is about, and one of an expiry event, a due message, a
// warning, a rejection and a change.
type Notification struct {
	About
	Expired  *Event
	Due      *Due
	Expiring *Expiring
	Rejected *Rejection
	Changed  *Changed
}

// ParseEvent reads a message of the stream of events. A Kind is there after an error too.
func ParseEvent(p Prefix, subject string, header map[string][]string, body []byte) (n Notification, err error) {
	n.About, err = ParseAbout(p, subject, header)
	switch n.Kind {
	case KindExpired: // its body tells all that its headers do
		n.Expired = new(Event)
		err = json.Unmarshal(body, n.Expired)
		n.ID, n.Seq, n.At = n.Expired.ID, uint64(n.Expired.Etag), n.Expired.ExpiredAt
	case KindExpiring:
		n.Expiring = new(Expiring)
		err = json.Unmarshal(body, n.Expiring)
		n.ID, n.Seq, n.At = n.Expiring.ID, uint64(n.Expiring.Etag), n.Expiring.At()
	case KindDue:
		n.Due = newDue(n.About, header, body)
		err = errors.Join(err, CheckTarget(n.Due.Target), CheckCollection(n.Collection))
	case KindRejected:
		n.Rejected = &Rejection{Seq: n.Seq, Body: string(body)}
		err = errors.Join(err, n.Rejected.parse(header))
	case KindChanged:
		n.Changed = &Changed{Type: valuesOf(header)("ce-type"), Seq: n.Seq}
		err = errors.Join(err, json.Unmarshal(body, &n.Changed.Change))
	}
	return n, err
}

// valuesOf returns a function that reads a value of a header, "" if there is none.
func valuesOf(header map[string][]string) func(name string) string {
	return func(name string) string {
		if values := header[name]; len(values) > 0 {
			return values[0]
		}
		return ""
	}
}

// Rejection is a message that lapse did not apply, and why. lapse publishes it as the body of that message, with
// headers.
type Rejection struct {
	Code      int    `json:"code"`
	Error     string `json:"error"`
	Subject   string `json:"subject"` // of the message
	Seq       uint64 `json:"seq"`     // of the message in the log
	Body      string `json:"body"`
	Truncated int    `json:"truncated,omitempty"` // the message's bytes, if Body is not all of them
}

// parse reads the headers, but for the sequence.
func (r *Rejection) parse(header map[string][]string) (err error) {
	get := valuesOf(header)
	r.Error, r.Subject = get(HeaderError), get(HeaderSubject)
	var truncatedErr error
	if text := get(HeaderTruncated); text != "" {
		r.Truncated, truncatedErr = strconv.Atoi(text)
	}
	r.Code, err = strconv.Atoi(get(HeaderCode))
	return errors.Join(err, truncatedErr)
}
