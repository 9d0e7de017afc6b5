package store

import "github.com/seed18712806/lapse/sink/internal/layout"

// Change is what a step does to one document.
type Change struct {
	ID  string
	Old *Header // of the stored document; nil if there is none
	// New is the new header; nil removes the document.
	New *Header
	// Body is the new body; nil keeps the stored one.
	Body []byte
}

// Drop says what a step removes of a collection before it makes the changes.
type Drop int

// The kinds of Drop.
const (
	DropNothing Drop = iota
	DropAll          // all documents and the index
	DropMoves        // all of it moves to the collection that comes next in the step, which must be empty
)

// CollectionChanges is what a step does to one collection.
type CollectionChanges struct {
	Collection string
	Drop       Drop
	Changes    []Change

	// Emptied is set by Commit: the collection now has no documents.
	Emptied bool
}

// appendArgs appends the arguments of commit.lua for this collection.
func (c CollectionChanges) appendArgs(args []any) []any {
	var put, renew, inherit, own, gone, unInherit, unOwn []any
	index := func(id string, h *Header) {
		switch in, score := h.Index(); in {
		case layout.ByInherit:
			inherit = append(inherit, score, id)
		case layout.ByOwn:
			own = append(own, score, id)
		}
	}
	for _, ch := range c.Changes {
		was, will := layout.NotIndexed, layout.NotIndexed
		if ch.Old != nil && c.Drop == DropNothing {
			was, _ = ch.Old.Index()
		}
		if ch.New != nil {
			will, _ = ch.New.Index()
		}
		switch {
		case ch.New == nil:
			gone = append(gone, ch.ID)
		case ch.Body == nil:
			renew = append(renew, ch.ID, ch.New.Append(nil))
		default:
			value := make([]byte, 0, ch.New.Len()+len(ch.Body))
			put = append(put, ch.ID, append(ch.New.Append(value), ch.Body...))
		}
		if was != will {
			switch was {
			case layout.ByInherit:
				unInherit = append(unInherit, ch.ID)
			case layout.ByOwn:
				unOwn = append(unOwn, ch.ID)
			}
		}
		if ch.New != nil {
			index(ch.ID, ch.New)
		}
	}
	args = append(args, int(c.Drop))
	for _, pairs := range [][]any{put, renew, inherit, own} {
		args = append(append(args, len(pairs)/2), pairs...)
	}
	for _, ids := range [][]any{gone, unInherit, unOwn} {
		args = append(append(args, len(ids)), ids...)
	}
	return args
}
