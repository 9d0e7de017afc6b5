package processor

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink"
)

// applyNext applies what comes next of the pending messages: a configuration or a
// drop by itself, others in a batch.
func (p *partition) applyNext(ctx context.Context) error {
	switch p.pending[0].kind {
	case configure, drop:
		return p.control(ctx, p.pending[0])
	}
	return p.applyBatch(ctx, p.nextBatch())
}

// nextBatch is the longest run of pending messages that is applied in one step.
func (p *partition) nextBatch() []*message {
	n, bytes, whole := 0, 0, 0
	for n < len(p.pending) && n < batchMessages && bytes < batchBytes && whole < batchWhole {
		m := p.pending[n]
		if m.kind == configure || m.kind == drop {
			break
		}
		if needsWhole(m) {
			whole++
		}
		bytes += len(m.body)
		n++
	}
	return p.pending[:n]
}

// needsWhole says whether the stored body may be needed to apply a message, beside
// the header.
func needsWhole(m *message) bool { return m.kind == write && (m.op == "patch" || m.op == "touch") }

// applyBatch applies messages as one step: read, decide, publish, commit.
func (p *partition) applyBatch(ctx context.Context, messages []*message) error {
	p.pass(messages)
	d := newDecision(p.limits, p.config, p.watermark)
	readAt := time.Now()
	messages, err := p.read(ctx, d, messages)
	if err != nil {
		return err
	}
	if len(d.order) == 0 {
		readAt = time.Time{}
	}
	if err := p.at(afterRead); err != nil {
		return err
	}
	for _, m := range messages {
		d.apply(m)
	}
	if err := p.publish(ctx, d.outputs, readAt); err != nil {
		return err
	}
	p.offset, p.watermark = messages[len(messages)-1].seq, d.watermark
	changes := d.changes()
	if len(changes)+len(d.outputs)+len(d.outcomes) > 0 {
		for _, c := range changes {
			p.noteChanges(c)
		}
		if err := p.commit(ctx, nil, changes); err != nil {
			return err
		}
	} else {
		p.reached(p.offset) // only time has passed: that is committed with what comes next
	}
	p.after(messages, d)
	return nil
}

// pass notes the log time at the end of what may have been said, when the messages
// go beyond it.
func (p *partition) pass(messages []*message) {
	watermark := p.watermark
	for _, m := range messages {
		if m.seq > p.said.upTo {
			p.said.pass(watermark)
			return
		}
		watermark = max(watermark, m.at)
	}
}

// noteChanges keeps the lowest scores of a collection true.
func (p *partition) noteChanges(c sink.CollectionChanges) {
	place := p.collection(c.Collection)
	for _, change := range c.Changes {
		if change.New != nil {
			place.note(change.New)
		}
	}
	for _, change := range c.Index {
		place.note(change.Old)
	}
}

// after is what a committed step leaves to do: forget its messages, tell who asked,
// and count.
func (p *partition) after(messages []*message, d *decision) {
	p.pending, p.base = p.pending[len(messages):], p.offset
	if len(p.pending) == 0 {
		p.pending = nil // let go of what they held
	}
	p.outcomes.send(p.said.checkpoint, d.outcomes)
	p.metrics.applied.Add(float64(len(messages) - d.rejections))
	p.metrics.rejected.Add(float64(d.rejections))
	p.metrics.expired.Add(float64(d.expired))
}

// read reads what the messages touch into the decision. If more of it is expired
// than is taken in one step, it returns fewer messages.
func (p *partition) read(ctx context.Context, d *decision, messages []*message) ([]*message, error) {
	first, last := messages[0].at, p.watermark
	for _, m := range messages {
		last = max(last, m.at)
	}
	whole := make(map[docKey]bool)
	for _, m := range messages {
		if m.kind != write {
			continue
		}
		key := docKey{m.collection, m.id}
		d.slot(key)
		// A document that is touched, and expires before the batch ends, is needed
		// whole; that takes a second at least.
		if m.op == "patch" || m.op == "touch" && last-first >= 1000 {
			whole[key] = true
		}
	}
	if len(d.order) == 0 {
		return messages, nil
	}
	if err := p.readSlots(ctx, d.order, whole); err != nil {
		return nil, err
	}
	// What is expired by the end of the batch is needed whole, for its event.
	expired := make(map[docKey]bool)
	for i, m := range messages {
		key := docKey{m.collection, m.id}
		s := d.docs[key]
		if m.kind != write || s.stored == nil || s.now.body != nil || expired[key] {
			continue
		}
		if !p.config(key.collection).History.Expired(s.stored.Ts, s.stored.TTL, last) {
			continue
		}
		if len(expired) == batchWhole {
			messages = messages[:i]
			break
		}
		expired[key] = true
	}
	if len(expired) == 0 {
		return messages, nil
	}
	var again []*slot
	for _, s := range d.order {
		if expired[s.key] {
			again = append(again, s)
		}
	}
	return messages, p.readSlots(ctx, again, expired)
}

// readSlots reads documents, whole where that is asked for.
func (p *partition) readSlots(ctx context.Context, slots []*slot, whole map[docKey]bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var wants []sink.Want
	var heads, wholes [][]*slot
	at := make(map[string]int)
	for _, s := range slots {
		i, ok := at[s.key.collection]
		if !ok {
			i = len(wants)
			at[s.key.collection] = i
			wants = append(wants, sink.Want{Collection: s.key.collection})
			heads, wholes = append(heads, nil), append(wholes, nil)
		}
		if whole[s.key] {
			wants[i].Whole = append(wants[i].Whole, s.key.id)
			wholes[i] = append(wholes[i], s)
		} else {
			wants[i].Headers = append(wants[i].Headers, s.key.id)
			heads[i] = append(heads[i], s)
		}
	}
	found, err := p.store.Read(ctx, p.version, wants)
	if err != nil {
		return err
	}
	for i := range wants {
		for j, s := range append(heads[i], wholes[i]...) {
			stored := found[i][j]
			if stored == nil {
				if s.stored != nil {
					return fmt.Errorf("%w: %s/%s vanished", sink.ErrDamaged, s.key.collection, s.key.id)
				}
				continue
			}
			s.stored = &stored.Header
			s.now = &version{header: stored.Header}
			if whole[s.key] {
				s.now.body = []byte(stored.Body)
			}
		}
	}
	return nil
}
