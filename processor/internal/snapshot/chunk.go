package snapshot

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"

	"github.com/klauspost/compress/s2"
)

// ErrDamaged: a part of a snapshot is missing, or is not what was stored.
var ErrDamaged = errors.New("the snapshot is damaged")

// largestObject is the most that a chunk or a manifest may need once it is decompressed. It is
// far more than a writer stores, and keeps a damaged length from taking all memory.
const largestObject = 1 << 30

// appendEntry encodes an entry: its kind, and then the collection, the id and the value, each
// behind its length.
func appendEntry(b []byte, e Entry) []byte {
	b = append(b, byte(e.Kind))
	b = binary.AppendUvarint(b, uint64(len(e.Collection)))
	b = append(b, e.Collection...)
	b = binary.AppendUvarint(b, uint64(len(e.ID)))
	b = append(b, e.ID...)
	b = binary.AppendUvarint(b, uint64(len(e.Value)))
	return append(b, e.Value...)
}

// entries are those of a decompressed chunk. Their values share its memory.
func entries(chunk []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for len(chunk) > 0 {
			e := Entry{Kind: Kind(chunk[0])}
			rest := chunk[1:]
			next := func() (field []byte) {
				n, size := binary.Uvarint(rest)
				if size <= 0 || n > uint64(len(rest)-size) {
					rest = nil
					chunk = nil
					return nil
				}
				field, rest = rest[size:size+int(n)], rest[size+int(n):]
				return field
			}
			e.Collection, e.ID, e.Value = string(next()), string(next()), next()
			if chunk == nil || e.Kind < Put || e.Kind > Move {
				yield(Entry{}, fmt.Errorf("%w: a chunk ends within an entry, or has one of an unknown kind", ErrDamaged))
				return
			}
			chunk = rest
			if !yield(e, nil) {
				return
			}
		}
	}
}

// compress makes an object of the store. S2 takes half the time of the fastest zstd to compress, and
// a fifth to decompress, which is what a rebuild waits for; the objects are a third larger.
func compress(b []byte) []byte { return s2.Encode(nil, b) }

// decompress is the content of an object. into is used if it is large enough.
func decompress(into, object []byte) ([]byte, error) {
	n, err := s2.DecodedLen(object)
	if err == nil && n > largestObject {
		err = fmt.Errorf("%d bytes are too many", n)
	}
	if err == nil {
		into, err = s2.Decode(into, object)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: decompress: %w", ErrDamaged, err)
	}
	return into, nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Kind says what an entry does.
type Kind byte

// The kinds of entries. An entry about a document or a collection that is not there does nothing:
// the scan may have found what was removed later, or not.
const (
	Put    Kind = iota + 1 // stores a document, in place of the one that is there
	Renew                  // gives a document another header, and keeps its body
	Remove                 // removes a document
	Drop                   // removes all documents of a collection
	Move                   // moves all documents of a collection to another one; they are added to its own
)

// Entry is a part of a snapshot.
type Entry struct {
	Kind       Kind
	Collection string
	ID         string
	// Value is the stored value of Put, the header of Renew, and the other collection's name of
	// Move.
	Value []byte
}
