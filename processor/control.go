package processor

import (
	"context"
	"math"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// maxEpochs is how many epochs a collection may have before everything that is due
// is reaped, so that they can be dropped, before it gets another.
const maxEpochs = 64

// control applies a configuration or a drop. Every partition does; partition 0
// alone speaks about it. What had expired by then still gets its event: so where
// the index or the documents go, or the epochs become many, what is due is reaped
// first, a chunk at a time, and the message stays where it is until that is done.
func (p *partition) control(ctx context.Context, m *message) error {
	if m.seq > p.said.upTo {
		p.said.pass(m.at)
	}
	at := max(p.watermark, m.at)
	d := newDecision(p.limits, p.config, at)
	current := p.config(m.collection)
	next, rejected := current, m.rejected
	if rejected == nil && m.kind == configure {
		next, rejected = configured(current, m, at)
	}
	if rejected == nil && mustDrain(m, current, next) {
		// The time of the message has come, though it is not applied yet.
		p.offset, p.watermark = m.seq-1, at
		if drained, err := p.drain(ctx, m.collection); err != nil || !drained {
			return err
		}
		current = p.config(m.collection) // an index build may have ended
		if m.kind == configure {
			next, rejected = configured(current, m, at)
		}
	}
	p.speak(d, m, rejected)
	if len(d.outputs) > 0 {
		if err := p.verify(ctx, nil); err != nil { // see stepBy
			return err
		}
	}
	if err := p.publish(ctx, d.outputs); err != nil {
		return err
	}
	var configs []sink.ConfigChange
	var changes []sink.CollectionChanges
	if rejected == nil {
		configs, changes = controlChanges(m, current, next)
		p.forget() // other documents may fall due first
		// Before the commit, which judges whether all has been said: by the new
		// configuration much may be due that was not.
		p.reconfigure(m, current, next)
		p.turns.change()
	}
	if err := p.commit(ctx, mark{m.seq, at}, configs, changes); err != nil {
		return err
	}
	if err := p.at(afterControl); err != nil {
		return err
	}
	p.pending, p.base = p.pending[1:], m.seq
	p.outcomes.sendWhenAll(p.said.checkpoint, d.outcomes)
	if p.id == 0 {
		p.metrics.applied.Add(float64(1 - d.rejections))
		p.metrics.rejected.Add(float64(d.rejections))
	}
	return nil
}

// speak says what became of a configuration or a drop.
func (p *partition) speak(d *decision, m *message, rejected *refusal) {
	status := wire.StatusOK
	if m.kind == drop {
		status = wire.StatusNoContent
	}
	switch {
	case p.id != 0:
	case rejected != nil:
		d.reject(m, rejected)
	default:
		d.done(m, wire.Outcome{Status: status, Etag: wire.Etag(m.seq), Ts: wire.Time(d.watermark)})
	}
}

// mustDrain says whether what is due has to be reaped before a message is applied.
func mustDrain(m *message, current, next sink.Config) bool {
	return m.kind == drop || next.NoIndex && !current.NoIndex || len(next.History) > maxEpochs
}

// drain builds the rest of a collection's index and reaps what is due of it, a
// chunk at a time; it says whether nothing is left to do.
func (p *partition) drain(ctx context.Context, name string) (bool, error) {
	c, ok := p.configs[name]
	if !ok {
		return true, nil
	}
	if c.config.Building {
		return false, p.build(ctx, name, c)
	}
	if p.nextDueOf(name) > p.watermark {
		return true, nil
	}
	if err := p.hurry(ctx); err != nil {
		return false, err
	}
	return false, p.at(afterDrain)
}

// controlChanges are what a configuration or a drop changes in the store.
func controlChanges(m *message, current, next sink.Config) ([]sink.ConfigChange, []sink.CollectionChanges) {
	switch {
	case m.kind == drop:
		return []sink.ConfigChange{{Collection: m.collection}},
			[]sink.CollectionChanges{{Collection: m.collection, Drop: sink.DropAll}}
	case next.NoIndex && !current.NoIndex:
		next.History = next.History.Settled()
		return []sink.ConfigChange{{Collection: m.collection, Config: &next}},
			[]sink.CollectionChanges{{Collection: m.collection, Drop: sink.DropIndex}}
	}
	if len(next.History) > maxEpochs {
		next.History = next.History[len(next.History)-2:] // all that was due is reaped
	}
	return []sink.ConfigChange{{Collection: m.collection, Config: &next}}, nil
}

// reconfigure notes what becomes of a collection by a configuration or a drop.
func (p *partition) reconfigure(m *message, current, next sink.Config) {
	configs, _ := controlChanges(m, current, next)
	if m.kind == drop {
		delete(p.configs, m.collection)
		return
	}
	c := p.collection(m.collection)
	c.config = *configs[0].Config
	if next.NoIndex || current.NoIndex {
		c.nextInherit, c.nextOwn = math.MaxInt64, math.MaxInt64
	}
	c.building = building{}
}
