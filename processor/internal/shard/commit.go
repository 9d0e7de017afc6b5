package shard

import (
	"cmp"
	"context"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// work is a decision that the owner is to finish.
type work struct {
	decision *fold.Decision
	messages []*fold.Message     // that the decision applies
	due      []*fold.DueDocument // that are reaped beside it
	to       fold.Position       // how far the log is applied then
	began    time.Time           // when the owner began to decide
	configs  []store.ConfigChange
	changes  []store.CollectionChanges
	control  bool // the message is a configuration or a drop
	commits  bool // also if nothing but log time changes
}

// finish finishes a decision: it verifies, publishes the outputs, commits the changes, and
// then sends the outcomes. The order is what makes each event and each effect happen once;
// see the package doc. committed reports whether it had anything to commit.
func (p *Owner) finish(ctx context.Context, w *work) (committed bool, err error) {
	d, metrics := w.decision, p.Metrics
	n := len(d.Outputs)
	if n > 0 && p.tenure.verified.Before(w.began) {
		// These outputs follow from the messages alone: nothing has shown that this
		// process is still the owner.
		if err := p.verify(ctx, nil); err != nil {
			return false, err
		}
	}
	for _, doc := range w.due {
		d.ExpireDue(doc)
	}
	found := p.lookAhead(ctx, w)
	err = p.publish(ctx, d.Outputs, p.progress.StampAt(w.to))
	if err = cmp.Or(err, found()); err != nil {
		return false, err
	}
	published := time.Now()
	p.progress.Attempt("")
	p.delivery = delivery{outcomes: d.Outcomes, open: true}
	if committed = w.commits || len(w.changes)+len(d.Outputs)+len(d.Outcomes) > 0; committed {
		if err := p.commit(ctx, w.to, w.configs, w.changes); err != nil {
			return false, err
		}
	} else {
		p.reached(w.to) // only log time has moved on: a later commit stores that
	}
	if w.control {
		if err := p.Hook.At(crash.AfterControl); err != nil {
			return false, err
		}
	}
	p.pending.Applied(len(w.messages))
	p.deliver()
	p.traceWrites(w)
	if !w.control || p.Shard == 0 { // all shards apply a configuration, and one counts it
		metrics.Applied.Add(float64(len(w.messages) - len(d.Rejections)))
		for _, r := range d.Rejections {
			metrics.Rejected.WithLabelValues(strconv.Itoa(r.Code)).Inc()
		}
		metrics.Expired.Add(float64(d.Expired))
	}
	p.announcer.Lateness(metrics.Lateness, d.Outputs[n:], published)
	p.Status.Reaped.Add(uint64(len(w.due)))
	return committed, nil
}

// publish publishes outputs: see [Announcer.Publish].
func (p *Owner) publish(ctx context.Context, outputs []fold.Output, from store.Stamp) error {
	defer p.Status.Works("waiting for NATS (publish)")()
	return p.announcer.Publish(ctx, outputs, from)
}

// delivery are the outcomes of the last step, until they are sent.
type delivery struct {
	outcomes []fold.Outcome
	open     bool
}

// deliver sends the outcomes of the last step.
func (p *Owner) deliver() {
	p.Outcomes.Send(p.announcer.Checkpoint(), p.delivery.outcomes)
	p.delivery = delivery{}
}

// commit commits changes, after which the log is applied up to a position.
func (p *Owner) commit(ctx context.Context, to fold.Position, configs []store.ConfigChange, changes []store.CollectionChanges) error {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	began := time.Now()
	pr := p.progress.Next(to, p.announcer.Last().String())
	if err := p.Hook.At(crash.BeforeCommit); err != nil {
		return err
	}
	p.progress.Attempt(pr.Next)
	defer p.Status.Works("waiting for Redis (commit)")()
	if err := p.Store.Commit(ctx, pr, configs, changes); err != nil {
		return err
	}
	if err := p.Hook.At(crash.AfterCommit); err != nil {
		return err
	}
	p.tenure.verified = began
	p.tenure.recording.Commit(configs, changes)
	p.Metrics.Commits.Observe(time.Since(began).Seconds())
	for _, c := range changes {
		p.collections.Committed(c, &p.due)
	}
	p.progress.Committed(pr)
	p.Status.Rebuild.Store(pr.Rebuild)
	p.reached(to)
	p.judge()
	return nil
}

// reached notes how far the log is applied, and tells others.
func (p *Owner) reached(to fold.Position) {
	p.progress.Advance(to)
	p.Status.Applied.Store(to.Seq)
	p.Status.Configured.Store(p.progress.Configured())
}
