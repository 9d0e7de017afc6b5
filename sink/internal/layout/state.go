package layout

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// Fields of the state that more than one script uses, and their values.
const (
	// SizePrefix begins the field that holds the [Size] of a collection.
	SizePrefix = "size:"
	// MakingPrefix begins the field that holds the [Making] of a collection. It is absent if nothing is being made.
	MakingPrefix = "making:"
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

// EntriesField is the field of the state that holds how many entries an index has ([Keys.By]). It is absent if it has
// none. Each commit stores it, as it does with [Size].
func EntriesField(slot int, collection string) string {
	return "entries:" + strconv.Itoa(slot) + ":" + collection
}

// Making is how far those indexes of a collection are made that were declared when it had documents already. The owner
// goes through the index of the documents that inherit, then through the other one, and adds their entries, some at a
// time. What is written meanwhile gets all its entries at once. Until the end these indexes serve no query.
type Making struct {
	Slots []int  `json:"slots"` // none if nothing is being made
	Index Index  `json:"index"` // in which the owner goes on: ByInherit or ByOwn
	Score int64  `json:"score"` // after this score there
	ID    string `json:"id"`    // and this id
	Made  int64  `json:"made"`  // documents so far; one that was renewed meanwhile may count twice
}

// Encode writes what DecodeMaking reads.
func (m Making) Encode() string {
	b, _ := json.Marshal(m) // numbers and texts: cannot fail
	return string(b)
}

// DecodeMaking reads the field of a collection. Its error is an [ErrForeign].
func DecodeMaking(field string) (m Making, err error) {
	if field == "" {
		return m, nil
	}
	err = json.Unmarshal([]byte(field), &m)
	for _, slot := range m.Slots {
		if slot < 0 || slot >= wire.MaxIndexes {
			err = fmt.Errorf("there is no slot %d", slot)
		}
	}
	if err == nil && (len(m.Slots) == 0 || m.Index != ByInherit && m.Index != ByOwn) {
		err = fmt.Errorf("it has no slots or no index")
	}
	if err != nil {
		return m, fmt.Errorf("%w: what is being made is %s: %w", ErrForeign, wire.Quote(field), err)
	}
	return m, nil
}
