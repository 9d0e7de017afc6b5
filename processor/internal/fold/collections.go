package fold

import (
	"cmp"
	"container/heap"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// Collections holds what the owner of a shard knows of its collections. There may be
// very many, so no step visits all of them:
//
//   - map: a collection is in the map if it is configured, or has documents.
//     The commit that removes the last of these removes it from the map.
//   - due: byDue holds exactly the collections in which documents outside the due queue may become due, the earliest
//     deadline on top; byWarning those in which documents may have to be warned of, the earliest warning on top.
//   - in turn: unsettled holds exactly the collections with more than one epoch, or with a pause that is not drained or
//     over, long those with more than MaxEpochs, and draining the old generations, which end when none of their
//     documents is due.
//   - generations: older names the old generations of each collection, the oldest first.
//
// An old generation is a collection that was dropped. It is kept, under a name of its
// own, until the events are published of its documents that had expired before the drop.
// Every change of a collection goes through the methods here, which keep all that true.
type Collections struct {
	all            map[string]*Collection
	byDue          dueHeap
	byWarning      dueHeap
	warned         int64 // log time of the checkpoint
	long           map[*Collection]struct{}
	draining       ring
	unsettled      ring
	verifying      ring // all of them
	making         ring // those with property indexes that are being made
	makes          int  // these indexes
	older          map[string][]string
	paused         int // collections that are paused
	lacksBeginning bool
	near           map[string]string // see Nearest
	visited        int               // entries read or moved so far, which a test compares with the steps
}

// MaxEpochs is the number of epochs that a collection has at most, unless some of its
// documents are due. Then it gets more, and the owner reaps those documents first.
const MaxEpochs = 64

// unknown stands for the lowest score of an index in which nothing was looked up yet.
const unknown = 0

// Collection is one collection of a shard. Only the methods of Collections change it.
type Collection struct {
	Name   string
	Config store.Config
	stored bool // whether it is configured; else Config is the zero value
	full   bool // whether it has documents
	making store.Making
	// The lowest scores in the indexes, or less, of documents outside the due queue.
	nextInherit, nextOwn int64
	nextBands            []int64 // likewise in the bands of the index of those that inherit, from where each begins
	continues            bool    // see Continues

	marks []mark         // up to where the indexes were warned of, the earliest warning first
	due   entry          // when a document outside the due queue may be due
	warn  entry          // when a document may have to be warned of
	slots [ringCount]int // in each ring; -1 if it is not there
}

// GenerationName names the old generation of a collection that the message with a
// sequence dropped. No client can name a collection so.
func GenerationName(collection string, seq uint64) string {
	return collection + "." + strconv.FormatUint(seq, 10)
}

// CollectionName is the name by which clients know a collection or an old generation.
func CollectionName(name string) string {
	name, _, _ = strings.Cut(name, ".")
	return name
}

// IsGeneration reports whether a name is that of an old generation.
func IsGeneration(name string) bool { return strings.Contains(name, ".") }

// generationSeq is the sequence of the message that made an old generation.
func generationSeq(name string) uint64 {
	_, seq, _ := strings.Cut(name, ".")
	n, _ := strconv.ParseUint(seq, 10, 64)
	return n
}

// NewCollections makes the collections of a stored state: those that are configured, and
// those that have documents. Any document of the latter may be due.
func NewCollections(configs map[string]store.Config, withDocuments []string) *Collections {
	s := &Collections{
		all:       make(map[string]*Collection, len(configs)),
		long:      make(map[*Collection]struct{}),
		older:     make(map[string][]string),
		draining:  ring{kind: drainingRing},
		unsettled: ring{kind: unsettledRing},
		verifying: ring{kind: verifyingRing},
		making:    ring{kind: makingRing},
	}
	s.byDue = dueHeap{visited: &s.visited, of: func(c *Collection) *entry { return &c.due }}
	s.byWarning = dueHeap{visited: &s.visited, of: func(c *Collection) *entry { return &c.warn }}
	for name, config := range configs {
		s.Configure(s.Make(name), config)
	}
	for _, name := range withDocuments {
		s.LookedUp(s.Make(name), unknown, unknown)
		s.all[name].full = true
	}
	return s
}

// Collection is a collection; nil if it is not in the map.
func (s *Collections) Collection(name string) *Collection { return s.all[name] }

// Config is the configuration of a collection.
func (s *Collections) Config(name string) store.Config {
	if c := s.all[name]; c != nil {
		return c.Config
	}
	return store.Config{}
}

// Make is a collection, which is put into the map if it is not there.
func (s *Collections) Make(name string) *Collection {
	c := s.all[name]
	if c != nil {
		return c
	}
	c = &Collection{Name: name, nextInherit: store.NoScore, nextOwn: store.NoScore}
	c.due, c.warn = entry{math.MaxInt64, -1}, entry{math.MaxInt64, -1}
	for i := range c.slots {
		c.slots[i] = -1
	}
	s.all[name] = c
	s.verifying.add(c)
	if IsGeneration(name) {
		of := CollectionName(name)
		s.older[of] = append(s.older[of], name)
		slices.SortFunc(s.older[of], func(a, b string) int { return cmp.Compare(generationSeq(a), generationSeq(b)) })
	}
	return c
}

// Remove takes a collection out of the map, if it is there.
func (s *Collections) Remove(name string) {
	c := s.all[name]
	if c == nil {
		return
	}
	s.countPaused(c, -1)
	delete(s.all, name)
	s.near = nil
	s.byDue.remove(c)
	s.byWarning.remove(c)
	delete(s.long, c)
	s.draining.remove(c)
	s.unsettled.remove(c)
	s.verifying.remove(c)
	s.setMaking(c, store.Making{})
	if IsGeneration(name) {
		of := CollectionName(name)
		s.older[of] = slices.DeleteFunc(s.older[of], func(other string) bool { return other == name })
		if len(s.older[of]) == 0 {
			delete(s.older, of)
		}
	}
}

// Emptied notes that a collection has lost its last document.
func (s *Collections) Emptied(name string) {
	if c := s.all[name]; c != nil && !c.stored {
		s.Remove(name)
	}
}

// IsConfigured reports whether the collection has a configuration.
func (c *Collection) IsConfigured() bool { return c.stored }

// Settled is the configuration of the collection once none of its documents is due, nil if it has none any more: it is
// an old generation, all of which is removed then. The bands end if none has a document, in the due queue or outside
// it.
func (c *Collection) Settled(queue *DueQueue) *store.Config {
	if IsGeneration(c.Name) {
		return nil
	}
	settled := c.Config.Settled()
	filled := slices.ContainsFunc(c.nextBands, func(next int64) bool { return next != store.NoScore })
	if len(settled.Bands) > 0 && !filled && !queue.hasBand(c.Name) {
		settled.Bands = nil
	}
	return &settled
}

// Configure gives a collection a configuration.
func (s *Collections) Configure(c *Collection, config store.Config) {
	s.countPaused(c, -1)
	if !c.stored {
		s.near = nil
	}
	c.Config, c.stored = config, true
	s.countPaused(c, 1)
	c.nextBands = c.nextBands[:min(len(c.nextBands), len(config.Bands))]
	for len(c.nextBands) < len(config.Bands) {
		c.nextBands = append(c.nextBands, store.NoScore)
	}
	if len(config.History) > MaxEpochs {
		s.long[c] = struct{}{}
	} else {
		delete(s.long, c)
	}
	drains := IsGeneration(c.Name)
	s.draining.set(c, drains)
	s.unsettled.set(c, !drains && config.IsUnsettled())
	s.refresh(c)
}

// countPaused adds a collection to the number of those that are paused, if it is one.
func (s *Collections) countPaused(c *Collection, n int) {
	if c.Config.Paused() {
		s.paused += n
	}
}

// Paused is the number of collections that are paused.
func (s *Collections) Paused() int { return s.paused }

// LookedUp notes the lowest scores in the indexes of a collection, of documents outside the due queue.
func (s *Collections) LookedUp(c *Collection, nextInherit, nextOwn int64) {
	c.nextInherit, c.nextOwn = nextInherit, nextOwn
	c.continues = nextInherit != unknown && nextOwn != unknown
	if !c.continues {
		for i := range c.nextBands {
			c.nextBands[i] = unknown
		}
	}
	s.refresh(c)
}

// LookedUpBand notes the lowest score in a band, from where it begins, of documents outside the due queue.
func (s *Collections) LookedUpBand(c *Collection, band int, next int64) {
	c.nextBands[band-1] = next
	s.refresh(c)
}

// Band notes the bands of a configuration, in which documents come to the index with the commit at a log time.
func (s *Collections) Band(change store.ConfigChange, at int64) {
	c := s.Make(change.Collection)
	bands := len(c.Config.Bands)
	s.Configure(c, *change.Config)
	for band := bands + 1; band <= len(c.Config.Bands); band++ {
		c.warnBand(band, at)
	}
	s.refresh(c)
}

// Continues reports whether the documents of the collection that are in the due queue are exactly those with the
// lowest scores in its indexes, so that another look-up may pass them over. A document that came since the last
// look-up ends that, also with the very score that comes next: Redis orders equal scores by id.
func (c *Collection) Continues() bool { return c.continues }

// Move makes a collection an old generation, with a new name and a configuration.
func (s *Collections) Move(name, to string, config store.Config) {
	was := s.Make(name)
	s.Remove(name)
	c := s.Make(to)
	c.nextInherit, c.nextOwn, c.nextBands = was.nextInherit, was.nextOwn, was.nextBands
	s.Configure(c, config)
}

// Note keeps the lowest scores true after a document came to the index.
func (s *Collections) Note(c *Collection, h *store.Header) {
	lowest := &c.nextInherit
	score, in := h.Clock().Score()
	if len(c.marks) > 0 {
		c.noteWarnings(score, in)
		s.refresh(c)
	}
	switch {
	case in == ttlrules.NotIndexed: // it never expires
		return
	case in == ttlrules.ByOwn:
		lowest = &c.nextOwn
	case h.Band > 0:
		lowest, score = &c.nextBands[h.Band-1], score%ttlrules.BandWidth
	}
	c.continues = c.continues && score > *lowest
	if score < *lowest {
		*lowest = score
		s.refresh(c)
	}
}

// refresh puts a collection where it belongs in byDue and byWarning.
func (s *Collections) refresh(c *Collection) {
	s.byDue.set(c, c.firstDue())
	s.byWarning.set(c, c.nextWarning())
}

// firstDue is the instant at which a document of the collection may be due; math.MaxInt64 if none will.
func (c *Collection) firstDue() int64 {
	at := int64(math.MaxInt64)
	lowest := func(band int, score int64, inherit bool) {
		if score == store.NoScore {
			return
		}
		if t, ok := c.Config.FirstReaped(band, score, inherit); ok {
			at = min(at, t)
		}
	}
	lowest(0, c.nextInherit, true)
	for i, next := range c.nextBands {
		lowest(i+1, next, true)
	}
	lowest(0, c.nextOwn, false)
	return at
}

// FirstDue is the first instant at which a document outside the due queue may be due; math.MaxInt64 if none will.
func (s *Collections) FirstDue() int64 { return s.byDue.first() }

// FirstDueKnown is FirstDue, but math.MaxInt64 if the owner has not looked up yet what that
// collection has. It is for people: FirstDue may then be any instant of the past.
func (s *Collections) FirstDueKnown() int64 {
	if len(s.byDue.list) > 0 && s.byDue.list[0].nextInherit == unknown && s.byDue.list[0].nextOwn == unknown {
		return math.MaxInt64
	}
	return s.FirstDue()
}

// DueBy are up to most collections in which a document may be due by an instant: first
// those with more than MaxEpochs, then by the earliest deadline.
func (s *Collections) DueBy(until int64, most int) []*Collection {
	var found []*Collection
	visits := 4 * most
	for c := range s.long {
		s.visited++
		if visits--; visits < 0 || len(found) == most {
			break
		}
		if c.due.at <= until {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, s.byDue.compare)
	var taken []*Collection
	for len(found) < most && s.FirstDue() <= until {
		c := heap.Pop(&s.byDue).(*Collection)
		taken = append(taken, c)
		if _, ok := s.long[c]; !ok {
			found = append(found, c)
		}
	}
	for _, c := range taken {
		heap.Push(&s.byDue, c)
	}
	return found
}

// ToVerify are the names of some collections, in turn.
func (s *Collections) ToVerify(most int) []string {
	names := make([]string, 0, min(most, len(s.verifying.list)))
	s.verifying.some(most, func(c *Collection) {
		s.visited++
		names = append(names, c.Name)
	})
	return names
}

// ToSettle are some of the collections that drain or have more than one epoch, in turn,
// of those in which no document is due at an instant, in the due queue or outside it.
func (s *Collections) ToSettle(now int64, most int, queue *DueQueue) []*Collection {
	if len(s.draining.list)+len(s.unsettled.list) == 0 {
		return nil
	}
	due := make(map[string]bool)
	for _, doc := range queue.Due(now) {
		due[doc.Key.Collection] = true
	}
	var found []*Collection
	visit := func(c *Collection) {
		s.visited++
		if c.due.at > now && !due[c.Name] {
			found = append(found, c)
		}
	}
	s.draining.some(most, visit)
	s.unsettled.some(most, visit)
	return found
}

// Generations are the names of the old generations of a collection, the oldest first.
func (s *Collections) Generations(collection string) []string { return s.older[collection] }

// All are the names of all collections, in no order.
func (s *Collections) All() []string {
	names := make([]string, len(s.verifying.list))
	for i, c := range s.verifying.list {
		names[i] = c.Name
	}
	return names
}

// Names are the names of all collections, in order. A test compares them.
func (s *Collections) Names() []string { return slices.Sorted(maps.Keys(s.all)) }

// Unsettled is the number of collections that have more than one epoch.
func (s *Collections) Unsettled() int { return len(s.unsettled.list) }

// Visited is the number of entries read or moved so far. A test compares it with the number of steps.
func (s *Collections) Visited() int { return s.visited }

// ring is a set of collections that are visited in turn.
type ring struct {
	kind int
	list []*Collection
	next int
}

// The rings in which a collection may be.
const (
	drainingRing = iota
	unsettledRing
	verifyingRing
	makingRing
	ringCount
)

func (r *ring) set(c *Collection, is bool) {
	if is {
		r.add(c)
	} else {
		r.remove(c)
	}
}

func (r *ring) add(c *Collection) {
	if c.slots[r.kind] < 0 {
		c.slots[r.kind] = len(r.list)
		r.list = append(r.list, c)
	}
}

// remove takes a collection out: the last takes its place.
func (r *ring) remove(c *Collection) {
	i := c.slots[r.kind]
	if i < 0 {
		return
	}
	last := len(r.list) - 1
	r.list[i] = r.list[last]
	r.list[i].slots[r.kind] = i
	r.list[last], r.list = nil, r.list[:last]
	c.slots[r.kind] = -1
}

// some visits the next few, each once at most.
func (r *ring) some(most int, visit func(*Collection)) {
	for range min(most, len(r.list)) {
		if r.next >= len(r.list) {
			r.next = 0
		}
		visit(r.list[r.next])
		r.next++
	}
}
