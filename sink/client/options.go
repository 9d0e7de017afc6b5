package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Never, as the TTL of a document, means that it never expires. As a default, it means that
// TTL is on, and that only documents with a TTL of their own expire.
const Never time.Duration = -1

// Option changes one write, configuration or drop.
type Option func(*settings) error

// settings are what the options of a message set.
type settings struct {
	ttl         *ttlrules.TTL
	ifMatch     string
	messageID   string
	traceparent string
	ackOnly     bool
	expiresAt   string
	notAfter    string
	clock       string
	target      string
	id          string
}

// document reports whether an option is about a document: its clock, its target or its id.
func (s settings) document() bool {
	return s.ttl != nil || s.expiresAt != "" || s.notAfter != "" || s.clock != "" || s.target != "" || s.id != ""
}

func settle(options []Option) (s settings, err error) {
	for _, set := range options {
		if err := set(&s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// TTL gives the document a time to live of its own, as the member "ttl" at its top level. It is
// a whole number of seconds from 1 s to 2147483647 s (68 years), or [Never]; anything else,
// such as 1500 ms, is an [ErrInvalid]. So is a document that has a member "ttl" already, and
// a write without a document.
//
// A TTL counts from the instant of the write, and only while TTL is on in the collection.
func TTL(d time.Duration) Option {
	return func(s *settings) error {
		n, err := seconds(d)
		if err != nil || n == 0 {
			return invalid("TTL %s is not valid: use a whole number of seconds from 1 s to %d s, or client.Never", d,
				ttlrules.MaxSeconds)
		}
		ttl := ttlrules.TTL(n)
		s.ttl = &ttl
		return nil
	}
}

// ExpiresAt gives the document an absolute deadline, which counts in place of a TTL. A touch and a
// patch keep it; any other write, and a patch that names a ttl, ends it. A fraction of a millisecond is
// rounded up. lapse refuses a deadline that is not after the instant of the write, unless TTL is off.
func ExpiresAt(t time.Time) Option {
	return func(s *settings) (err error) {
		s.expiresAt, err = format("ExpiresAt", t)
		return err
	}
}

// NotAfter limits a document that has a TTL of its own, by the option [TTL] or a member "ttl": whatever
// renews that TTL, the document is expired from t. The sooner of both is its deadline. A touch and a patch
// keep the limit, and are refused with [ExpiresAt]; if a patch takes the ttl away, the limit is the
// deadline. Use it with Upsert, Create and
// Replace. As with [ExpiresAt], a fraction of a millisecond is rounded up.
func NotAfter(t time.Time) Option {
	return func(s *settings) (err error) {
		s.notAfter, err = format("NotAfter", t)
		return err
	}
}

// format writes the instant of an option.
func format(option string, t time.Time) (string, error) {
	if y := t.UTC().Year(); y < 0 || y > 9999 {
		return "", invalid("%s %s is not valid: use an instant in the years 0 to 9999", option, t)
	}
	return t.UTC().Format(time.RFC3339Nano), nil
}

// KeepClock lets the TTL of the document go on counting from where it began, although the document is
// written. Where there is no document, it begins now. Use it with Upsert, Replace and Patch.
func KeepClock() Option {
	return func(s *settings) error { s.clock = wire.ClockKeep; return nil }
}

// ClockFrom lets the TTL of the document, its own or the default of the collection, count from t, which must not be
// after the instant of the write. So what you bring over from elsewhere keeps its deadline, and still follows a default
// that changes. A document that is over by then expires at once, with its event. With ClockFrom, [ExpiresAt] may be
// over too, and may go with a ttl, which then does not count. Use it with every write but Delete.
func ClockFrom(t time.Time) Option {
	return func(s *settings) (err error) {
		s.clock, err = format("ClockFrom", t)
		return err
	}
}

// seconds is a duration in seconds, -1 for Never.
func seconds(d time.Duration) (int32, error) {
	switch {
	case d == Never:
		return -1, nil
	case d < 0 || d%time.Second != 0 || d > ttlrules.MaxSeconds*time.Second:
		return 0, ErrInvalid
	}
	return int32(d / time.Second), nil
}

// IfMatch makes the write conditional: it takes effect only if the live document, or the
// collection's configuration, has this etag. Otherwise the error is [ErrPrecondition].
func IfMatch(etag wire.Etag) Option {
	return func(s *settings) error {
		if etag == 0 {
			return invalid("the etag is 0: use one from a result or a document")
		}
		s.ifMatch = etag.String()
		return nil
	}
}

// IfExists makes the write conditional: it takes effect only on a live document, or on a
// configuration that was set. Otherwise the error is [ErrPrecondition].
func IfExists() Option {
	return func(s *settings) error { s.ifMatch = "*"; return nil }
}

// MessageID names the message: the log stores only the first message with an id within its
// duplicate window (2 minutes, unless lapse's operator has set another). So a write with
// an id may be repeated after an [ErrUnknownOutcome].
func MessageID(id string) Option {
	return func(s *settings) error {
		if id == "" || !utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl) {
			return invalid("message id %s is not valid: use a text in UTF-8 that is not empty and has no control characters",
				wire.Quote(id))
		}
		s.messageID = id
		return nil
	}
}

// Traceparent is the W3C trace context of the write. The document's expiry event, or the
// rejection, carries it.
func Traceparent(trace string) Option {
	return func(s *settings) error {
		if !wire.ValidTraceparent(trace) {
			return invalid("traceparent %s is not valid: use that of W3C Trace Context, such as "+
				"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", wire.Quote(trace))
		}
		s.traceparent = trace
		return nil
	}
}

// AckOnly ends the call when the log has the message: it is durable, and lapse will apply or
// reject it. The result has only Seq and Duplicate, and a rejection comes to
// [Collection.OnRejected] alone.
func AckOnly() Option {
	return func(s *settings) error { s.ackOnly = true; return nil }
}

// message makes the message of a write.
func (s settings) message(subject string, body []byte) Message {
	return Message{Subject: subject, Body: body, IfMatch: s.ifMatch, ID: s.messageID, Traceparent: s.traceparent,
		ExpiresAt: s.expiresAt, NotAfter: s.notAfter, Clock: s.clock, Target: s.target}
}

// encode writes a document, with the TTL if there is one. It does not change a
// json.RawMessage otherwise.
func (s settings) encode(document any) ([]byte, error) {
	body, raw, err := marshal(document)
	if err != nil {
		return nil, err
	}
	if !raw && s.ttl == nil && body[0] == '{' {
		return body, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, invalid("a %T is not a JSON object: use a struct, a map or a json.RawMessage that is one", document)
	}
	if s.ttl == nil {
		return body, nil
	}
	if own, ok := members["ttl"]; ok {
		return nil, invalid("the document already has a ttl, %s: leave it out, or leave the option TTL out", own)
	}
	separator := ","
	if len(members) == 0 {
		separator = ""
	}
	rest := bytes.TrimSpace(body)[1:]
	return append(strconv.AppendInt([]byte(`{"ttl":`), int64(*s.ttl), 10), separator+string(rest)...), nil
}

// marshal writes a document. If it is raw, nobody has checked that it is JSON.
func marshal(document any) (body []byte, raw bool, err error) {
	if raw, ok := document.(json.RawMessage); ok {
		return raw, true, nil
	}
	if body, err = json.Marshal(document); err != nil {
		return nil, false, fmt.Errorf("%w: encode the document: %w", ErrInvalid, err)
	}
	return body, false, nil
}

// decode reads a document. A json.RawMessage gets its bytes unchanged.
func decode[T any](body []byte) (value T, err error) {
	if raw, ok := any(&value).(*json.RawMessage); ok {
		*raw = body
		return value, nil
	}
	if err := json.Unmarshal(body, &value); err != nil {
		return value, fmt.Errorf("decode the document: %w", err)
	}
	return value, nil
}
