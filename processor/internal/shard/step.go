package shard

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
)

// step applies messages up to the first that has to wait until its collection is settled (see [fold.Decision.Apply]),
// and reaps documents that are due by then, as one step: read, decide, publish, commit. to is how far the log was read;
// if these messages are all that came, the log is applied up to there. worked reports whether there was anything to do
// beside letting log time move on.
func (p *Owner) step(ctx context.Context, messages []*fold.Message, to fold.Position) (worked bool, err error) {
	began := time.Now()
	d := fold.New(p.Limits, p.collections, p.progress.Watermark)
	messages, held, err := p.read(ctx, d, messages)
	if err != nil {
		return false, err
	}
	if held {
		return true, p.commitTime(ctx, messages[0])
	}
	if err := p.Hook.At(crash.AfterRead); err != nil {
		return false, err
	}
	for i, m := range messages {
		if p.apply(d, m) {
			if d.Full() {
				messages = messages[:i+1]
				break
			}
			continue
		}
		if i == 0 {
			return true, p.drain(ctx, m)
		}
		messages = messages[:i]
		break
	}
	banded := d.Banded()
	for _, change := range banded { // before the commit, which puts documents there
		p.collections.Band(change, d.Watermark)
	}
	to = p.reach(messages, to)
	due, held, err := p.reap(ctx, d, messages, to)
	if err != nil {
		return false, err
	}
	p.stepped = len(messages) + len(due)
	worked, err = p.finish(ctx, &work{
		decision: d, messages: messages, due: due, to: to, began: began,
		configs: banded, changes: d.Changes(due), commits: held,
	})
	return worked || len(messages) > 0, err
}

// apply applies a message: see [fold.Decision.Apply].
func (p *Owner) apply(d *fold.Decision, m *fold.Message) bool {
	if work := d.Work(m); work != "" {
		defer p.Status.Works(work)()
	}
	return d.Apply(m)
}

// reach is the position after a step: that of its last message, or, if there are no more
// messages, the position to which the log was read.
func (p *Owner) reach(messages []*fold.Message, to fold.Position) fold.Position {
	here := p.progress.Here()
	for _, m := range messages {
		here = fold.Position{Seq: m.Seq, Time: max(here.Time, p.logTimeAt(m)), Stamp: m.Stamp}
	}
	if len(messages) < len(p.pending) || to.Seq <= here.Seq {
		return here
	}
	at := max(here.Time, to.Time)
	if to.Seq >= p.announcer.upTo {
		p.announcer.Pass(at)
	}
	return fold.Position{Seq: to.Seq, Time: at, Stamp: to.Stamp}
}

// logTimeAt is the log time at a message. It notes when that passes the point up to which outputs may
// have been published.
func (p *Owner) logTimeAt(m *fold.Message) int64 {
	at := max(p.progress.Watermark, m.Time)
	if m.Seq > p.announcer.upTo {
		p.announcer.Pass(at)
	}
	return at
}

// commitTime commits the log time at a message that is not applied yet, by which readers then go.
func (p *Owner) commitTime(ctx context.Context, m *fold.Message) error {
	p.progress.Saw(m.Position)
	return p.commit(ctx, fold.Position{Seq: m.Seq - 1, Time: p.logTimeAt(m)}, nil, nil)
}
