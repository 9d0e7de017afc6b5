package processor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/seed18712806/lapse/sink"
)

// reap reaps one chunk of what is due in the partition, and says whether there was
// anything. What is due is in the index until its events are stored: so the index
// is the queue of the events to be sent.
func (p *partition) reap(ctx context.Context) (bool, error) {
	type dueAt struct {
		name string
		at   int64
	}
	var due []dueAt
	for name, c := range p.configs {
		if at := c.nextDue(); at <= p.watermark {
			due = append(due, dueAt{name, at})
		}
	}
	if len(due) == 0 {
		return false, nil
	}
	slices.SortFunc(due, func(a, b dueAt) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.name, b.name)) })
	due = due[:min(len(due), reapCollections)]
	names := make([]string, len(due))
	for i, d := range due {
		names[i] = d.name
	}
	_, err := p.reapOf(ctx, names)
	return true, err
}

// reapOf reaps one chunk of what is due in some collections, and returns how many
// documents that were: find them, publish their events, commit.
func (p *partition) reapOf(ctx context.Context, names []string) (int, error) {
	readAt := time.Now()
	whole := !p.said.all(p.offset, p.watermark)
	found, err := p.findDue(ctx, names, whole)
	if err != nil {
		return 0, err
	}
	if err := p.at(afterFind); err != nil {
		return 0, err
	}
	d := newDecision(p.limits, p.config, p.watermark)
	var changes []sink.CollectionChanges
	n := 0
	for i, f := range found {
		c := p.collection(names[i])
		if len(f.IDs) > 0 {
			gone := make([]sink.Change, len(f.IDs))
			for j, id := range f.IDs {
				doc := &f.Documents[j]
				x, ok := c.config.History.ExpiredAt(doc.Header.Ts, doc.Header.TTL)
				if !ok || x.At > p.watermark {
					return 0, fmt.Errorf("%w: the index has %s/%s as expired, which it is not", sink.ErrDamaged, names[i], id)
				}
				gone[j] = sink.Change{ID: id, Old: &doc.Header}
				if whole {
					d.expire(docKey{names[i], id}, version{header: doc.Header, body: []byte(doc.Body)}, x)
				}
			}
			changes = append(changes, sink.CollectionChanges{Collection: names[i], Changes: gone})
			n += len(gone)
		}
		c.nextInherit, c.nextOwn = f.NextInherit, f.NextOwn
	}
	if n == 0 {
		p.judge()
		return 0, nil
	}
	if err := p.publish(ctx, d.outputs, readAt); err != nil {
		return 0, err
	}
	published := time.Now()
	if err := p.commit(ctx, nil, changes); err != nil {
		return 0, err
	}
	p.metrics.expired.Add(float64(n))
	for _, o := range d.outputs {
		if p.said.of(o) == isNew {
			p.metrics.lateness.Observe(published.Sub(time.UnixMilli(o.at)).Seconds())
		}
	}
	return n, nil
}

// findDue finds a chunk of what is due at the log time. How far the log was applied
// is committed with it, if it is not yet, so that readers are not behind the events.
func (p *partition) findDue(ctx context.Context, names []string, whole bool) ([]sink.Due, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cuts := make([]sink.Cut, len(names))
	for i, name := range names {
		cuts[i] = sink.Cut{Collection: name, Cuts: p.configs[name].config.History.Cuts(p.watermark)}
	}
	pr := sink.Progress{Version: p.version}
	if p.offset != p.committed || p.watermark != p.stamped {
		pr = p.progress()
	}
	found, err := p.store.Due(ctx, pr, cuts, reapChunk, reapBytes, whole)
	if err == nil && pr.Next != "" {
		p.committedAt(pr)
	}
	return found, err
}
