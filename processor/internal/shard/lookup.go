package shard

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// read reads the documents that messages name into a decision. It returns fewer messages
// if more documents expire than one step takes, or if one of them has to wait. held
// reports that the first message has to wait until the log time at it is committed.
func (p *Owner) read(ctx context.Context, d *fold.Decision,
	messages []*fold.Message) (batch []*fold.Message, held bool, err error) {
	if len(messages) == 0 {
		return nil, false, nil
	}
	slots, whole := d.Name(messages)
	if len(slots) == 0 {
		return messages, false, nil
	}
	if err := p.readSlots(ctx, slots, whole); err != nil {
		return nil, false, err
	}
	if batch, held, err = p.notAhead(ctx, d, messages); held || err != nil {
		return batch, held, err
	}
	for {
		if batch, slots, whole = d.Lacking(batch); len(slots) == 0 {
			return batch, false, nil
		}
		if err := p.readSlots(ctx, slots, whole); err != nil {
			return nil, false, err
		}
	}
}

// notAhead returns the messages before the first that finds a document expired which
// readers may still return, as they are not known to have reached its deadline: its event
// has to wait until they have. held reports that this is the very first message.
func (p *Owner) notAhead(ctx context.Context, d *fold.Decision,
	messages []*fold.Message) (batch []*fold.Message, held bool, err error) {
	if p.progress.Rebuild != 0 {
		return messages, false, nil // nobody reads
	}
	first := d.FirstAhead(messages, p.readersAt())
	if first < 0 {
		return messages, false, nil
	}
	if err := p.readClock(ctx); err != nil {
		return nil, false, err
	}
	switch first = d.FirstAhead(messages, p.readersAt()); {
	case first < 0:
		return messages, false, nil
	case first > 0:
		return messages[:first], false, nil
	}
	return messages, true, nil
}

// readersAt is an instant that the clock of readers has reached, at least.
func (p *Owner) readersAt() int64 {
	return max(p.progress.CommittedWatermark, p.Store.Clock())
}

// readSlots reads documents, those in whole with their bodies: at least one of these, see [store.ReadBytes]. Of a
// document of the due queue the body is there: so a write that finds it expired costs no second read for its event.
func (p *Owner) readSlots(ctx context.Context, slots []*fold.Slot, whole map[fold.Key]bool) error {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("waiting for Redis (read)")()
	wants, order := fold.Wants(slots, whole)
	began := time.Now()
	found, err := p.Store.ReadDocuments(ctx, p.progress.Version, wants)
	if err != nil {
		return err
	}
	p.tenure.verified = began
	var lacks *fold.Slot
	bodies := 0
	for i := range wants {
		for j, s := range order[i] {
			stored := found[i][j]
			switch {
			case stored == nil && s.Stored != nil:
				return fmt.Errorf("%w: %s/%s vanished", store.ErrDamaged, s.Key.Collection, s.Key.ID)
			case stored == nil:
			case stored.Body != "":
				s.SetStored(&stored.Header, []byte(stored.Body))
				bodies++
			default:
				body := p.due.Body(s.Key, stored.Header.Etag)
				if s.SetStored(&stored.Header, body); whole[s.Key] && body == nil {
					lacks = s
				}
			}
		}
	}
	if lacks != nil && bodies == 0 { // else the owner would read it for ever
		return fmt.Errorf("%w: %s/%s has no body", store.ErrDamaged, lacks.Key.Collection, lacks.Key.ID)
	}
	return nil
}

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
	p.forget()
	asked, cuts := p.dueBy(now + lookUpAhead)
	return p.find(ctx, asked, cuts, seq, now+lookUpAhead, most, bytes)
}

// dueBy are the parts of the indexes in which documents may be due by an instant, and the collection of each.
func (p *Owner) dueBy(until int64) (asked []*fold.Collection, cuts []store.Cut) {
	for _, c := range p.collections.DueBy(until, reapCollections) {
		for band := range 1 + len(c.Config.Bands) {
			cut := store.Cut{Collection: c.Name, Band: band, Cuts: c.Config.ReapCuts(band, until)}
			asked, cuts = append(asked, c), append(cuts, cut)
		}
	}
	return asked, cuts
}

// find looks up documents that are due by an instant, and adds them to the due queue.
func (p *Owner) find(ctx context.Context, asked []*fold.Collection, cuts []store.Cut, seq uint64, until int64,
	most, bytes int) error {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("waiting for Redis (due documents)")()
	indexed := func(c *fold.Collection) bool { return len(c.Config.Indexes) > 0 }
	published := p.announcer.All(seq, until)
	whole := !published || slices.ContainsFunc(asked, indexed)
	began := time.Now()
	found, err := p.Store.Due(ctx, p.progress.Version, cuts, most, bytes, whole)
	if err != nil {
		return err
	}
	p.tenure.verified = began
	if err := p.Hook.At(crash.AfterFind); err != nil {
		return err
	}
	var docs []*fold.DueDocument
	for i, f := range found {
		c := asked[i]
		for j, id := range f.IDs {
			doc := &fold.DueDocument{
				Key: fold.Key{Collection: c.Name, ID: id}, Header: f.Documents[j].Header, Published: published,
			}
			if whole {
				doc.Body = []byte(f.Documents[j].Body)
			}
			var ok bool
			doc.Expiry, ok = c.Config.History.ExpiredAt(doc.Header.Clock())
			at, _, held := c.Config.Cause(doc.Expiry)
			if !ok || doc.Expiry.At > until || held {
				return fmt.Errorf("%w: the index has %s/%s as expired, which it is not", store.ErrDamaged, c.Name, id)
			}
			if at > doc.Expiry.At {
				doc.Resumed = at
			}
			docs = append(docs, doc)
		}
		if band := cuts[i].Band; band > 0 {
			p.collections.LookedUpBand(c, band, f.NextInherit)
		} else {
			p.collections.LookedUp(c, f.NextInherit, f.NextOwn)
		}
	}
	p.due.Add(docs)
	return nil
}

// lookAhead looks up the documents that are due next, while the owner publishes the events of a full step, unless that
// is not worth while, or cannot pass over the documents of the due queue.
func (p *Owner) lookAhead(ctx context.Context, w *work) error {
	now := w.to.Time
	if !w.isFull() || p.collections.FirstDue() > now {
		return nil
	}
	most, _ := p.mayReap(now, 0)
	if p.due.Len()-len(w.due) >= most {
		return nil
	}
	asked, cuts := p.dueBy(now + lookUpAhead)
	passed := p.due.Of(asked)
	for i, c := range asked {
		if !c.Continues() {
			return nil
		}
		cut := &cuts[i]
		cut.PassInherit = passed[fold.Part{Collection: c.Name, Index: ttlrules.ByInherit, Band: cut.Band}]
		cut.PassOwn = passed[fold.Part{Collection: c.Name, Index: ttlrules.ByOwn}]
	}
	return p.find(ctx, asked, cuts, w.to.Seq, now+lookUpAhead, most, max(reapBytes, w.bytes()))
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
func (p *Owner) readClock(ctx context.Context) error { return p.find(ctx, nil, nil, 0, 0, 0, 0) }
