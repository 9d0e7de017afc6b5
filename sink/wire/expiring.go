package wire

import (
	"encoding/json"
	"strconv"
)

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
	same := Event{ID: e.ID, Collection: e.Collection, Document: e.Document, Omitted: e.Omitted, Etag: e.Etag, Ts: e.Ts, TTL: e.TTL}
	b := e.ExpiresAt.append(append(same.begin(), `,"expiresAt":"`...))
	b = strconv.AppendInt(append(b, `","before":`...), int64(e.Before), 10)
	return append(b, '}')
}
