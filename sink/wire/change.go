package wire

import (
	"encoding/json"
	"strings"
)

// The types (ce-type) of the messages about changes.
const (
	TypeCreated = "lapse.document.created.v1"
	TypeUpdated = "lapse.document.updated.v1"
	TypeDeleted = "lapse.document.deleted.v1"
	TypeDropped = "lapse.collection.dropped.v1"
)

// Change is the body of a message about a write that has taken effect, or about a drop, in a collection
// with [Config.Changes]. Write it with [Change.Encode], as an [Event].
type Change struct {
	ID         string `json:"id,omitempty"` // empty of a drop
	Collection string `json:"collection"`
	// Document is the version, its bytes unchanged; absent of a delete and a drop, and if Omitted.
	Document json.RawMessage `json:"document,omitempty"`
	Omitted  bool            `json:"documentOmitted,omitempty"` // as of an [Event]
	// Unchanged marks a touch, by a client or for a read: the document is as it was, and is left out.
	Unchanged bool  `json:"documentUnchanged,omitempty"`
	Etag      Etag  `json:"etag,omitzero"`       // absent of a delete and a drop
	Ts        Time  `json:"ts"`                  // when it happened
	ExpiresAt *Time `json:"expiresAt,omitempty"` // absent if the version never expires
}

// Changed is a change: its type, such as [TypeCreated], and the log sequence of the write or the drop.
type Changed struct {
	Type string `json:"type"`
	Change
	Seq uint64 `json:"seq"`
}

// Kind is the last word but one of the type: created, updated, deleted or dropped.
func (c Changed) Kind() string {
	kind := strings.TrimSuffix(c.Type, ".v1")
	return kind[strings.LastIndexByte(kind, '.')+1:]
}

// SettledReply is the reply to a read of "settled": what the stream of events stores up to this sequence
// follows from writes that are committed. Who asks for it first and then reads documents misses no change
// if he reads the stream from behind it.
type SettledReply struct {
	Settled uint64 `json:"settled"`
	// Shards are the places in the logs from which Settled follows: the effect of all messages up to them is
	// committed.
	Shards []SettledShard `json:"shards,omitempty"`
}

// SettledShard is a place in the log of a shard.
type SettledShard struct {
	Seq       uint64 `json:"seq"`
	Watermark Time   `json:"watermark"` // log time there
}

// Encode writes the change as JSON, and does not change the bytes of the document. They must be valid
// JSON; Encode does not check that.
func (c Change) Encode() []byte {
	b := append(make([]byte, 0, len(c.Document)+len(c.ID)+len(c.Collection)+192), '{')
	if c.ID != "" {
		b = append(appendString(append(b, `"id":`...), c.ID), ',')
	}
	b = appendString(append(b, `"collection":`...), c.Collection)
	if len(c.Document) > 0 {
		b = append(append(b, `,"document":`...), c.Document...)
	}
	if c.Omitted {
		b = append(b, `,"documentOmitted":true`...)
	}
	if c.Unchanged {
		b = append(b, `,"documentUnchanged":true`...)
	}
	if c.Etag != 0 {
		b = appendVersion(b, c.Etag, c.Ts)
	} else {
		b = append(c.Ts.append(append(b, `,"ts":"`...)), '"')
	}
	if c.ExpiresAt != nil {
		b = append(c.ExpiresAt.append(append(b, `,"expiresAt":"`...)), '"')
	}
	return append(b, '}')
}
