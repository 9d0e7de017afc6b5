package sink

import (
	"context"
	"fmt"
	"math"
	"strconv"

	"github.com/seed18712806/lapse/ttlrules"
)

// Stored is a document as it is stored. Body is "" where only the header was read.
type Stored struct {
	Header Header
	Body   string
}

// Want names documents of one collection that a step needs: of some the header
// is enough.
type Want struct {
	Collection string
	Headers    []string
	Whole      []string
}

// Read reads documents of a partition that is at version (else ErrFenced), and has
// as many as it was left with (else ErrDamaged). The result has one list per want, its Headers first, with nil for a document that
// is not there.
func (p *Partition) Read(ctx context.Context, version string, wants []Want) ([][]*Stored, error) {
	keys := make([]string, 1, 1+len(wants))
	keys[0] = p.keys.state()
	var args []any
	for _, w := range wants {
		keys = append(keys, p.keys.docs(w.Collection))
		args = append(args, w.Collection, len(w.Headers), len(w.Whole))
		for _, id := range w.Headers {
			args = append(args, id)
		}
		for _, id := range w.Whole {
			args = append(args, id)
		}
	}
	r, err := run(ctx, p.scripts, readScript, keys, args...)
	if err != nil {
		return nil, fmt.Errorf("read partition %d: %w", p.id, err)
	}
	if r.str(0) != version {
		return nil, fmt.Errorf("read partition %d: %w", p.id, ErrFenced)
	}
	if n := r.int(1); n > 0 {
		return nil, fmt.Errorf("read partition %d: %w: %s", p.id, ErrDamaged, lostText(wants[n-1].Collection))
	}
	out := make([][]*Stored, len(wants))
	at := 2
	for i, w := range wants {
		out[i] = make([]*Stored, len(w.Headers)+len(w.Whole))
		for j := range out[i] {
			if out[i][j], err = storedAt(r, at); err != nil {
				return nil, fmt.Errorf("read partition %d, collection %s: %w: %w", p.id, w.Collection, ErrDamaged, err)
			}
			at++
		}
	}
	return out, nil
}

func storedAt(r reply, i int) (*Stored, error) {
	if !r.has(i) {
		return nil, nil
	}
	h, body, err := parseValue(r.str(i))
	if err != nil {
		return nil, err
	}
	return &Stored{Header: h, Body: body}, nil
}

// Progress is how far the log was applied to a partition.
type Progress struct {
	Version   string // expected
	Next      string // version to set
	Offset    uint64
	Watermark int64
	Rebuild   uint64
}

// Cut asks for what is due of one collection.
type Cut struct {
	Collection string
	Cuts       ttlrules.Cuts
}

// Due is what is due of one collection.
type Due struct {
	IDs       []string
	Documents []Stored
	// The lowest scores that are left in the indexes; NoScore if none is.
	NextInherit, NextOwn int64
	Left                 int64 // documents that are due besides
}

// NoScore stands where an index is empty.
const NoScore = math.MaxInt64

// Due finds documents that are at or under their cuts, in a partition that is at
// version (else ErrFenced): up to limit of them, and none after so many bytes.
// Without whole, the documents come without their bodies.
func (p *Partition) Due(ctx context.Context, version string, cuts []Cut, limit, bytes int, whole bool) ([]Due, error) {
	keys := make([]string, 1, 1+3*len(cuts))
	keys[0] = p.keys.state()
	args := []any{version, limit, bytes, whole, len(cuts)}
	for _, c := range cuts {
		keys = append(keys, p.keys.docs(c.Collection), p.keys.inherit(c.Collection), p.keys.own(c.Collection))
		args = append(args, sizePrefix+c.Collection)
	}
	for _, c := range cuts {
		args = append(args, formatCut(c.Cuts.Inherit), formatCut(c.Cuts.Own))
	}
	r, err := run(ctx, p.scripts, dueScript, keys, args...)
	if err != nil {
		return nil, fmt.Errorf("find what is due in partition %d: %w", p.id, err)
	}
	switch r.int(0) {
	case 0:
		return nil, fmt.Errorf("find what is due in partition %d: %w", p.id, ErrFenced)
	case -2:
		return nil, fmt.Errorf("find what is due in partition %d: %w: %s", p.id, ErrDamaged, lostText(cuts[r.int(1)-1].Collection))
	}
	p.clock.learn(r.list(1))
	out := make([]Due, len(cuts))
	for i := range cuts {
		one := r.list(2 + i)
		ids, values := one.list(2), one.list(3)
		d := Due{IDs: make([]string, len(ids)), Documents: make([]Stored, len(ids)), NextInherit: NoScore, NextOwn: NoScore, Left: one.int(4)}
		if s, ok := one.score(0); ok {
			d.NextInherit = s
		}
		if s, ok := one.score(1); ok {
			d.NextOwn = s
		}
		for j := range ids {
			d.IDs[j] = ids.str(j)
			s, err := storedAt(values, j)
			if err != nil || s == nil {
				return nil, fmt.Errorf("find what is due in partition %d: %w: %s/%s is in the index, but not a document: %v", p.id, ErrDamaged, cuts[i].Collection, d.IDs[j], err)
			}
			d.Documents[j] = *s
		}
		out[i] = d
	}
	return out, nil
}

func formatCut(cut int64) string {
	if cut == ttlrules.NoCut {
		return ""
	}
	return strconv.FormatInt(cut, 10)
}

// Change is what becomes of one document in a step.
type Change struct {
	ID  string
	Old *Header // what is stored; nil if nothing is
	// New is what will be; nil if the document goes.
	New *Header
	// Body is the new body; nil if the stored one stays.
	Body []byte
}

// Drop says what goes of a collection before its changes are made.
type Drop int

// The kinds of Drop.
const (
	DropNothing Drop = iota
	DropAll          // all documents and the index
	DropIndex        // the index
)

// CollectionChanges are what becomes of one collection in a step.
type CollectionChanges struct {
	Collection string
	Drop       Drop
	NoIndex    bool // no index is kept
	Fresh      bool // no document is there that is put
	Changes    []Change
	// Index adds documents that are as they were to the index, as a build does.
	Index []Change
}

// ConfigChange is a new configuration; nil removes it.
type ConfigChange struct {
	Collection string
	Config     *Config
}

// Commit applies one step to a partition that is at pr.Version (else ErrFenced).
// What is not as it was committed is ErrDamaged, and a document that is there
// against what was said is ErrExists; nothing is applied then.
func (p *Partition) Commit(ctx context.Context, pr Progress, configs []ConfigChange, changes []CollectionChanges) error {
	keys := make([]string, 2, 2+3*len(changes))
	keys[0], keys[1] = p.keys.state(), p.keys.config()
	args := make([]any, 0, 12+2*len(configs)+64)
	args = append(args, pr.Version, "version", pr.Next, "offset", pr.Offset, "watermark", pr.Watermark, "rebuild", formatRebuild(pr.Rebuild))
	args = append(args, len(changes))
	for _, c := range changes {
		args = append(args, sizePrefix+c.Collection)
	}
	args = append(args, len(configs))
	for _, c := range configs {
		raw := ""
		if c.Config != nil {
			raw = c.Config.encode()
		}
		args = append(args, c.Collection, raw)
	}
	for _, c := range changes {
		keys = append(keys, p.keys.docs(c.Collection), p.keys.inherit(c.Collection), p.keys.own(c.Collection))
		args = c.append(args)
	}
	r, err := run(ctx, p.scripts, commitScript, keys, args...)
	if err != nil {
		return fmt.Errorf("commit partition %d: %w", p.id, err)
	}
	switch r.int(0) {
	case 1:
		return nil
	case 0:
		return fmt.Errorf("commit partition %d: %w", p.id, ErrFenced)
	case -3:
		return fmt.Errorf("commit partition %d: %w", p.id, ErrExists)
	case -1:
		return fmt.Errorf("commit partition %d: %w: key %s is of another type", p.id, ErrForeign, keys[r.int(1)-1])
	default:
		lost := "configurations are lost"
		if n := r.int(1); n > 0 {
			lost = lostText(changes[n-1].Collection)
		}
		return fmt.Errorf("commit partition %d: %w: %s", p.id, ErrDamaged, lost)
	}
}

func lostText(collection string) string {
	return "collection " + collection + " has not the documents or the index that it was left with"
}

// append encodes the changes as commit.lua takes them.
func (c CollectionChanges) append(args []any) []any {
	var put, renew, inherit, own, gone, unInherit, unOwn []any
	add := func(id string, h *Header) {
		switch in, score := h.index(); in {
		case byInherit:
			inherit = append(inherit, score, id)
		case byOwn:
			own = append(own, score, id)
		}
	}
	for _, ch := range c.Changes {
		was, will := notIndexed, notIndexed
		if ch.Old != nil && c.Drop == DropNothing {
			was, _ = ch.Old.index()
		}
		if ch.New != nil {
			will, _ = ch.New.index()
		}
		switch {
		case ch.New == nil:
			gone = append(gone, ch.ID)
		case ch.Body == nil:
			renew = append(renew, ch.ID, ch.New.Append(nil))
		default:
			value := make([]byte, 0, headerLen+len(ch.New.Trace)+len(ch.Body))
			put = append(put, ch.ID, append(ch.New.Append(value), ch.Body...))
		}
		if c.NoIndex {
			continue
		}
		if was != will {
			switch was {
			case byInherit:
				unInherit = append(unInherit, ch.ID)
			case byOwn:
				unOwn = append(unOwn, ch.ID)
			}
		}
		if ch.New != nil {
			add(ch.ID, ch.New)
		}
	}
	for _, ch := range c.Index {
		add(ch.ID, ch.Old)
	}
	args = append(args, int(c.Drop), c.Fresh)
	for _, pairs := range [][]any{put, renew, inherit, own} {
		args = append(append(args, len(pairs)/2), pairs...)
	}
	for _, ids := range [][]any{gone, unInherit, unOwn} {
		args = append(append(args, len(ids)), ids...)
	}
	return args
}

// Scan looks at a chunk of a collection's documents, to build its index: it
// returns their headers and where to go on, "0" at the end. server names the
// process that the cursor is good for.
func (p *Partition) Scan(ctx context.Context, version, collection, cursor string, count int) (found []Change, next, server string, err error) {
	r, err := run(ctx, p.scripts, scanScript, []string{p.keys.state(), p.keys.config(), p.keys.docs(collection)}, collection, cursor, count, 0)
	if err != nil {
		return nil, "", "", fmt.Errorf("scan partition %d: %w", p.id, err)
	}
	if r.list(0).list(1).str(0) != version {
		return nil, "", "", fmt.Errorf("scan partition %d: %w", p.id, ErrFenced)
	}
	values := r.list(3)
	for i := 0; i+1 < len(values); i += 2 {
		h, _, err := parseValue(values.str(i + 1))
		if err != nil {
			return nil, "", "", fmt.Errorf("scan partition %d, collection %s: %w: %w", p.id, collection, ErrDamaged, err)
		}
		found = append(found, Change{ID: values.str(i), Old: &h})
	}
	return found, r.str(2), r.str(1), nil
}
