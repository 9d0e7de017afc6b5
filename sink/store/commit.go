package store

import (
	"context"
	_ "embed" // the script
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed commit.lua
var commitSource string

var commitScript = redis.NewScript(commitSource)

// Positions in the reply of commit.lua.
const (
	commitStatus  = iota
	commitWhich                 // the key or the collection that the status is about, from 1
	commitEmptied = commitWhich // if it committed: the first collection that is now empty, from 1; the rest follow
)

// Statuses in the reply of commit.lua.
const (
	commitDone      = 1
	commitFenced    = 0
	commitOtherType = -1
	commitLost      = -2
	commitLostIndex = -3
)

// Progress is how far the log is applied to a shard after a step.
type Progress struct {
	Version   string // the expected version
	Next      string // the version to set
	Offset    uint64
	Watermark int64
	Stamp     Stamp // see State
	Rebuild   uint64
	// Configured is that of the State after a step that applies something of the stream of
	// configurations; else 0, and that of the State stays.
	Configured uint64
	Events     string // see State; if it is empty, that of the State stays
}

// ConfigChange is a new configuration of a collection. A nil Config removes it.
type ConfigChange struct {
	Collection string
	Config     *Config
}

// Commit applies one step to a shard that is at pr.Version (else ErrFenced), and sets
// Emptied in the changes. It returns ErrDamaged if Redis does not have what the last commit
// left, and ErrFull if the server has no memory left. After each of these errors it has applied nothing.
func (p *Shard) Commit(ctx context.Context, pr Progress, configs []ConfigChange, changes []CollectionChanges) error {
	keys := make([]string, 2, 2+3*len(changes))
	keys[0], keys[1] = p.keys.State(), p.keys.Config()
	for _, c := range changes {
		keys = append(keys, p.collectionKeys(c.Collection)...)
	}
	keys = p.byKeys(keys, changes)
	r, err := p.scripts.Run(ctx, commitScript, keys, commitArgs(pr, configs, changes)...)
	if err != nil {
		if redis.HasErrorPrefix(err, "OOM") {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		return fmt.Errorf("commit shard %d: %w", p.id, err)
	}
	switch r.Int(commitStatus) {
	case commitDone:
		for i := commitEmptied; i < len(r); i++ {
			changes[r.Int(i)-1].Emptied = true
		}
		return nil
	case commitFenced:
		return fmt.Errorf("commit shard %d: %w", p.id, ErrFenced)
	case commitOtherType:
		return fmt.Errorf("commit shard %d: %w: key %s is of another type", p.id, ErrForeign, keys[r.Int(commitWhich)-1])
	case commitLostIndex:
		return fmt.Errorf("commit shard %d: %w: %s", p.id, ErrDamaged, lostEntries(keys[r.Int(commitWhich)-1]))
	default: // commitLost
		what := lostConfigs
		if n := r.Int(commitWhich); n > 0 {
			what = lost(changes[n-1].Collection)
		}
		return fmt.Errorf("commit shard %d: %w: %s", p.id, ErrDamaged, what)
	}
}

// The fields of the state that hold State.Configured and State.Events.
const (
	configuredField = "configured"
	eventsField     = "events"
)

// commitArgs are the arguments of commit.lua, in the order in which its header lists them.
func commitArgs(pr Progress, configs []ConfigChange, changes []CollectionChanges) []any {
	args := make([]any, 0, 17+2*len(configs)+64)
	fields := []any{"version", pr.Next, "offset", pr.Offset, "watermark", pr.Watermark, "stamp", pr.Stamp.String(),
		"rebuild", formatRebuild(pr.Rebuild)}
	if pr.Configured > 0 {
		fields = append(fields, configuredField, pr.Configured)
	}
	if pr.Events != "" {
		fields = append(fields, eventsField, pr.Events)
	}
	makes, made := making(changes)
	fields = append(fields, makes...)
	args = append(args, pr.Version, len(fields))
	args = append(args, fields...)
	args = append(args, len(changes))
	for _, c := range changes {
		args = append(args, layout.SizePrefix+c.Collection)
	}
	args = append(args, len(configs))
	for _, c := range configs {
		raw := ""
		if c.Config != nil {
			raw = c.Config.Encode()
		}
		args = append(args, c.Collection, raw)
	}
	for _, c := range changes {
		args = c.appendArgs(args)
	}
	return appendIndexes(args, changes, made)
}

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
