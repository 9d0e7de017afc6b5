package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"

	"github.com/seed18712806/lapse/sink/store"
)

const (
	// ReapChunk is how many documents are reaped in one step, beside as many as it applies messages.
	ReapChunk       = 256
	reapBytes       = 1 << 20 // in the bodies of these documents, beside as many as the messages have
	reapCollections = 32      // collections in which they are looked up
	lookUpAhead     = 250     // milliseconds before their deadline that documents are looked up
	lookUpAgain     = 20      // milliseconds before the first deadline outside the due queue
)

// nextDue is the instant at which a document of the shard may be due.
func (p *Owner) nextDue() int64 { return min(p.collections.FirstDue(), p.due.Next()) }

// knownDue is nextDue as others are told of it: only documents count that were looked up.
func (p *Owner) knownDue() int64 { return min(p.collections.FirstKnown(), p.due.Next()) }

// reaper is how the owner reaps now.
type reaper struct {
	hurries bool  // it does not go by the pace
	changed int64 // log time of the last configuration or drop
}

// mayReap is how many of the documents that are due at an instant the owner may reap beside so many messages. Of
// many that a configuration has made due, the pace decides, but for as many as there are messages. Of others it reaps
// more than it applies messages: or while messages come at full speed, and each document expires, what is due would
// pile up.
func (p *Owner) mayReap(now int64, messages int) (most int, paced bool) {
	if !p.reaper.hurries && p.nextDue() <= p.reaper.changed && (p.collections.FirstDue() <= now || len(p.due.Due(now)) > leastRoom) {
		return max(p.Pace.Room(), messages), true
	}
	return ReapChunk + messages, false
}

// reapNow reaps a chunk of the due documents, whatever the pace is.
func (p *Owner) reapNow(ctx context.Context) error {
	p.reaper.hurries = true
	defer func() { p.reaper.hurries = false }()
	_, err := p.step(ctx, nil, fold.Position{})
	return err
}

// reap returns the documents to be reaped beside a decision about messages, at a position
// in the log: see Decision.Reap.
func (p *Owner) reap(ctx context.Context, d *fold.Decision, messages []*fold.Message, now fold.Position) (due []*fold.DueDocument, held bool, err error) {
	most, paced := p.mayReap(now.Time, len(messages))
	at := now.Time
	if len(p.pending.Messages) == 0 { // the log is silent, perhaps
		at = max(at, p.logClock())
	}
	bytes := reapBytes
	for _, m := range messages {
		bytes += len(m.Body)
	}
	if err := p.lookUp(ctx, now.Seq, at, most, bytes); err != nil {
		return nil, false, err
	}
	due, held = d.Reap(&p.due, now.Time, p.readersAt())
	if paced {
		due = due[:min(len(due), most)]
	}
	return due, held, nil
}

// logClock is the time of the log's clock, as far as it is known. A log that is silent shows no time.
func (p *Owner) logClock() int64 { return p.Ticker.LogTime(time.Now()).UnixMilli() }

// lookUpIn is how long the shard may rest until it has to look up documents, so that their events need
// not wait for that at their deadline.
func (p *Owner) lookUpIn() time.Duration {
	if p.due.Len() >= ReapChunk/4 {
		return HeartbeatEvery
	}
	in := min(p.collections.FirstDue()-lookUpAgain-p.logClock(), HeartbeatEvery.Milliseconds())
	return time.Duration(max(in, 1)) * time.Millisecond
}

// lookUp fills the due queue with most of the documents that are due, or will be next, at an
// instant, for a step to a sequence of the log; their bodies have so many bytes. A due document stays in the index
// until its event is stored: so the index is the queue of the events to be published.
func (p *Owner) lookUp(ctx context.Context, seq uint64, now int64, most, bytes int) error {
	switch at := p.collections.FirstDue(); {
	case at > now+lookUpAgain, at > now && p.due.Len() >= ReapChunk/4:
		return nil
	case len(p.due.Due(now)) >= most: // the look-up ahead has found them
		return nil
	}
	defer p.Status.Works("waiting for Redis (due documents)")()
	p.forget()
	l := p.newLookUp(seq, now+lookUpAhead, most, bytes)
	l.run(ctx)
	return p.lookedUp(l)
}

// lookUpOf is a look-up of due documents.
type lookUpOf struct {
	store       Store
	version     string
	asked       []*fold.Collection
	cuts        []store.Cut
	until       int64
	most, bytes int
	whole       bool

	began time.Time
	found []store.Due
	err   error
}

// newLookUp makes a look-up of documents that are due by an instant.
func (p *Owner) newLookUp(seq uint64, until int64, most, bytes int) *lookUpOf {
	asked := p.collections.DueBy(until, reapCollections)
	cuts := make([]store.Cut, len(asked))
	for i, c := range asked {
		cuts[i] = store.Cut{Collection: c.Name, Cuts: c.Config.History.Cuts(until)}
	}
	return &lookUpOf{
		store: p.Store, version: p.progress.Version(), asked: asked, cuts: cuts, until: until,
		most: most, bytes: bytes, whole: !p.announcer.All(seq, until),
	}
}

// run asks Redis.
func (l *lookUpOf) run(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	l.began = time.Now()
	l.found, l.err = l.store.Due(ctx, l.version, l.cuts, l.most, l.bytes, l.whole)
}

// lookedUp adds what a look-up has found to the due queue.
func (p *Owner) lookedUp(l *lookUpOf) error {
	if l.err != nil {
		return l.err
	}
	p.tenure.verified = l.began
	if err := p.Hook.At(crash.AfterFind); err != nil {
		return err
	}
	var docs []*fold.DueDocument
	for i, f := range l.found {
		c := l.asked[i]
		for j, id := range f.IDs {
			doc := &fold.DueDocument{Key: fold.Key{Collection: c.Name, ID: id}, Header: f.Documents[j].Header}
			if l.whole {
				doc.Body = []byte(f.Documents[j].Body)
			}
			var ok bool
			if doc.Expiry, ok = c.Config.History.ExpiredAt(doc.Header.Clock()); !ok || doc.Expiry.At > l.until {
				return fmt.Errorf("%w: the index has %s/%s as expired, which it is not", store.ErrDamaged, c.Name, id)
			}
			docs = append(docs, doc)
		}
		p.collections.LookedUp(c, f.NextInherit, f.NextOwn)
	}
	p.due.Add(docs)
	return nil
}

// lookAhead begins to look up the documents that are due next, while the owner publishes the events of a step. The
// caller waits for it before it commits. Nil is a look-up that is not worth while, or that cannot pass over the
// documents of the due queue.
func (p *Owner) lookAhead(ctx context.Context, w *work) (found func() error) {
	now, most := w.to.Time, len(w.due)
	if most < ReapChunk || p.collections.FirstDue() > now || p.due.Len()-most >= most {
		return func() error { return nil }
	}
	l := p.newLookUp(w.to.Seq, now+lookUpAhead, most, max(reapBytes, w.bytes()))
	inherit, own := p.due.Of(l.asked)
	for i, c := range l.asked {
		if !c.Continues() {
			return func() error { return nil }
		}
		l.cuts[i].PassInherit, l.cuts[i].PassOwn = inherit[c.Name], own[c.Name]
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.run(ctx)
	}()
	return func() error { <-done; return p.lookedUp(l) }
}

// bytes are those of the bodies of the due documents.
func (w *work) bytes() (n int) {
	for _, doc := range w.due {
		n += len(doc.Body)
	}
	return n
}

// forget empties the due queue, but not the knowledge that its documents will be due.
func (p *Owner) forget() {
	for doc := range p.due.All() {
		p.collections.Note(p.collections.Make(doc.Key.Collection), &doc.Header)
	}
	p.due.Set(nil)
}

// readClock reads Redis's clock, by a look-up that finds nothing.
func (p *Owner) readClock(ctx context.Context) error {
	l := &lookUpOf{store: p.Store, version: p.progress.Version()}
	l.run(ctx)
	return p.lookedUp(l)
}
