package shard

import (
	"context"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// step applies messages up to the first that has to wait until its collection is settled (see
// [fold.Decision.Apply]), and reaps documents that are due by then, as one step: read,
// decide, publish, commit. to is how far the log was read; if these messages are all that
// came, the log is applied up to there. worked reports whether there was anything to do
// beside letting log time move on.
func (p *Owner) step(ctx context.Context, messages []*fold.Message, to fold.Position) (worked bool, err error) {
	began := time.Now()
	d := fold.New(p.Limits, p.collections, p.progress.Watermark())
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
	to = p.reach(messages, to)
	due, held, err := p.reap(ctx, d, messages, to)
	if err != nil {
		return false, err
	}
	worked, err = p.finish(ctx, &work{
		decision: d, messages: messages, due: due, to: to, began: began,
		changes: d.Changes(due), commits: held,
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
	if len(messages) < len(p.pending.Messages) || to.Seq <= here.Seq {
		return here
	}
	at := max(here.Time, to.Time)
	if to.Seq >= p.announcer.UpTo() {
		p.announcer.Pass(at)
	}
	return fold.Position{Seq: to.Seq, Time: at, Stamp: to.Stamp}
}

// logTimeAt is the log time at a message. It notes when that passes the point up to which outputs may
// have been published.
func (p *Owner) logTimeAt(m *fold.Message) int64 {
	at := max(p.progress.Watermark(), m.Time)
	if m.Seq > p.announcer.UpTo() {
		p.announcer.Pass(at)
	}
	return at
}

// read reads the documents that messages name into a decision. It returns fewer messages
// if more documents expire than one step takes, or if one of them has to wait. held
// reports that the first message has to wait until the log time at it is committed.
func (p *Owner) read(ctx context.Context, d *fold.Decision, messages []*fold.Message) (batch []*fold.Message, held bool, err error) {
	if len(messages) == 0 {
		return nil, false, nil
	}
	slots, whole := d.Name(messages)
	if len(slots) == 0 {
		return messages, false, nil
	}
	if err := p.readSlots(ctx, slots, whole); err != nil {
		return nil, false, err
	}
	if batch, held, err = p.notAhead(ctx, d, messages); held || err != nil {
		return batch, held, err
	}
	for {
		if batch, slots, whole = d.Lacking(batch); len(slots) == 0 {
			return batch, false, nil
		}
		if err := p.readSlots(ctx, slots, whole); err != nil {
			return nil, false, err
		}
	}
}

// notAhead returns the messages before the first that finds a document expired which
// readers may still return, as they are not known to have reached its deadline: its event
// has to wait until they have. held reports that this is the very first message.
func (p *Owner) notAhead(ctx context.Context, d *fold.Decision, messages []*fold.Message) (batch []*fold.Message, held bool, err error) {
	if p.progress.Rebuild() != 0 {
		return messages, false, nil // nobody reads
	}
	first := d.FirstAhead(messages, p.readersAt())
	if first < 0 {
		return messages, false, nil
	}
	if err := p.readClock(ctx); err != nil {
		return nil, false, err
	}
	switch first = d.FirstAhead(messages, p.readersAt()); {
	case first < 0:
		return messages, false, nil
	case first > 0:
		return messages[:first], false, nil
	}
	return messages, true, nil
}

// commitTime commits the log time at a message that is not applied yet, by which readers
// then go.
func (p *Owner) commitTime(ctx context.Context, m *fold.Message) error {
	p.progress.Saw(m.Position)
	return p.commit(ctx, fold.Position{Seq: m.Seq - 1, Time: p.logTimeAt(m)}, nil, nil)
}

// readersAt is an instant that the clock of readers has reached, at least.
func (p *Owner) readersAt() int64 {
	return max(p.progress.CommittedWatermark(), p.Store.Clock())
}

// readSlots reads documents, those in whole with their bodies: at least one of these, see [store.ReadBytes].
func (p *Owner) readSlots(ctx context.Context, slots []*fold.Slot, whole map[fold.Key]bool) error {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("waiting for Redis (read)")()
	wants, order := fold.Wants(slots, whole)
	began := time.Now()
	found, err := p.Store.Read(ctx, p.progress.Version(), wants)
	if err != nil {
		return err
	}
	p.tenure.verified = began
	var lacks *fold.Slot
	bodies := 0
	for i := range wants {
		for j, s := range order[i] {
			stored := found[i][j]
			switch {
			case stored == nil && s.Stored != nil:
				return fmt.Errorf("%w: %s/%s vanished", store.ErrDamaged, s.Key.Collection, s.Key.ID)
			case stored == nil:
			case stored.Body != "":
				s.Read(&stored.Header, []byte(stored.Body))
				bodies++
			default:
				s.Read(&stored.Header, nil)
				if whole[s.Key] {
					lacks = s
				}
			}
		}
	}
	if lacks != nil && bodies == 0 { // else the owner would read it for ever
		return fmt.Errorf("%w: %s/%s has no body", store.ErrDamaged, lacks.Key.Collection, lacks.Key.ID)
	}
	return nil
}
