package fold

import (
	"cmp"
	"math"
	"slices"

	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// mark is up to where warnings of an index are published. Nothing is stored for a warning: the documents that are to be
// warned of lie in a slice of an index, from where the last slice ended up to the log time, one slice for each index
// and each of the seconds of warnBefore. The owner keeps in memory where the slices end:
//
//   - marks: all warnings of versions in an index up to its mark are published. A takeover begins with the
//     marks at the checkpoint, because a checkpoint is only stored when nothing up to it is to be warned
//     of; what a former owner has published behind it is found in the stream, as all outputs are.
//   - gone: a version that goes, by a write or because it expires, takes the warnings with it that are
//     not published yet and were due before: they come first.
//   - configured: a configuration counts from its log time on. What the one before it asks for by then is
//     published first, and the marks begin anew there.
//   - paused: a paused collection has no marks. A warning whose instant lies in a pause is not published.
type mark struct {
	index  ttlrules.Index
	band   int
	before int32       // seconds before the deadline
	since  int64       // log time from which these seconds count
	end    store.Place // of the last slice
	next   int64       // the lowest score after it, or less; store.NoScore if there is none
}

// warnFrom begins the marks of a collection at a log time, but not before that of the checkpoint.
func (s *Collections) warnFrom(c *Collection, at int64) {
	at = max(at, s.warned)
	c.marks = nil
	for band := range 1 + len(c.Config.Bands) {
		c.warnBand(band, at)
	}
	s.refresh(c)
}

// warnBand begins the marks of a band at a log time; with the first one those of the other index.
func (c *Collection) warnBand(band int, at int64) {
	if c.Config.Paused() {
		return
	}
	for _, w := range c.Config.Warnings {
		for _, index := range []ttlrules.Index{ttlrules.ByInherit, ttlrules.ByOwn} {
			shift, ok := c.Config.History.WarnShift(index, w.Before)
			if !ok || index == ttlrules.ByOwn && band > 0 {
				continue
			}
			end := int64(band)*ttlrules.BandWidth + at - shift
			c.marks = append(c.marks, mark{index: index, band: band, before: w.Before, since: w.Since,
				end: store.AfterAll(end), next: end})
		}
	}
	// the earliest warning first
	slices.SortStableFunc(c.marks, func(a, b mark) int { return cmp.Compare(b.before, a.before) })
}

// shift is the distance from a score to the instant of the warning; ok is false if there is none.
func (m mark) shift(c *Collection) (shift int64, ok bool) {
	shift, ok = c.Config.History.WarnShift(m.index, m.before)
	return shift - int64(m.band)*ttlrules.BandWidth, ok
}

// WarnFrom notes that all warnings up to a log time are published: a takeover begins there.
func (s *Collections) WarnFrom(at int64) {
	s.warned = at
	for _, c := range s.verifying.list {
		if len(c.Config.Warnings) > 0 {
			s.warnFrom(c, at)
		}
	}
}

// noteWarnings keeps the marks true after a document came to the index.
func (c *Collection) noteWarnings(score int64, in ttlrules.Index) {
	for i := range c.marks {
		if m := &c.marks[i]; m.index == in && score >= m.end.Score && in.Band(score) == m.band {
			m.next = min(m.next, score)
		}
	}
}

// nextWarning is the instant at which a document of the collection may have to be warned of;
// math.MaxInt64 if none will.
func (c *Collection) nextWarning() int64 {
	at := int64(math.MaxInt64)
	for _, m := range c.marks {
		if shift, ok := m.shift(c); ok && m.next != store.NoScore {
			at = min(at, m.next+shift)
		}
	}
	return at
}

// FirstWarning is the first instant at which a document may have to be warned of; math.MaxInt64 if none will.
func (s *Collections) FirstWarning() int64 { return s.byWarning.first() }

// MayWarn reports whether a document of a collection may have to be warned of by an instant.
func (s *Collections) MayWarn(name string, at int64) bool {
	c := s.all[name]
	return c != nil && c.warn.at <= at
}

// ToWarn are the slices of the indexes of a collection that come next, up to a log time; name is empty
// if there are none.
func (s *Collections) ToWarn(at int64) (name string, ranges []store.Slice) {
	if s.FirstWarning() > at {
		return "", nil
	}
	c := s.byWarning.list[0]
	for _, m := range c.marks {
		shift, _ := m.shift(c)
		ranges = append(ranges, store.Slice{Index: m.index, After: m.end, UpTo: at - shift})
	}
	return c.Name, ranges
}

// Warn returns the warnings of the documents that were found in the slices of ToWarn, the earliest
// first, and moves the marks on.
func (d *Decision) Warn(s *Collections, name string, ranges []store.Slice, found []store.Found) {
	c := s.all[name]
	for i, f := range found {
		m := &c.marks[i]
		for j, id := range f.IDs {
			h := f.Documents[j].Header
			if w, ok := m.of(c, h.Clock()); ok {
				d.warn(Key{Collection: name, ID: id}, &Version{Header: h, Body: []byte(f.Documents[j].Body)}, w)
			}
		}
		m.next = f.Next
		switch last := len(f.IDs) - 1; {
		case f.Next > ranges[i].UpTo:
			m.end = store.AfterAll(ranges[i].UpTo)
		case last >= 0: // the rest of the slice comes next
			m.end.Score, _ = f.Documents[last].Header.Clock().Score()
			m.end.ID = f.IDs[last]
		}
	}
	s.refresh(c)
	slices.SortStableFunc(d.Outputs, func(a, b Output) int { return cmp.Compare(a.At, b.At) })
}

// Warning is a warning of a version, and when it is due.
type Warning struct {
	Before int32 // seconds before the deadline
	At     int64 // Unix milliseconds
	Expiry ttlrules.Expiry
}

// of is the warning of a version in the index of the mark.
func (m mark) of(c *Collection, clock ttlrules.Clock) (Warning, bool) {
	at, x, ok := c.Config.History.WarnAt(clock, m.before, m.since)
	return Warning{Before: m.before, At: at, Expiry: x}, ok
}

// Unwarned are the warnings of a version that are due by an instant and not published, the earliest first.
func (s *Collections) Unwarned(key Key, clock ttlrules.Clock, by int64) (all []Warning) {
	c := s.all[key.Collection]
	if c == nil {
		return nil
	}
	score, in := clock.Score()
	for _, m := range c.marks {
		if m.index != in || m.band != in.Band(score) || !m.end.Before(store.Place{Score: score, ID: key.ID}) {
			continue
		}
		if w, ok := m.of(c, clock); ok && w.At <= by {
			all = append(all, w)
		}
	}
	return all // the marks are in that order
}

// leaves adds the warnings of a version that goes at an instant, unless they are published.
func (d *Decision) leaves(key Key, v *Version, at int64) {
	for _, w := range d.catalog.Unwarned(key, v.Header.Clock(), at) {
		d.warn(key, v, w)
	}
}

// warn adds a warning of a version, without the document where the configuration at the instant of the warning says so.
func (d *Decision) warn(key Key, v *Version, w Warning) {
	d.Warned++
	document, omitted := d.document(key, v, ttlrules.Expiry{At: w.At})
	d.outputBytes += len(document)
	d.Outputs = append(d.Outputs, Output{
		Message: events.Expiring(d.limits.Log, wire.Expiring{
			ID:         key.ID,
			Collection: CollectionName(key.Collection),
			Document:   document,
			Omitted:    omitted,
			Etag:       wire.Etag(v.Header.Etag),
			Ts:         wire.Time(v.Header.Ts),
			TTL:        w.Expiry.TTL,
			ExpiresAt:  wire.Time(w.Expiry.At),
			Before:     w.Before,
		}, v.Header.Trace),
		At:    w.At,
		Warns: true,
	})
}
