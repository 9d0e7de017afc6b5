package wire

import (
	"encoding/json"
	"strconv"
)

// Limits of the indexes of a collection.
const (
	MaxIndexes = 8
	// MaxPointer is the most bytes of a pointer.
	MaxPointer = 255
)

// QueryRequest asks for the documents of a collection for which every condition holds, in pages. Every member may be
// left out, but for Where or Order.
//
// With a continuation, Count, and what is left out of the members after it, are as for the page before, and may not be
// others.
type QueryRequest struct {
	Limit        int    `json:"limit,omitempty"`        // 1 to MaxListLimit, DefaultListLimit if left out
	Continuation string `json:"continuation,omitempty"` // of the page before
	// Where has the conditions, by JSON pointer (RFC 6901): a string, number, boolean or null, which the value at the
	// pointer is to equal, or an object of the members gt, gte, lt, lte, in and prefix.
	Where map[string]json.RawMessage `json:"where,omitempty"`
	// Order is a pointer, or - and a pointer for the greatest value first; ByDeadline or ByID; no particular order if
	// left out.
	Order Order `json:"order,omitempty"`
	// Until and Within are as those of a list by deadline.
	Until  *Time  `json:"until,omitempty"`
	Within string `json:"within,omitempty"`
	// Count asks how many there are, in place of the documents.
	Count bool `json:"count,omitempty"`
	// Scan allows the query to examine all documents where no index serves it.
	Scan bool `json:"scan,omitempty"`
}

// IndexCount is how much one of the indexes of a collection has, also of documents that are expired and not yet reaped.
type IndexCount struct {
	Pointer    string       `json:"pointer"`
	Entries    int64        `json:"entries"`          // values of documents
	NotIndexed int64        `json:"notIndexed"`       // documents whose value at the pointer the index leaves out
	Making     *IndexMaking `json:"making,omitempty"` // nil once the index is made; until then it serves no query
}

// IndexMaking is how far an index is made.
type IndexMaking struct {
	Made int64 `json:"made"` // documents
	Of   int64 `json:"of"`
}

// ByID is the order of a query by id.
const ByID Order = "id"

// QueryReply is a page of a query. The last page has no continuation. Write it with [QueryReply.Encode]: see
// [ListReply].
type QueryReply struct {
	Documents []Document `json:"documents,omitzero"`
	// Count is how many documents of this part of the collection there are, if the request asks for that. Those of all
	// pages are to be added.
	Count        *int64 `json:"count,omitempty"`
	Examined     int64  `json:"examined"` // entries of an index, or documents, that were examined for this page
	Continuation string `json:"continuation,omitempty"`
}

// Encode writes the page as JSON, as [ListReply.Encode] does. One with a Count has no documents.
func (r QueryReply) Encode() []byte {
	b := []byte{'{'}
	if r.Count != nil {
		b = strconv.AppendInt(append(b, `"count":`...), *r.Count, 10)
	} else {
		b = appendDocuments(b, r.Documents, len(r.Continuation))
	}
	b = strconv.AppendInt(append(b, `,"examined":`...), r.Examined, 10)
	return endPage(b, r.Continuation)
}

// MarshalJSON implements [json.Marshaler] with Encode.
func (r QueryReply) MarshalJSON() ([]byte, error) { return r.Encode(), nil }
