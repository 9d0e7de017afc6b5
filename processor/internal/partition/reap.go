package partition

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

// nextDue is the instant at which a document of the partition may be due.
func (p *Partition) nextDue() int64 { return min(p.collections.FirstDue(), p.queue.Next()) }

// knownDue is nextDue as others are told of it: only documents count that were looked up.
func (p *Partition) knownDue() int64 { return min(p.collections.FirstKnown(), p.queue.Next()) }

// reaper is how the owner reaps now.
type reaper struct {
	shares  bool  // the share decides how many documents
	taken   int   // how many it has given; 0 while the owner waits
	hurries bool  // it does not ask the share: a message waits for the due documents
	changed int64 // log time of the last configuration or drop
}

// mayReap is how many of the documents that are due at an instant the partition may reap beside
// so many messages. Of many that a configuration has made due, the share decides, but for as many
// as there are messages. Of others it reaps more than it applies messages: or while messages come
// at full speed, and each document expires, what is due would pile up.
func (p *Partition) mayReap(now int64, messages int) int {
	if !p.reaper.hurries && p.nextDue() <= p.reaper.changed && (p.collections.FirstDue() <= now || len(p.queue.Due(now)) > Chunk) {
		p.reaper.shares, p.reaper.taken = true, p.shared.Share.Take(p.id)
		return max(p.reaper.taken, messages)
	}
	p.leaveShare()
	return ReapChunk + messages
}

// reapNow reaps a chunk of the due documents, without asking the share.
func (p *Partition) reapNow(ctx context.Context) error {
	p.reaper.hurries = true
	defer func() { p.reaper.hurries = false }()
	_, err := p.step(ctx, nil, fold.Position{})
	return err
}

// waits reports whether the partition waits until there is room for it.
func (r *reaper) waits() bool { return r.shares && r.taken == 0 }

// endReap returns what the partition has taken of the share, after a step.
func (p *Partition) endReap() {
	if !p.reaper.waits() {
		p.leaveShare()
	}
}

// leaveShare returns what the partition has taken of the share, or ends its waiting.
func (p *Partition) leaveShare() {
	if p.reaper.shares {
		p.shared.Share.Leave(p.id)
		p.reaper.shares, p.reaper.taken = false, 0
	}
}

// reap returns the documents to be reaped beside a decision about messages, at a position
// in the log: see Decision.Reap.
func (p *Partition) reap(ctx context.Context, d *fold.Decision, messages []*fold.Message, now fold.Position) (due []*fold.DueDocument, held bool, err error) {
	most := p.mayReap(now.Time, len(messages))
	if most == 0 {
		return nil, false, nil
	}
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
	due, held = d.Reap(&p.queue, now.Time, p.readersAt())
	if p.reaper.shares {
		due = due[:min(len(due), most)]
	}
	return due, held, nil
}

// logClock is the time of the log's clock, as far as it is known. A log that is silent shows no time.
func (p *Partition) logClock() int64 { return p.shared.Ticker.LogTime(time.Now()).UnixMilli() }

// lookUpIn is how long the partition may rest until it has to look up documents, so that their events need
// not wait for that at their deadline.
func (p *Partition) lookUpIn() time.Duration {
	if p.reaper.waits() || p.queue.Len() >= ReapChunk/4 {
		return HeartbeatEvery
	}
	in := min(p.collections.FirstDue()-lookUpAgain-p.logClock(), HeartbeatEvery.Milliseconds())
	return time.Duration(max(in, 1)) * time.Millisecond
}

// lookUp fills the due queue with most of the documents that are due, or will be next, at an
// instant, for a step to a sequence of the log; their bodies have so many bytes. A due document stays in the index until its event
// is stored: so the index is the queue of the events to be published.
func (p *Partition) lookUp(ctx context.Context, seq uint64, now int64, most, bytes int) error {
	if at := p.collections.FirstDue(); at > now+lookUpAgain || at > now && p.queue.Len() >= ReapChunk/4 {
		return nil
	}
	p.forget()
	until := now + lookUpAhead
	asked := p.collections.DueBy(until, reapCollections)
	cuts := make([]store.Cut, len(asked))
	for i, c := range asked {
		cuts[i] = store.Cut{Collection: c.Name, Cuts: c.Config.History.Cuts(until)}
	}
	whole := !p.announcer.All(seq, until)
	found, err := p.find(ctx, cuts, most, bytes, whole)
	if err != nil {
		return err
	}
	var docs []*fold.DueDocument
	for i, f := range found {
		c := asked[i]
		for j, id := range f.IDs {
			doc := &fold.DueDocument{Key: fold.Key{Collection: c.Name, ID: id}, Header: f.Documents[j].Header}
			if whole {
				doc.Body = []byte(f.Documents[j].Body)
			}
			var ok bool
			if doc.Expiry, ok = c.Config.History.ExpiredAt(doc.Header.Clock()); !ok || doc.Expiry.At > until {
				return fmt.Errorf("%w: the index has %s/%s as expired, which it is not", store.ErrDamaged, c.Name, id)
			}
			docs = append(docs, doc)
		}
		p.collections.LookedUp(c, f.NextInherit, f.NextOwn)
	}
	p.queue.Set(docs)
	return nil
}

// forget empties the due queue, but not the knowledge that its documents will be due.
func (p *Partition) forget() {
	for doc := range p.queue.All() {
		p.collections.Note(p.collections.Make(doc.Key.Collection), &doc.Header)
	}
	p.queue.Set(nil)
}

// find finds some of the documents under the cuts, so many and so many bytes of bodies at most.
func (p *Partition) find(ctx context.Context, cuts []store.Cut, most, bytes int, whole bool) ([]store.Due, error) {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.status.Works("waiting for Redis (due documents)")()
	began := time.Now()
	found, err := p.store.Due(ctx, p.progress.Version(), cuts, most, bytes, whole)
	if err != nil {
		return nil, err
	}
	p.tenure.verified = began
	return found, p.shared.Hook.At(crash.AfterFind)
}
