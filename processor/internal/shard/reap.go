package shard

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
)

const (
	// ReapChunk is how many documents are reaped in one step, beside as many as it applies messages.
	ReapChunk       = 256
	reapMany        = 2048    // while more is due than a step reaps: fewer publications and commits
	reapBytes       = 1 << 20 // in the bodies of these documents, beside as many as the messages have
	reapCollections = 32      // collections in which they are looked up
	lookUpAhead     = 250     // milliseconds before their deadline that documents are looked up
	lookUpAgain     = 20      // milliseconds before the first deadline outside the due queue
)

// firstDue is the instant at which a document of the shard may be due.
func (p *Owner) firstDue() int64 { return min(p.collections.FirstDue(), p.due.FirstDue()) }

// firstDueKnown is firstDue as others are told of it: only documents count that were looked up.
func (p *Owner) firstDueKnown() int64 { return min(p.collections.FirstDueKnown(), p.due.FirstDue()) }

// reaper is how the owner reaps now.
type reaper struct {
	hurries bool  // it does not go by the pace
	behind  bool  // the last step reaped a chunk at least: more may be due
	changed int64 // log time of the last configuration or drop
}

// mayReap is how many of the documents that are due at an instant the owner may reap beside so many messages. Of many
// that a configuration has made due, the pace decides, but for as many as there are messages. Of others it reaps more
// than it applies messages: or while messages come at full speed, and each document expires, what is due would pile up.
func (p *Owner) mayReap(now int64, messages int) (most int, paced bool) {
	if !p.reaper.hurries && p.firstDue() <= p.reaper.changed && (p.collections.FirstDue() <= now ||
		len(p.due.Due(now)) > leastRoom) {
		return max(p.Pace.Room(), messages), true
	}
	if p.reaper.behind && !p.reaper.hurries {
		return reapMany + messages, false
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
func (p *Owner) reap(ctx context.Context, d *fold.Decision, messages []*fold.Message,
	now fold.Position) (due []*fold.DueDocument, held bool, err error) {
	most, paced := p.mayReap(now.Time, len(messages))
	at := now.Time
	if len(p.pending) == 0 { // the log is silent, perhaps
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
	p.reaper.behind = len(due) >= ReapChunk
	return due, held, nil
}

// following is the step that comes after a full one, which is published: it reaps more of the documents that are due.
// It is nil if few are, or if there is something else to do. It is nil behind a step whose messages name documents: the
// due queue has these as they were before.
func (p *Owner) following(w *work, until time.Time) *work {
	waiting, _ := p.Queue.Waiting()
	if !w.isFull() || w.decision.NamesDocuments() || waiting > len(w.messages) || time.Now().After(until) {
		return nil
	}
	now := w.to.Time
	next := &work{decision: fold.New(p.Limits, p.collections, now), to: w.to, began: time.Now()}
	most, _ := p.mayReap(now, 0)
	next.due, _ = next.decision.Reap(&p.due, now, p.readersAt())
	next.due = next.due[:min(len(next.due), most)]
	if !next.isFull() {
		return nil
	}
	next.changes = next.decision.Changes(next.due)
	return next
}

// logClock is the time of the log's clock, as far as it is known. A log that is silent shows no time.
func (p *Owner) logClock() int64 { return p.Ticker.LogTime(time.Now()).UnixMilli() }
