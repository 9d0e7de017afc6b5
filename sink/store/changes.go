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

// IndexChanges is what a step does to one of the property indexes of a collection.
type IndexChanges struct {
	Slot   int
	Unlink bool // first removes all entries
	// Add and Remove are entries, as package entries writes them; none is in both. An entry to add may be there
	// already, and one to remove may be missing: see [Making].
	Add, Remove []string
}

// CollectionChanges is what a step does to one collection.
type CollectionChanges struct {
	Collection string
	Drop       Drop
	Changes    []Change
	Indexes    []IndexChanges // each slot once; a drop does not remove them by itself
	// Making is what of the property indexes is being made after the step, nothing if it has no slots; nil if that
	// stays.
	Making *Making

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

// byKeys appends the keys of the property indexes that the step changes.
func (p *Shard) byKeys(keys []string, changes []CollectionChanges) []string {
	for _, c := range changes {
		for _, x := range c.Indexes {
			keys = append(keys, p.keys.By(x.Slot, c.Collection))
		}
	}
	return keys
}

// making splits what is being made after a step into fields of the state to set, with their values, and fields to
// remove.
func making(changes []CollectionChanges) (set, remove []any) {
	for _, c := range changes {
		if c.Making == nil {
			continue
		}
		switch field := layout.MakingPrefix + c.Collection; {
		case len(c.Making.Slots) == 0:
			remove = append(remove, field)
		default:
			set = append(set, field, c.Making.Encode())
		}
	}
	return set, remove
}

// appendIndexes appends what commit.lua takes about property indexes; nothing if there is nothing about them.
func appendIndexes(args []any, changes []CollectionChanges, remove []any) []any {
	indexes := 0
	for _, c := range changes {
		indexes += len(c.Indexes)
	}
	if indexes+len(remove) == 0 {
		return args
	}
	args = append(append(args, len(remove)), remove...)
	for _, c := range changes {
		for _, x := range c.Indexes {
			unlink := ""
			if x.Unlink {
				unlink = "1"
			}
			args = append(args, layout.EntriesField(x.Slot, c.Collection), unlink, len(x.Add))
			for _, entry := range x.Add {
				args = append(args, 0, entry)
			}
			args = append(args, len(x.Remove))
			for _, entry := range x.Remove {
				args = append(args, entry)
			}
		}
	}
	return args
}
