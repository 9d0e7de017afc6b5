package ttlrules_test

import (
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/ttlrules"
)

// change is a message that configures a collection.
type change struct {
	at  int64
	seq uint64
	def ttlrules.Default
}

// doc is a document, as written at an instant.
type doc struct {
	ts   int64
	item ttlrules.TTL
	abs  int64 // its absolute deadline, if it has one
	cap  int64 // or after which it does not live, if it has that
}

// clock is what the rules are told of the document.
func (d doc) clock() ttlrules.Clock {
	return ttlrules.Clock{Ts: d.ts, TTL: d.item, Absolute: d.abs, NotAfter: d.cap}
}

// model is one document in one collection, lived through instant by instant. It
// knows neither histories nor cuts, only what the contract says: the matrix, and
// that what has expired stays so.
type model struct {
	doc     doc
	def     ttlrules.Default
	expired bool
	expiry  ttlrules.Expiry
}

// deadline is the sooner of what the ttl says, and after what the document does not live. The
// default does not count for a document that has the latter.
func (m *model) deadline() (at int64, seconds int32, ok bool) {
	if m.doc.cap == 0 || m.def == 0 {
		return m.matrix()
	}
	if own := m.doc.ts + 1000*int64(m.doc.item); m.doc.item > 0 && own <= m.doc.cap {
		return own, int32(m.doc.item), true
	}
	return m.doc.cap, 0, true
}

// matrix is the matrix of the contract, column by column.
func (m *model) matrix() (at int64, seconds int32, ok bool) {
	item, def := int64(m.doc.item), int64(m.def)
	if def == 0 {
		return 0, 0, false
	}
	if m.doc.abs != 0 {
		return m.doc.abs, 0, true
	}
	if def == -1 {
		if item > 0 {
			return m.doc.ts + 1000*item, int32(item), true
		}
		return 0, 0, false
	}
	switch item {
	case 0:
		return m.doc.ts + 1000*def, int32(def), true
	case -1:
		return 0, 0, false
	default:
		return m.doc.ts + 1000*item, int32(item), true
	}
}

// step lives through the instant now: first time passes, then the messages of that
// instant come, one by one. The model has to be stepped through every instant at
// which anything may happen.
func (m *model) step(now int64, changes []change) {
	m.expire(now, 0)
	for _, c := range changes {
		if c.at == now {
			m.def = c.def
			m.expire(now, c.seq)
		}
	}
}

// expire marks the document, if it is live, as expired where it is expired now; seq is the
// message that has just changed the default.
func (m *model) expire(now int64, seq uint64) {
	at, seconds, ok := m.deadline()
	if m.expired || !ok || now < m.doc.ts || now < at {
		return
	}
	m.expired, m.expiry = true, ttlrules.Expiry{At: now, TTL: seconds, Seq: seq}
}

// indexed says where a document stands in the indexes.
func (d doc) indexed() (score int64, inherit, ok bool) {
	if d.abs != 0 {
		return d.abs, false, true
	}
	if own := d.ts + 1000*int64(d.item); d.cap != 0 && (d.item <= 0 || d.cap < own) {
		return d.cap, false, true
	}
	switch d.item {
	case ttlrules.Inherit:
		return d.ts, true, true
	case ttlrules.Never:
		return 0, false, false
	default:
		return d.ts + 1000*int64(d.item), false, true
	}
}

// underCut says whether the indexes' cuts call a document expired.
func underCut(h ttlrules.History, d doc, now int64) bool {
	score, inherit, ok := d.indexed()
	return ok && score <= cut(h, inherit, now)
}

func cut(h ttlrules.History, inherit bool, now int64) int64 {
	if inherit {
		return h.Cuts(now).Inherit
	}
	return h.Cuts(now).Own
}

// history is what With makes of changes up to an instant.
func history(changes []change, until int64) ttlrules.History {
	var h ttlrules.History
	for _, c := range changes {
		if c.at <= until {
			h = h.With(c.at, c.seq, c.def)
		}
	}
	return h
}

// world is a range of instants and TTLs to draw from. Both worlds are made so that
// instants coincide often: changes with each other, with deadlines, with writes.
type world struct {
	start      int64   // the first instant
	span       int64   // how many seconds things happen in
	ttls       []int32 // what item and default are drawn from, besides the special values
	horizon    int64   // an instant by which all has been decided
	defaultTTL *rapid.Generator[ttlrules.Default]
	itemTTL    *rapid.Generator[ttlrules.TTL]
}

func newWorld(start, span int64, ttls ...int32) world {
	w := world{start: start, span: span, ttls: ttls}
	w.horizon = start + 1000*(span+int64(slices.Max(ttls))+1)
	defs := []ttlrules.Default{ttlrules.Off, ttlrules.NoDefault}
	items := []ttlrules.TTL{ttlrules.Inherit, ttlrules.Never}
	for _, n := range ttls {
		defs, items = append(defs, ttlrules.Default(n)), append(items, ttlrules.TTL(n))
	}
	w.defaultTTL, w.itemTTL = rapid.SampledFrom(defs), rapid.SampledFrom(items)
	return w
}

// small is a world small enough to be stepped through millisecond by millisecond;
// large has the longest TTLs and the instants of today.
var (
	small = newWorld(0, 6, 1, 2, 3)
	large = newWorld(1_790_000_000_000, 5000, 1, 60, 3600, 1<<31-2, ttlrules.MaxSeconds)
)

// instant draws an instant at a whole second or a millisecond before or after.
func (w world) instant(t *rapid.T, label string) int64 {
	s := rapid.Int64Range(0, w.span-1).Draw(t, label)
	return w.start + 1000*s + 1 + rapid.Int64Range(-1, 1).Draw(t, label+" off by")
}

func (w world) doc(t *rapid.T) doc {
	d := doc{ts: w.instant(t, "ts"), item: w.itemTTL.Draw(t, "item ttl")}
	switch instant := max(d.ts+1, w.instant(t, "instant of its own")); rapid.IntRange(0, 4).Draw(t, "what is that") {
	case 0:
		d.abs = instant
	case 1:
		d.cap = instant
	}
	return d
}

// changes draws up to eight changes in log order. About every second one comes in
// the very millisecond of the one before.
func (w world) changes(t *rapid.T) []change {
	n := rapid.IntRange(0, 8).Draw(t, "changes")
	cs := make([]change, n)
	instants := make([]int64, n)
	for i := range instants {
		if i > 0 && rapid.Bool().Draw(t, "same instant") {
			instants[i] = instants[i-1]
		} else {
			instants[i] = w.instant(t, "change")
		}
	}
	slices.Sort(instants)
	for i := range cs {
		cs[i] = change{at: instants[i], seq: uint64(10 * (i + 1)), def: w.defaultTTL.Draw(t, "default")}
	}
	return cs
}

// instants are those at which anything can happen, and their neighbours.
func (w world) instants(d doc, changes []change) []int64 {
	at := []int64{w.start, d.ts, w.horizon}
	if named := max(d.abs, d.cap); named != 0 {
		at = append(at, named)
	}
	for _, c := range changes {
		at = append(at, c.at)
	}
	for _, n := range w.ttls {
		at = append(at, d.ts+1000*int64(n))
	}
	for _, x := range slices.Clone(at) {
		at = append(at, x-1, x+1)
	}
	slices.Sort(at)
	return slices.Compact(at)
}

// everyMillisecond is all instants of a small world.
func (w world) everyMillisecond() []int64 {
	all := make([]int64, 0, w.horizon-w.start+1)
	for now := w.start; now <= w.horizon; now++ {
		all = append(all, now)
	}
	return all
}

func (c change) String() string { return fmt.Sprintf("%d: default %d (seq %d)", c.at, c.def, c.seq) }
