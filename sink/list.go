package sink

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// ListOptions ask for a page.
type ListOptions struct {
	Limit int // 1 to wire.MaxListLimit; wire.DefaultListLimit if 0
	// MaxBytes limits the bytes of bodies and ids in the page, which has one document at
	// least; no limit if 0.
	MaxBytes int
	// Continuation is that of the page before. What of the options below is left out is as it was
	// for that page, and nothing of it may be another.
	Continuation string
	// Order is wire.ByDeadline for the documents that will expire, the next to expire first; "" for
	// all, in no particular order.
	Order wire.Order
	// Until and Within, of which one may be set, limit a list by deadline to those that will expire
	// by an instant, or within a duration from the first page on.
	Until  *wire.Time
	Within time.Duration
	// Prefix selects the documents whose ids begin with it. It does not go with Order. The list
	// examines all ids, so a page may be empty and not be the last.
	Prefix string
}

// Page is a part of a collection. The last page has no continuation.
type Page struct {
	Documents    []Document
	Continuation string
}

const (
	// longestContinuation is more than those of two ids need, whatever JSON makes of them.
	longestContinuation = 8 << 10

	listBytes    = 1 << 20   // bytes of values that one script loads, about
	scanExamined = 2000      // documents that one script examines
	pageExamined = 20_000    // documents that are examined for a page
	pageLoaded   = 256 << 20 // bytes that Redis loads for a page
	firstWhole   = 32 << 10  // bytes of small documents that Redis sends with the first headers
)

// listPosition is the end of a page, in a continuation.
//
// Without a cursor, it is a place in an index. With one, it is one in a scan; then documents up to
// the place in the index, if there is one, were returned before the index went. A chunk is what Redis
// finds in one scan from a cursor, in the order of the ids.
type listPosition struct {
	Shard int          `json:"p"`
	Index layout.Index `json:"i,omitempty"`
	At    place        `json:"t,omitzero"` // in the index

	Server string `json:"s,omitempty"` // process that knows the cursor
	Cursor string `json:"c,omitempty"` // of the chunk
	Count  int    `json:"n,omitempty"` // with which the chunk was scanned
	Next   string `json:"x,omitempty"` // the cursor after the chunk, if After is set
	After  string `json:"a,omitempty"` // the last id of the chunk that was returned

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
	ok := err == nil && strconv.FormatInt(n, 10) == p.Score && n >= -layout.NeverScore && n <= layout.NeverScore && p.ID != ""
	return (ok || p == place{}) && len(p.ID) <= wire.MaxID
}

// has reports whether a document is at or before the position's place in the index.
func (pos listPosition) has(id string, h layout.Header) bool {
	in, score := h.Index()
	return in < pos.Index || in == pos.Index && newPlace(score, id).compare(pos.At) <= 0
}

// errContinuation refuses a continuation that no page has.
var errContinuation = invalid("the continuation is not valid: use the one of the page before, as it is, or none to begin")

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
	if pos.Shard < 0 || pos.Shard >= shards || len(pos.After) > wire.MaxID || len(pos.Prefix) > wire.MaxID || !pos.At.valid() {
		return false
	}
	if pos.Cursor == "" {
		return (pos.Index == layout.ByInherit || pos.Index == layout.ByOwn) && pos == listPosition{Shard: pos.Shard, Index: pos.Index, At: pos.At, Prefix: pos.Prefix}
	}
	_, err := strconv.ParseUint(pos.Cursor, 10, 63) // Redis would report another cursor as its own error
	return err == nil && pos.Count >= 0 && pos.Count <= wire.MaxListLimit && pos.Index >= layout.NotIndexed && pos.Index <= layout.ByOwn
}

// List reads a collection in pages, in no particular order unless opts.Order says so.
//
// A document that exists, unchanged, from the first page to the last is in exactly one of
// them. A page may have fewer documents than the limit, or none, and not be the last: large
// documents fill it, and so does a search for a prefix.
//
// List goes through the expiry index, in which each document has a place that does not change
// unless the document does. So a page costs the same wherever it begins.
//
// A collection without an index, or whose index is being built, is scanned. Then a document may
// also be in two pages, if Redis resizes the hash meanwhile, as it does while the collection
// grows or shrinks by much, and some time after; and a continuation is valid until the Redis server
// restarts. A scan first reads headers and lengths, and then the documents that belong to the page.
// So Redis sends little more than the page, and a script loads few large documents at a
// time. Small documents come with the headers, as long as most of those that
// came so belonged to the page. Redis leaves out expired documents.
func (r *Reader) List(ctx context.Context, collection string, opts ListOptions) (Page, error) {
	if err := wire.CheckCollection(collection); err != nil {
		return Page{}, err
	}
	var err error
	if opts.Limit, err = limitOf(opts.Limit); err != nil {
		return Page{}, err
	}
	ps, err := r.all(ctx)
	if err != nil {
		return Page{}, err
	}
	pos, err := ps.decodePosition(opts.Continuation)
	if err == nil {
		err = opts.settle(&pos)
	}
	if err != nil {
		return Page{}, err
	}
	if pos.Ordered != nil {
		return ps.listOrdered(ctx, collection, opts, *pos.Ordered)
	}
	l := lister{shards: ps, collection: collection, opts: opts, documents: []Document{}, whole: firstWhole}
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

	documents []Document // of the page
	bytes     int        // of their bodies and ids
	examined  int        // documents that Redis has examined
	loaded    int        // bytes of their values
	whole     int        // bytes of whole documents that Redis may send with the headers

	cuts ttlrules.Cuts // of the latest view
}

// chunk is what Redis found in one scan.
type chunk struct {
	at    listPosition // where it begins
	next  string       // cursor after it
	found []candidate  // by id: live documents that no page before had
}

// candidate is a document that may go to the page.
type candidate struct {
	id     string
	length int       // of its body
	whole  *Document // if it came with the headers
}

// fill fills the page from a position, and moves the position to the end of the page. more
// reports whether documents may come after it.
func (l *lister) fill(ctx context.Context, pos *listPosition) (more bool, err error) {
	for {
		part := l.fillByIndex
		if pos.Cursor != "" {
			part = l.fillByScan
		}
		full, ended, err := part(ctx, pos)
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

// fillByScan fills the page with what a scan finds. ended reports that the scan has ended.
func (l *lister) fillByScan(ctx context.Context, pos *listPosition) (full, ended bool, err error) {
	chunks, end, err := l.scan(ctx, *pos)
	if err != nil {
		return false, false, err
	}
	for len(chunks) > 0 {
		if full, err = l.take(ctx, &chunks, pos); full || err != nil {
			return full, false, err
		}
	}
	*pos = end
	return false, pos.Cursor == "0", nil
}

// take adds the next documents of the chunks to the page, as many as one script may load, and
// moves the position behind them. full reports that the page is full.
func (l *lister) take(ctx context.Context, chunks *[]chunk, pos *listPosition) (full bool, err error) {
	var chosen []candidate
	var begins []listPosition // for each: the end of the page without it
	var missing []string      // ids of those that are still to be read
	bytes := l.bytes
	*pos = (*chunks)[0].at
	for load := 0; len(*chunks) > 0 && load < listBytes; {
		c := &(*chunks)[0]
		if len(c.found) == 0 {
			*pos = c.at.with(c.at.Server, c.next)
			*chunks = (*chunks)[1:]
			continue
		}
		d := c.found[0]
		bytes += d.length + len(d.id)
		if full = l.full(len(chosen), bytes); full {
			break
		}
		chosen, begins = append(chosen, d), append(begins, c.at)
		if d.whole == nil {
			missing = append(missing, d.id)
			load += d.length
		}
		c.found, c.at.After, c.at.Next = c.found[1:], d.id, c.next
		*pos = c.at
	}
	var read []Document
	if len(missing) > 0 {
		if read, err = l.get(ctx, pos.Shard, l.collection, missing); err != nil {
			return false, err
		}
	}
	for i, c := range chosen {
		d := c.whole
		if d == nil {
			if len(read) == 0 || read[0].ID != c.id {
				continue // it was removed, or has expired
			}
			d, read = &read[0], read[1:]
		}
		// It may have changed since its length was read.
		if l.full(0, l.bytes+len(d.Body)+len(d.ID)) {
			*pos = begins[i]
			return true, nil
		}
		l.bytes += len(d.Body) + len(d.ID)
		l.documents = append(l.documents, *d)
		if c.whole != nil {
			l.whole += 3 * len(d.Body) / 2 // see judgeWhole
		}
	}
	return full, nil
}

// full reports whether one document more is too much for the page, which would then have
// this many bytes. pending documents are chosen and not yet in the page.
func (l *lister) full(pending, bytes int) bool {
	n := len(l.documents) + pending
	return n == l.opts.Limit || l.opts.MaxBytes > 0 && bytes > l.opts.MaxBytes && n > 0
}

// scan finds documents from a position on. end is the position after the chunks.
func (l *lister) scan(ctx context.Context, pos listPosition) (chunks []chunk, end listPosition, err error) {
	load := listBytes
	if room := l.opts.MaxBytes - l.bytes; l.opts.MaxBytes > 0 {
		load = min(max(room, listBytes/16), load)
	}
	whole := l.whole
	if whole < firstWhole/2 { // too little: the scan would stop for it soon
		whole = 0
	}
	request := layout.ScanRequest{Collection: l.collection, Cursor: pos.Cursor, First: min(max(pos.Count, 1), layout.MaxChunk),
		Documents: l.opts.Limit - len(l.documents), Examined: scanExamined, Bytes: load, Header: layout.LongHeaderLen, Whole: whole, Cuts: l.cuts, Prefix: l.opts.Prefix}
	v, reply, err := l.ask(ctx, layout.ScanScript, pos.Shard, l.collection, nil, request.Args())
	if err != nil {
		return nil, end, err
	}
	if l.lowered(v) {
		return l.scan(ctx, pos)
	}
	scan := reply.Scan()
	if pos.Server != "" && pos.Server != scan.Server {
		return nil, end, invalid("the continuation is from before a restart of Redis: begin anew, without one")
	}
	for _, found := range scan.Chunks {
		c, err := l.chunk(v, pos, scan.Server, found)
		if err != nil {
			return nil, end, err
		}
		chunks = append(chunks, c)
	}
	l.examined += scan.Examined
	l.loaded += scan.Loaded
	return chunks, pos.with(scan.Server, scan.Next), nil
}

// with is the position at a cursor of the same scan, before all documents of its chunk.
func (pos listPosition) with(server, cursor string) listPosition {
	pos.Server, pos.Cursor, pos.Count, pos.Next, pos.After = server, cursor, 0, "", ""
	return pos
}

// chunk judges the documents of a chunk, of a scan that began at a position.
func (l *lister) chunk(v view, pos listPosition, server string, found layout.Chunk) (chunk, error) {
	c := chunk{next: found.Next, at: pos.with(server, found.Cursor)}
	c.at.Count = found.Taken
	// If Redis resized the hash since, the chunk is another one. Then none of its documents
	// is left out: returning one twice is better than not at all.
	if c.at.Cursor == pos.Cursor && c.next == pos.Next {
		c.at.After, c.at.Next = pos.After, pos.Next
	}
	judge := l.judgeHeader
	if found.Whole {
		judge = l.judgeWhole
	}
	for scanned := range found.Documents() {
		d, ok, err := judge(v, scanned)
		if err != nil {
			return chunk{}, err
		}
		if ok && d.id > c.at.After && (pos.At == place{} || !returned(pos, scanned)) {
			c.found = append(c.found, d)
		}
	}
	slices.SortFunc(c.found, func(a, b candidate) int { return strings.Compare(a.id, b.id) })
	return c, nil
}

// returned reports whether a document was returned before its index went.
func returned(pos listPosition, d layout.Scanned) bool {
	h, err := layout.ParseHeader(d.Value)
	return err == nil && pos.has(d.ID, h)
}

// judgeHeader judges a document by its header; ok = false if it is expired.
func (l *lister) judgeHeader(v view, d layout.Scanned) (c candidate, ok bool, err error) {
	c = candidate{id: d.ID, length: d.Length}
	h, err := layout.ParseHeader(d.Value)
	if err != nil || d.Length < 0 {
		return c, false, fmt.Errorf("document %q: %w: %w", d.ID, ErrForeign, layout.ErrHeader)
	}
	return c, !v.expired(h), nil
}

// judgeWhole judges a whole document. It subtracts its bytes from l.whole, and take adds half
// as many more if it belongs to the page. So the bytes that
// come in vain are at most half of those that are returned, and a little.
func (l *lister) judgeWhole(v view, d layout.Scanned) (c candidate, ok bool, err error) {
	l.whole -= len(d.Value)
	doc, ok, err := v.document(d.ID, d.Value)
	return candidate{id: doc.ID, length: len(doc.Body), whole: &doc}, ok, err
}
