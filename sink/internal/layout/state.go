package layout

import (
	"fmt"
	"strings"
)

// Fields of the state that more than one script uses, and their values.
const (
	// SizePrefix begins the field that holds the [Size] of a collection.
	SizePrefix = "size:"
	// Refused is the value of the field rebuild in a shard that is damaged and cannot be
	// rebuilt. The other values are "" and the offset below which documents are missing.
	Refused = "refused"
)

// Size is the size of a collection in one shard: the number of documents and of the
// members of the two indexes, with a space between. Each commit stores it in the state, so
// that a later script notices if Redis has lost something.
type Size string

// noSize is the size of a collection without documents. Such a collection has no field in
// the state.
const noSize Size = "0 0 0"

// NewSize makes a size from its three numbers.
func NewSize(documents, inherit, own int64) Size {
	return Size(fmt.Sprintf("%d %d %d", documents, inherit, own))
}

// SizeOf is the size that a field of the state holds, which may be absent ("").
func SizeOf(field string) Size {
	if field == "" {
		return noSize
	}
	return Size(field)
}

// Documents is the number of documents, in decimal.
func (s Size) Documents() string {
	documents, _, _ := strings.Cut(string(s), " ")
	return documents
}
