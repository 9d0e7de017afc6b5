package shard

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/store"
)

// Bounds are how far applying configurations and drops may run ahead of reaping the
// documents that are due, and how long that and the questions of an examination may take.
type Bounds struct {
	// Examine is the limit of examine.Events.
	Examine time.Duration
	// Epochs is the number of epochs that a collection has at most, and of changes of its eventBody. A
	// change that would make more waits until the due documents are reaped.
	Epochs int
	// Generations is the number of old generations of a collection at most: a write reads
	// its id in each of them. A drop that would make more waits likewise.
	Generations int
	// Reap is how long the owner reaps before it does anything else, while no message comes.
	Reap time.Duration
}

// DefaultBounds are the bounds that are used but in tests.
var DefaultBounds = Bounds{Examine: takeOverTimeout, Epochs: 2048, Generations: 64,
	Reap: 500 * time.Millisecond}

// control applies a configuration or a drop. Every shard applies it; shard 0 alone answers the client. A message
// of the stream of configurations that is neither only counts as applied.
//
// Documents that had expired by then still get their event from where they are reaped: the collection, or an old
// generation of it. So control does not wait for them, except at the Bounds: there it reaps due documents, a chunk at a
// time, and the message stays pending until they are reaped. The warnings that are due by then are published first.
func (p *Owner) control(ctx context.Context, m *fold.Message) error {
	began := time.Now()
	at := p.logTimeAt(m)
	to := fold.Position{Seq: m.Seq, Time: at, Stamp: m.Stamp}
	if p.progress.OutOfTurn(m) {
		p.reached(to)
		p.applied(1)
		return nil
	}
	to.Source = m.Source
	if m.Kind == fold.PauseAll {
		return p.pauseAll(ctx, m, to)
	}
	m.CheckReply(p.collections)
	p.endPause(m, at)
	current := p.collections.Config(m.Collection)
	due := p.collections.MayBeDue(m.Collection, at, &p.due)
	if (len(current.History) >= fold.MaxEpochs || len(current.Bodies) > 1 || len(current.Pauses) > 0) && !due {
		current = current.Settled()
	}
	next, rejected := fold.Configured(current, m, at, p.collections)
	applies := m.Kind != fold.Malformed && rejected == nil
	if applies && (p.mustWait(m, next, due) || p.collections.MayWarn(m.Collection, at)) {
		return p.drain(ctx, m)
	}
	w := &work{
		decision: fold.New(p.Limits, p.collections, at), messages: p.pending[:1],
		to: to, began: began, control: true, commits: true,
	}
	if p.Shard == 0 && (applies || rejected != nil) {
		w.decision.Answer(m, rejected)
		if m.Kind == fold.Drop && applies && current.Changes {
			w.decision.Dropped(m)
		}
	}
	if applies {
		// The collections change before the commit, which judges whether all outputs are
		// published: by the new configuration many more documents may be due.
		p.forget() // other documents may be due first
		if m.Kind == fold.Drop {
			w.configs, w.changes = p.collections.Drop(m.Collection, m.Seq, at, due)
		} else {
			w.changes = p.collections.Reindex(m.Collection, next)
			w.configs = p.collections.Reconfigure(m.Collection, next, at)
		}
		p.reaper.changed = at
	}
	_, err := p.finish(ctx, w)
	return err
}

// endPause ends the pause of a collection that a message drops: what has expired in it gets its events.
func (p *Owner) endPause(m *fold.Message, at int64) {
	if m.Kind != fold.Drop {
		return
	}
	if _, rejected := fold.Configured(p.collections.Config(m.Collection), m, at, p.collections); rejected == nil {
		p.collections.Resume(m.Collection, at, m.Seq)
	}
}

// pausedAtOnce is how many collections one commit pauses.
const pausedAtOnce = 1000

// pauseAll applies a message that pauses all collections, some in each step.
func (p *Owner) pauseAll(ctx context.Context, m *fold.Message, to fold.Position) error {
	if p.collections.FirstWarning() <= to.Time {
		return p.drain(ctx, m)
	}
	p.forget()
	w := &work{decision: fold.New(p.Limits, p.collections, to.Time), to: to, began: time.Now(), control: true,
		commits: true}
	w.configs = p.collections.ToPause(to.Time, m.Seq, pausedAtOnce)
	for _, c := range w.configs {
		p.collections.Reconfigure(c.Collection, *c.Config, to.Time)
	}
	if len(w.configs) == pausedAtOnce { // perhaps there are more
		w.to = fold.Position{Seq: m.Seq - 1, Time: to.Time}
	} else {
		w.messages = p.pending[:1]
	}
	_, err := p.finish(ctx, w)
	return err
}

// mustWait reports whether due documents have to be reaped before a message is applied.
func (p *Owner) mustWait(m *fold.Message, next store.Config, due bool) bool {
	if m.Kind == fold.Drop {
		return due && len(p.collections.Generations(m.Collection)) >= p.Bounds.Generations
	}
	return max(len(next.History), len(next.Bodies)) > p.Bounds.Epochs
}

// drain is what the owner does, again and again, before it applies a message that has to wait for due documents, or for
// warnings: it publishes a chunk of the warnings, or settles collections, or reaps a chunk of the due documents.
func (p *Owner) drain(ctx context.Context, m *fold.Message) error {
	// Log time has reached the message, although it is not applied yet.
	p.progress.Saw(m.Position)
	p.progress.Advance(fold.Position{Seq: m.Seq - 1, Time: p.logTimeAt(m)})
	if worked, err := p.warn(ctx); err != nil || worked {
		return err
	}
	if worked, err := p.settle(ctx); err != nil || worked {
		return err
	}
	if err := p.reapNow(ctx); err != nil {
		return err
	}
	return p.Hook.At(crash.AfterDrain)
}

const SettleAtOnce = 64 // collections considered in one step

// Tidy settles collections, once in a while. Where there is no traffic, keep settles at once.
func (p *Owner) Tidy(ctx context.Context, now time.Time) (worked bool, err error) {
	if now.Sub(p.duties.settled) < HeartbeatEvery {
		return false, nil
	}
	return p.settle(ctx)
}

// settle ends what had to wait until no document of a collection was due: an old generation is removed, and epochs that
// no longer matter are dropped. It considers some collections at a time, and reports whether there was anything to end.
func (p *Owner) settle(ctx context.Context) (worked bool, err error) {
	p.duties.settled = time.Now()
	found := p.collections.ToSettle(p.progress.Watermark, SettleAtOnce, &p.due)
	if len(found) == 0 {
		return false, nil
	}
	configs := make([]store.ConfigChange, len(found))
	var changes []store.CollectionChanges
	for i, c := range found {
		configs[i] = store.ConfigChange{Collection: c.Name, Config: c.Settled(&p.due)}
		if configs[i].Config == nil {
			changes = append(changes, store.CollectionChanges{Collection: c.Name, Drop: store.DropAll})
		}
	}
	ends := len(changes) > 0
	if ends {
		if err := p.Hook.At(crash.BeforeFinish); err != nil {
			return false, err
		}
	}
	if err := p.commit(ctx, p.progress.Here(), configs, changes); err != nil {
		return false, err
	}
	for i, c := range found {
		if configs[i].Config == nil {
			p.collections.Remove(c.Name)
			continue
		}
		p.collections.Configure(c, *configs[i].Config)
	}
	if ends {
		return true, p.Hook.At(crash.AfterFinish)
	}
	return true, nil
}
