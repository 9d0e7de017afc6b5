package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// nextBatch is the longest run of pending messages that is applied in one step.
func (p *partition) nextBatch() []*message {
	n, bytes, whole := 0, 0, 0
	for n < len(p.pending) && n < batchMessages && bytes < batchBytes && whole < batchWhole {
		m := p.pending[n]
		if m.administers() {
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

// errGuess: a batch was decided by a guess that cannot hold.
var errGuess = errors.New("a batch is not as it was guessed")

// step applies messages, and says of what is due by then that it is expired, as one
// step: read, decide, publish, commit. to is how far the log was read; if these
// messages are all that came, that is how far it is applied. It says whether there was
// anything to do but to let time go on.
func (p *partition) step(ctx context.Context, messages []*message, to mark) (worked bool, err error) {
	guess := p.guesses(messages)
	if guess {
		if worked, err = p.stepBy(ctx, messages, to, true); !errors.Is(err, errGuess) && !errors.Is(err, sink.ErrExists) {
			return worked, err
		}
		p.fresh = 0
	}
	return p.stepBy(ctx, messages, to, false)
}

// stepBy is a step that reads what the messages touch, or guesses that nothing of it is
// there: if it is, nothing is committed.
func (p *partition) stepBy(ctx context.Context, messages []*message, to mark, guess bool) (worked bool, err error) {
	began := time.Now()
	d := newDecision(p.limits, p.config, p.watermark)
	if !guess {
		if messages, err = p.read(ctx, d, messages); err != nil {
			return false, err
		}
		if err := p.at(afterRead); err != nil {
			return false, err
		}
	}
	for _, m := range messages {
		d.apply(m)
	}
	if guess && len(d.outputs) > 0 {
		return false, errGuess
	}
	to = p.reach(messages, to)
	due, held, err := p.reap(ctx, d, to)
	if err != nil {
		return false, err
	}
	defer p.endTurn()
	n := len(d.outputs)
	if n > 0 && p.looked.Before(began) {
		// They follow from the messages alone: nothing has shown that this process is
		// still the owner.
		if err := p.verify(ctx, nil); err != nil {
			return false, err
		}
	}
	for _, doc := range due {
		doc.expire(d)
	}
	if err := p.publish(ctx, d.outputs); err != nil {
		return false, err
	}
	published := time.Now()
	for _, doc := range due {
		doc.said = true
	}
	changes := withDue(d.changes(guess), due)
	if len(changes)+len(d.outputs)+len(d.outcomes) == 0 && !held {
		p.reached(to) // only time has passed: that is committed with what comes next
	} else {
		if err := p.commit(ctx, to, nil, changes); err != nil {
			return false, err
		}
		worked = true
	}
	p.after(messages, d)
	p.late(d.outputs[n:], published)
	return worked || len(messages) > 0, nil
}

// guesses says whether it may be guessed of messages that the documents that they
// touch are not there: what was touched of late was not.
func (p *partition) guesses(messages []*message) bool {
	if p.fresh < guessAfter || len(messages) == 0 {
		return false
	}
	for _, m := range messages {
		if m.kind == write && (m.op != wire.Upsert && m.op != wire.Create || m.ifMatch.set || p.soon.has(docKey{m.collection, m.id})) {
			return false
		}
	}
	return true
}

// reach is where the log stands after a step: behind its messages, or, if they are all
// that came, where it was read to. Time that came after what may have been said is
// noted.
func (p *partition) reach(messages []*message, to mark) mark {
	upTo := p.said.upTo
	for _, m := range messages {
		if m.seq > upTo {
			p.said.pass(m.at)
			break
		}
	}
	here := p.here()
	if n := len(messages); n > 0 {
		here = mark{messages[n-1].seq, max(here.time, messages[n-1].at)}
	}
	if len(messages) < len(p.pending) || to.seq <= here.seq {
		return here
	}
	if to.seq > upTo {
		p.said.pass(to.time)
	}
	return mark{to.seq, max(here.time, to.time)}
}

// noteChanges keeps true what is known of the documents of a collection that fall due.
func (p *partition) noteChanges(c sink.CollectionChanges) {
	if len(c.Changes)+len(c.Index) == 0 {
		return // a drop
	}
	place := p.collection(c.Collection)
	for _, change := range c.Changes {
		p.soon.remove(docKey{c.Collection, change.ID})
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
	if n := len(messages); n > 0 {
		p.pending, p.base = p.pending[n:], messages[n-1].seq
	}
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
	if len(messages) == 0 {
		return nil, nil
	}
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
	p.fresh++
	for _, s := range d.order {
		if s.stored != nil {
			p.fresh = 0
			break
		}
	}
	messages, err := p.notAhead(ctx, d, messages)
	if err != nil {
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

// notAhead returns the messages up to the first that meets an expired document which
// readers may still take for live, as their clock is not known to have come to its
// deadline: its event waits until they go by the log time. If that is the first message,
// its time is committed, and all are returned.
func (p *partition) notAhead(ctx context.Context, d *decision, messages []*message) ([]*message, error) {
	if p.rebuild != 0 {
		return messages, nil // nobody reads
	}
	shown, asked := p.shown(), false
	for i, m := range messages {
		s := d.docs[docKey{m.collection, m.id}]
		if m.kind != write || s.stored == nil {
			continue
		}
		at := max(p.watermark, m.at)
		x, ok := p.config(m.collection).History.ExpiredAt(s.stored.Ts, s.stored.TTL)
		if !ok || x.At > at || x.At <= shown {
			continue
		}
		if !asked {
			asked = true
			if _, err := p.find(ctx, nil, false); err != nil { // which tells the clock
				return nil, err
			}
			if shown = p.shown(); x.At <= shown {
				continue
			}
		}
		if i > 0 {
			return messages[:i], nil
		}
		if m.seq > p.said.upTo {
			p.said.pass(m.at)
		}
		if err := p.commit(ctx, mark{m.seq - 1, at}, nil, nil); err != nil {
			return nil, err
		}
		shown = p.shown()
	}
	return messages, nil
}

// shown is an instant to which the clock by which readers go has come, at least.
func (p *partition) shown() int64 { return max(p.stamped, p.store.Clock()) }

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
	began := time.Now()
	found, err := p.store.Read(ctx, p.version, wants)
	if err != nil {
		return err
	}
	p.looked = began
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
