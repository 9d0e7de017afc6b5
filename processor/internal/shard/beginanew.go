package shard

import (
	"context"
	"fmt"
	"slices"

	"github.com/seed18712806/lapse/processor/internal/streams"
)

// Accepted is what a person gives up.
type Accepted struct {
	Losses       []streams.Loss
	RedisIsSaved bool // so documents may be removed from Redis
}

// BeginAnew gives up what a person accepts to lose, of what keeps the owner of the shard from going on, while no
// process owns it. It returns what it has done, and the refusal that is left; nil if none is. It writes nothing that is
// not accepted.
//
// Each decision is one write, to the checkpoint or to the log, and the next takeover goes on from there: it clears
// Redis, not BeginAnew. So BeginAnew may be interrupted at any point, and be called again.
func (p *Owner) BeginAnew(ctx context.Context, accepted Accepted) (done []string, left *streams.Refusal, err error) {
	given := map[streams.Loss]bool{}
	for { // one refusal may have hidden another one
		v, err := p.examine(ctx)
		if r := streams.AsRefusal(err); r != nil {
			return done, r, nil
		}
		if err != nil {
			return done, nil, p.failed(err)
		}
		r := v.Refusal
		if r == nil || given[r.Accept] || !slices.Contains(accepted.Losses, r.Accept) ||
			r.Removes && !accepted.RedisIsSaved {
			return done, r, nil
		}
		given[r.Accept] = true
		text, err := p.giveUp(ctx, &v)
		if r := streams.AsRefusal(err); r != nil { // it was hidden behind the one that is given up
			return done, r, nil
		}
		if err != nil {
			return done, nil, p.failed(err)
		}
		done = append(done, text)
	}
}

// giveUp carries out a decision about a refusal.
func (p *Owner) giveUp(ctx context.Context, v *verdict) (did string, err error) {
	switch v.Refusal.Accept {
	case streams.LostLogMessages:
		did, err = p.Log.PassGaps(ctx, v.Refusal)
		return "the log goes on without messages: " + did, err
	case streams.LostEvents:
		return "goes on without the events that were lost", p.giveUpEvents(ctx, v)
	}
	from, err := p.beginAnew(ctx)
	return fmt.Sprintf("begins anew from message %d of the log at the next start", from), err
}

// giveUpEvents notes in the checkpoint that nobody is to look for the outputs any more that the stream of
// events has lost. It needs the fences, as a former owner could publish behind them.
func (p *Owner) giveUpEvents(ctx context.Context, v *verdict) error {
	f := v.facts
	f.Given = v.Gone
	without, err := examiner{&p.Parts}.Examine(ctx, f)
	if err != nil {
		return err
	}
	if without.Refusal != nil {
		return without.Refusal
	}
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if err := p.claim(ctx, &without); err != nil {
		return err
	}
	upTo, err := p.Ticker.Barrier(ctx)
	if err != nil {
		return err
	}
	fence := p.announcer.FencePlace()
	again, err := examiner{&p.Parts}.Again(ctx, without, fence.Seq)
	if err == nil {
		err = again.changed(&without)
	}
	if err != nil {
		return err
	}
	c := again.Published()
	c.Last, c.GivenUp = fence, upTo
	return p.Checkpoints.Replace(ctx, c)
}

// beginAnew notes in the checkpoint that the shard begins with what the log has now. What is stored of it in
// Redis and in snapshots does not count from then on, nor does what the stream of events has before the fence:
// all that may follow from messages that the log has lost. The fence also keeps out what a former owner publishes.
func (p *Owner) beginAnew(ctx context.Context) (from uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if err := p.announcer.Fence(ctx); err != nil {
		return 0, err
	}
	info, err := p.Log.Info(ctx)
	if err != nil {
		return 0, err
	}
	from = max(info.State.FirstSeq, 1)
	fence := p.announcer.FencePlace()
	c := Checkpoint{Log: p.Log.ID(), Last: fence, Anew: fence.Seq, Origin: from - 1}
	return from, p.Checkpoints.Replace(ctx, c)
}
