package wire

import (
	"encoding/json"
	"strconv"
)

// Event is the body of an expiry event. Write it with [Event.Encode]: json.Marshal would
// remove the white space of the document and escape its <, > and &, which could make it too
// large for the server.
type Event struct {
	ID         string `json:"id"`
	Collection string `json:"collection"`
	// Document is the last version, its bytes unchanged; absent if Omitted.
	Document json.RawMessage `json:"document,omitempty"`
	// too large for the server's limits, or Config.EventBody is false
	Omitted   bool  `json:"documentOmitted,omitempty"`
	Etag      Etag  `json:"etag"`
	Ts        Time  `json:"ts"`
	TTL       int32 `json:"ttl,omitempty"` // the seconds that counted; 0 if an absolute deadline did
	ExpiredAt Time  `json:"expiredAt"`
}

// Encode writes the event as JSON, and does not change the bytes of the document. They must
// be valid JSON; Encode does not check that.
func (e Event) Encode() []byte {
	b := e.ExpiredAt.append(append(e.begin(), `,"expiredAt":"`...))
	return append(b, `"}`...)
}

// begin writes the members that an event and a warning share.
func (e Event) begin() []byte {
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
	if e.TTL != 0 {
		b = strconv.AppendInt(append(b, `,"ttl":`...), int64(e.TTL), 10)
	}
	return b
}

// appendVersion appends the members that identify a version.
func appendVersion(b []byte, etag Etag, ts Time) []byte {
	b = strconv.AppendUint(append(b, `,"etag":"`...), uint64(etag), 10)
	b = ts.append(append(b, `","ts":"`...))
	return append(b, '"')
}

// Expiring is the body of a warning: that a version will expire. Write it with [Expiring.Encode], as
// an [Event].
type Expiring struct {
	ID         string `json:"id"`
	Collection string `json:"collection"`
	// Document is the version, its bytes unchanged; absent if Omitted.
	Document  json.RawMessage `json:"document,omitempty"`
	Omitted   bool            `json:"documentOmitted,omitempty"` // as of an [Event]
	Etag      Etag            `json:"etag"`
	Ts        Time            `json:"ts"`
	TTL       int32           `json:"ttl,omitempty"` // the seconds that count; 0 if an absolute deadline does
	ExpiresAt Time            `json:"expiresAt"`     // the deadline
	Before    int32           `json:"before"`        // how many seconds before the deadline, of Config.WarnBefore
}

// At is the instant of the warning.
func (e Expiring) At() Time { return e.ExpiresAt - 1000*Time(e.Before) }

// Encode writes the warning as JSON, and does not change the bytes of the document. They must
// be valid JSON; Encode does not check that.
func (e Expiring) Encode() []byte {
	same := Event{ID: e.ID, Collection: e.Collection, Document: e.Document, Omitted: e.Omitted, Etag: e.Etag, Ts: e.Ts,
		TTL: e.TTL}
	b := e.ExpiresAt.append(append(same.begin(), `,"expiresAt":"`...))
	b = strconv.AppendInt(append(b, `","before":`...), int64(e.Before), 10)
	return append(b, '}')
}
