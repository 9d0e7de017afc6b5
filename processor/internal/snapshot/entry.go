package snapshot

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
