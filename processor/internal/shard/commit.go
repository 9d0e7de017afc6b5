package shard

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
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

	caused    int       // outputs that the messages have caused; those behind them are of documents that are due
	published time.Time // when all outputs were
}

// isFull reports whether the step reaps so many documents that the next one may be full too.
func (w *work) isFull() bool { return len(w.due) >= ReapChunk }

// finish finishes a decision: it verifies, publishes the outputs, commits the changes, and
// then sends the outcomes. The order is what makes each event and each effect happen once;
// see the package doc. committed reports whether it had anything to commit.
//
// Where many more documents are due, it goes on with them (following): while the events of one step are published,
// it commits the step before, and looks up the documents of the next one.
func (p *Owner) finish(ctx context.Context, w *work) (committed bool, err error) {
	if len(w.decision.Outputs) > 0 && p.tenure.verified.Before(w.began) {
		// These outputs follow from the messages alone: nothing has shown that this process is still the owner.
		if err := p.verify(ctx, nil); err != nil {
			return false, err
		}
	}
	until := time.Now().Add(p.Bounds.Reap)
	var before *work // is published, and not committed
	for {
		w.caused = len(w.decision.Outputs)
		for _, doc := range w.due {
			w.decision.ExpireDue(doc)
		}
		var published func() error
		if published, err = p.publish(ctx, w); err != nil {
			return false, err
		}
		if before != nil {
			_, err = p.commitWork(ctx, before)
		}
		if err == nil {
			err = p.lookAhead(ctx, w)
		}
		if failed := published(); cmp.Or(err, failed) != nil {
			return false, cmp.Or(err, failed)
		}
		w.published = time.Now()
		next := p.following(w, until)
		if next == nil {
			return p.commitWork(ctx, w)
		}
		before, w = w, next
	}
}

// publish publishes the outputs of a step. Those of a full one it publishes beside what the owner does next: the
// caller waits for published before it commits.
func (p *Owner) publish(ctx context.Context, w *work) (published func() error, err error) {
	defer p.Status.Works("waiting for NATS (publish)")()
	out, err := p.announcer.prepare(ctx, w.decision.Outputs, p.progress.StampAt(w.to))
	switch {
	case err != nil || out == nil:
		return func() error { return nil }, err
	case !w.isFull():
		out.send(ctx)
		return func() error { return p.announcer.sent(out) }, nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		out.send(ctx)
	}()
	return func() error {
		defer p.Status.Works("waiting for NATS (publish)")()
		<-done
		return p.announcer.sent(out)
	}, nil
}

// commitWork commits a decision whose outputs are published, and sends the outcomes.
func (p *Owner) commitWork(ctx context.Context, w *work) (committed bool, err error) {
	d, metrics := w.decision, p.Metrics
	p.progress.Attempt("")
	p.outcomes = d.Outcomes
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
	p.applied(len(w.messages))
	p.deliver()
	p.traceWrites(w)
	if !w.control || p.Shard == 0 { // all shards apply a configuration, and one counts it
		metrics.Applied.Add(float64(len(w.messages) - len(d.Rejections)))
		for _, r := range d.Rejections {
			metrics.Rejected.WithLabelValues(strconv.Itoa(r.Code)).Inc()
		}
		metrics.Expired.Add(float64(d.Expired))
	}
	p.announcer.Lateness(metrics.Lateness, d.Outputs[w.caused:], w.published)
	p.Status.Reaped.Add(uint64(len(w.due)))
	return committed, nil
}

// deliver sends the outcomes of the last step.
func (p *Owner) deliver() {
	p.Outcomes.Send(p.announcer.checkpoint.Seq, p.outcomes)
	p.outcomes = nil
}

// commit commits changes, after which the log is applied up to a position.
func (p *Owner) commit(ctx context.Context, to fold.Position, configs []store.ConfigChange,
	changes []store.CollectionChanges) error {
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
	p.Status.Committed.Store(to.Seq)
	p.Status.Rebuild.Store(pr.Rebuild)
	p.reached(to)
	p.judge()
	return nil
}

// applied drops the first n pending messages, which were applied.
func (p *Owner) applied(n int) {
	p.pending = p.pending[n:]
	p.Queue.Applied(n)
}

// reached notes how far the log is applied, and tells others.
func (p *Owner) reached(to fold.Position) {
	p.progress.Advance(to)
	p.Status.Applied.Store(to.Seq)
	p.Status.Configured.Store(p.progress.Configured)
}

// traceWrites records the decision and the commit of each write that carries a traceparent, except those
// that were committed before a rebuild. As with outcomes, a takeover may record one twice.
func (p *Owner) traceWrites(w *work) {
	if p.Trace == nil {
		return
	}
	ended := time.Now()
	rejections := w.decision.Rejections // in the order of the messages
	for _, m := range w.messages {
		status := 0
		if len(rejections) > 0 && rejections[0].Seq == m.Seq {
			status, rejections = rejections[0].Code, rejections[1:]
		}
		if m.Kind != fold.Write || m.Trace == "" || m.Seq <= p.announcer.checkpoint.Seq {
			continue
		}
		op := m.Op
		if !slices.Contains(wire.Ops, op) {
			op = "<operation>" // that of a client, which may be anything
		}
		p.Trace(trace.Span{
			Kind: trace.Write, Parent: m.Trace, Subject: "write." + string(op) + ".<collection>.<id>",
			Collection: m.Collection, Seq: m.Seq, Status: status, Began: w.began, Ended: ended,
		})
	}
}
