package sink

import (
	"cmp"
	"context"
	_ "embed" // the scripts
	"encoding/base64"
	"encoding/json"
	"math"
	"strconv"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// ListOptions ask for a page.
type ListOptions = wire.ListOptions

// Scans reports whether a list examines all ids to find some.
func Scans(o ListOptions) bool {
	var pos listPosition
	return o.Prefix != "" ||
		len(o.Continuation) <= longestContinuation && decodeContinuation(o.Continuation, &pos) == nil && pos.Prefix != ""
}

// Page is a part of a collection. The last page has no continuation.
type Page struct {
	Documents    []Document
	Continuation string
}

const (
	// longestContinuation is more than those of two ids need, whatever JSON makes of them.
	longestContinuation = 8 << 10

	listBytes      = 1 << 20   // bytes of values that one script loads, about
	scriptExamined = 2000      // members of an index that one script examines
	pageExamined   = 20_000    // members that are examined for a page
	pageLoaded     = 256 << 20 // bytes that Redis loads for a page
)

// pageBytes is how many bytes of documents a page may have. maxBytes is the limit of its options; 0 if they set none.
func pageBytes(maxBytes int) int {
	if maxBytes <= 0 {
		return pageLoaded
	}
	return min(maxBytes, pageLoaded)
}

// scriptBytes is how many bytes of values a script loads, about, for a page of so many bytes from so many shards.
func scriptBytes(maxBytes, shards int) int {
	return min(listBytes, max(2*maxBytes/shards, listBytes/16))
}

// listPosition is the end of a page, in a continuation: a place in an index of a shard.
type listPosition struct {
	Shard int          `json:"p"`
	Index layout.Index `json:"i,omitempty"`
	At    place        `json:"t,omitzero"` // in the index

	Prefix  string           `json:"f,omitempty"` // as in ListOptions
	Ordered *orderedPosition `json:"o,omitempty"` // in a list by deadline, without the rest
}

// beginning is the beginning of a shard.
func beginning(p int) listPosition { return listPosition{Shard: p, Index: layout.ByInherit} }

// place is a member of an index. The zero place is before all members.
type place struct {
	Score string `json:"k,omitempty"`
	ID    string `json:"d,omitempty"`
}

func newPlace(score int64, id string) place { return place{strconv.FormatInt(score, 10), id} }

func (p place) score() int64 { n, _ := strconv.ParseInt(p.Score, 10, 64); return n }

// compare goes by the order in which Redis keeps members.
func (p place) compare(other place) int {
	if p.Score == "" || other.Score == "" {
		return cmp.Compare(len(p.Score), len(other.Score)) // none has a score before the beginning
	}
	return cmp.Or(cmp.Compare(p.score(), other.score()), cmp.Compare(p.ID, other.ID))
}

// valid reports whether the place is one of those that continuations have.
func (p place) valid() bool {
	n, err := strconv.ParseInt(p.Score, 10, 64)
	ok := err == nil && strconv.FormatInt(n, 10) == p.Score && n >= -layout.NeverScore && n <= layout.NeverScore &&
		p.ID != ""
	return (ok || p == place{}) && len(p.ID) <= wire.MaxID
}

// errContinuation refuses a continuation that no page has.
var errContinuation = invalid("the continuation is not valid: use the one of the page before, as it is, or none to " +
	"begin")

func (ps *shards) decodePosition(s string) (pos listPosition, err error) {
	if s == "" {
		return beginning(0), nil
	}
	if len(s) > longestContinuation || decodeContinuation(s, &pos) != nil || !pos.valid(len(ps.keys)) {
		return listPosition{}, errContinuation
	}
	return pos, nil
}

func (pos listPosition) valid(shards int) bool {
	if o := pos.Ordered; o != nil {
		pos.Ordered = nil
		return pos == listPosition{} && o.valid()
	}
	return pos.Shard >= 0 && pos.Shard < shards && (pos.Index == layout.ByInherit || pos.Index == layout.ByOwn) &&
		pos.At.valid() && len(pos.Prefix) <= wire.MaxID
}

// List reads a collection in pages, in no particular order unless opts.Order says so.
//
// A document that exists, unchanged, from the first page to the last is in exactly one of
// them. No page has a document twice. A page may have fewer documents than the limit, or none,
// and not be the last: large documents fill it, and so does a search for a prefix.
//
// List goes through the expiry index, in which each document has a place that does not change
// unless the document does. So a page costs the same wherever it begins.
func (r *Reader) List(ctx context.Context, collection string, opts ListOptions) (Page, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return Page{}, err
	}
	if err := opts.Check(); err != nil {
		return Page{}, err
	}
	opts.Limit = cmp.Or(opts.Limit, wire.DefaultListLimit)
	ps, err := r.all(ctx)
	if err != nil {
		return Page{}, err
	}
	pos, err := ps.decodePosition(opts.Continuation)
	if err == nil {
		err = settle(&opts, &pos)
	}
	if err != nil {
		return Page{}, err
	}
	if pos.Ordered != nil {
		return ps.listOrdered(ctx, collection, opts, *pos.Ordered)
	}
	l := lister{shards: ps, collection: collection, opts: opts, documents: []Document{},
		taken: map[string]bool{}}
	first, err := ps.view(ctx, pos.Shard, collection)
	if err != nil {
		return Page{}, err
	}
	l.cuts = first.cuts()
	more, err := l.fill(ctx, &pos)
	if err != nil {
		return Page{}, err
	}
	page := Page{Documents: l.documents}
	if more {
		pos.Prefix = opts.Prefix
		page.Continuation = encodeContinuation(pos)
	}
	return page, nil
}

// lister fills a page.
type lister struct {
	*shards
	collection string
	opts       ListOptions
	headers    bool // the script returns the headers of documents alone

	documents []Document      // of the page
	taken     map[string]bool // their ids
	bytes     int             // of their bodies and ids
	examined  int             // members of the indexes that Redis has examined
	loaded    int             // bytes of values

	cuts ttlrules.Cuts // of the latest view
}

// fill fills the page from a position, and moves the position to the end of the page. more
// reports whether documents may come after it.
func (l *lister) fill(ctx context.Context, pos *listPosition) (more bool, err error) {
	for {
		full, ended, err := l.walk(ctx, pos)
		if full || err != nil {
			return true, err
		}
		if ended {
			if *pos = beginning(pos.Shard + 1); pos.Shard == len(l.keys) {
				return false, nil
			}
		}
		if len(l.documents) == l.opts.Limit || l.examined >= pageExamined || l.loaded >= pageLoaded {
			return true, nil
		}
	}
}

var (
	//go:embed list.lua
	walkSource string

	walkScript = layout.NewHeadScript(layout.After + walkSource)
)

// Positions in the reply of list.lua.
const (
	_ = iota // the head
	walkInherit
	walkOwn
	walkIndex
	walkScore
	walkID
	walkLeft
	walkExamined
	walkDocuments
)

// Values of left in the reply of list.lua, besides 1.
const (
	walkEnded = 0
	walkFull  = 2
)

// walk fills the page with what comes next in the indexes of a shard. ended reports that nothing does.
func (l *lister) walk(ctx context.Context, pos *listPosition) (full, ended bool, err error) {
	room, one := math.MaxInt32, len(l.documents) == 0
	if l.opts.MaxBytes > 0 {
		room = l.opts.MaxBytes - l.bytes
	}
	v, reply, err := l.read(ctx, pos, l.opts.Limit-len(l.documents), room, one)
	if err != nil {
		return false, false, err
	}
	for found := reply.List(walkDocuments); len(found) > 1; found = found[2:] {
		if !found.Has(1) {
			return false, false, l.lostDocuments(pos.Shard, l.collection)
		}
		d, ok, err := v.document(found.Str(0), found.Str(1))
		if err != nil {
			return false, false, err
		}
		l.loaded += len(found.Str(1))
		if ok && !l.taken[d.ID] { // one that was renewed since the script before has two places
			l.taken[d.ID] = true
			l.documents, l.bytes = append(l.documents, d), l.bytes+len(d.Body)+len(d.ID)
		}
	}
	l.examined += int(reply.Int(walkExamined))
	pos.advance(reply)
	left := reply.Int(walkLeft)
	return left == walkFull, left == walkEnded, nil
}

// advance moves the position to the last member that list.lua has examined.
func (pos *listPosition) advance(reply layout.Reply) {
	pos.Index, pos.At = layout.Index(reply.Int(walkIndex)), place{}
	if score, ok := reply.Score(walkScore); ok && reply.Str(walkID) != "" {
		pos.At = newPlace(score, reply.Str(walkID))
	}
}

// read reads so many documents from a position on, as many as have room, but with one set one in any case.
func (l *lister) read(ctx context.Context, pos *listPosition, most, room int, one bool) (view, layout.Reply, error) {
	k := l.keys[pos.Shard]
	for {
		args := []any{l.collection, l.cuts.Inherit, l.cuts.Own, int(pos.Index), pos.At.Score, pos.At.ID, l.opts.Prefix,
			most, room, one, listBytes, scriptExamined, l.headers}
		v, reply, err := l.ask(ctx, walkScript, pos.Shard, l.collection, []string{k.Inherit(l.collection),
			k.Own(l.collection)}, args)
		switch {
		case err != nil:
			return view{}, nil, err
		case l.lowered(v):
			continue
		case layout.NewSize(v.documents, reply.Int(walkInherit), reply.Int(walkOwn)) != v.size:
			return view{}, nil, l.lostIndex(pos.Shard, l.collection)
		}
		return v, reply, nil
	}
}

// lowered takes the cuts of a view, and reports whether they are lower than those that a script was
// given: what it passed over may be live. The shard has another history of the configuration
// than the one asked before, or an earlier clock.
func (l *lister) lowered(v view) bool {
	asked := l.cuts
	l.cuts = v.cuts()
	return l.cuts.Inherit < asked.Inherit || l.cuts.Own < asked.Own
}

// encodeContinuation writes the position at which a page ends as a text for the client.
func encodeContinuation(position any) string {
	b, _ := json.Marshal(position) // text and numbers: cannot fail
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeContinuation reads what Encode wrote.
func decodeContinuation(s string, position any) error {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, position)
	}
	return err
}
