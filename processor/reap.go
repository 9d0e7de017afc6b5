package processor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed18712806/lapse/sink"
)

// unknown is the first instant at which something may fall due that was not looked up.
func (p *partition) unknown() int64 {
	at := int64(math.MaxInt64)
	for _, c := range p.configs {
		at = min(at, c.nextDue())
	}
	return at
}

// nextDue is the instant at which something in the partition may be due.
func (p *partition) nextDue() int64 { return min(p.unknown(), p.soon.next()) }

// nextDueOf is the same of one collection.
func (p *partition) nextDueOf(name string) int64 {
	c, ok := p.configs[name]
	if !ok {
		return math.MaxInt64
	}
	return min(c.nextDue(), p.soon.nextOf(name))
}

// turn is how a partition that has much to reap stands to the others.
type turn int

const (
	noTurn turn = iota // it needs none
	waitsForTurn
	hasTurn
)

// mayReap says whether the partition may reap what is due at an instant: much of it, only
// when it is its turn, if there are turns.
func (p *partition) mayReap(now int64) bool {
	if p.turns.giveWay.Load() && !p.hurries && (p.unknown() <= now || len(p.soon.due(now)) > turnChunk) {
		p.turn = waitsForTurn
		if p.turns.take(p.id) {
			p.turn = hasTurn
		}
	} else {
		p.leaveTurn()
	}
	return p.turn != waitsForTurn
}

// hurry reaps a chunk of what is due, without giving way.
func (p *partition) hurry(ctx context.Context) error {
	p.hurries = true
	defer func() { p.hurries = false }()
	_, err := p.step(ctx, nil, mark{})
	return err
}

// endTurn ends the partition's turn.
func (p *partition) endTurn() {
	if p.turn == hasTurn {
		p.leaveTurn()
	}
}

// leaveTurn ends the partition's turn, or its waiting for one.
func (p *partition) leaveTurn() {
	if p.turn != noTurn {
		p.turns.leave(p.id)
		p.turn = noTurn
	}
}

// reap returns what is to be reaped beside a decision, at a place in the log: see
// reapable.
func (p *partition) reap(ctx context.Context, d *decision, now mark) (due []*dueDoc, held bool, err error) {
	if !p.mayReap(now.time) {
		return nil, false, nil
	}
	if err := p.lookAhead(ctx, now); err != nil {
		return nil, false, err
	}
	due, held = p.reapable(d, now.time)
	if p.turn == hasTurn {
		due = due[:min(len(due), turnChunk)]
	}
	return due, held, nil
}

// lookAhead looks up what is due, or falls due next, at a place in the log: one chunk of
// it. What is due is in the index until its events are stored: so the index is the
// queue of the events to be sent.
func (p *partition) lookAhead(ctx context.Context, now mark) error {
	if at := p.unknown(); at > now.time+lookBefore || at > now.time && p.soon.len() >= reapChunk/4 {
		return nil
	}
	before := p.soon.docs
	p.forget()
	until := now.time + lookFor
	names := p.nextCollections(until)
	cuts := make([]sink.Cut, len(names))
	for i, name := range names {
		cuts[i] = sink.Cut{Collection: name, Cuts: p.configs[name].config.History.Cuts(until)}
	}
	whole := !p.said.all(now.seq, until)
	found, err := p.find(ctx, cuts, whole)
	if err != nil {
		return err
	}
	var docs []*dueDoc
	left := int64(0)
	for i, f := range found {
		c := p.collection(names[i])
		for j, id := range f.IDs {
			doc := &dueDoc{key: docKey{names[i], id}, header: f.Documents[j].Header}
			if whole {
				doc.body = []byte(f.Documents[j].Body)
			}
			var ok bool
			if doc.expiry, ok = c.config.History.ExpiredAt(doc.header.Ts, doc.header.TTL); !ok || doc.expiry.At > until {
				return fmt.Errorf("%w: the index has %s/%s as expired, which it is not", sink.ErrDamaged, names[i], id)
			}
			if was := before[doc.key]; was != nil && was.header.Etag == doc.header.Etag {
				doc.said = was.said
			}
			docs = append(docs, doc)
		}
		c.nextInherit, c.nextOwn = f.NextInherit, f.NextOwn
		left += f.Left
	}
	p.left.Store(left + int64(len(docs)))
	p.soon.set(docs)
	return nil
}

// forget forgets what was looked up, but not that it will be due.
func (p *partition) forget() {
	for key, doc := range p.soon.docs {
		p.collection(key.collection).note(&doc.header)
	}
	p.soon.set(nil)
}

// nextCollections are some collections in which something falls due by an instant,
// those first in which it does first.
func (p *partition) nextCollections(until int64) []string {
	type dueAt struct {
		name string
		at   int64
	}
	var due []dueAt
	for name, c := range p.configs {
		if at := c.nextDue(); at <= until {
			due = append(due, dueAt{name, at})
		}
	}
	slices.SortFunc(due, func(a, b dueAt) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name)) })
	due = due[:min(len(due), reapCollections)]
	names := make([]string, len(due))
	for i, d := range due {
		names[i] = d.name
	}
	return names
}

// find finds a chunk of what is under the cuts.
func (p *partition) find(ctx context.Context, cuts []sink.Cut, whole bool) ([]sink.Due, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	chunk := reapChunk
	if p.turn == hasTurn {
		chunk = turnChunk
	}
	began := time.Now()
	found, err := p.store.Due(ctx, p.version, cuts, chunk, reapBytes, whole)
	if err != nil {
		return nil, err
	}
	p.looked = began
	return found, p.at(afterFind)
}

// reapable is what of the documents that are due at an instant is to be reaped now,
// beside a decision: not what that decides about. held says that there is more, which
// readers may still take for live: their clock is not known to have come so far, so the
// log time has to be committed first.
func (p *partition) reapable(d *decision, now int64) (due []*dueDoc, held bool) {
	shown := p.shown()
	for _, doc := range p.soon.due(now) {
		switch {
		case d.docs[doc.key] != nil:
		case doc.expiry.At > shown:
			held = true
		default:
			due = append(due, doc)
		}
	}
	return due, held
}

// expire says that the document has expired, if that is still to be said.
func (doc *dueDoc) expire(d *decision) {
	if doc.body == nil || doc.said {
		d.expired++
		return
	}
	d.expire(doc.key, version{header: doc.header, body: doc.body}, doc.expiry)
}

// withDue adds the removal of documents to changes.
func withDue(changes []sink.CollectionChanges, due []*dueDoc) []sink.CollectionChanges {
	for _, doc := range due {
		i := slices.IndexFunc(changes, func(c sink.CollectionChanges) bool { return c.Collection == doc.key.collection })
		if i < 0 {
			i = len(changes)
			changes = append(changes, sink.CollectionChanges{Collection: doc.key.collection})
		}
		changes[i].Changes = append(changes[i].Changes, sink.Change{ID: doc.key.id, Old: &doc.header})
	}
	return changes
}

// late measures how late events of reaped documents were stored.
func (p *partition) late(events []output, stored time.Time) {
	for _, o := range events {
		if p.said.of(o) == isNew {
			p.metrics.lateness.Observe(stored.Sub(time.UnixMilli(o.at)).Seconds())
		}
	}
}
