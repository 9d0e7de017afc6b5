package shard

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// recordTimeout bounds what is recorded after the scan of Redis.
const recordTimeout = 30 * time.Second

// begunBy is between the nonce of a version and the token of the decision that has set it. While a
// partition has such a version, its refusals have that token: see begun.
const begunBy = "-anew-"

// begun is the token of the decision that has set a version; empty if it was none.
func begun(version string) (token string) {
	_, token, _ = strings.Cut(version, begunBy)
	token, _, _ = strings.Cut(token, "-")
	return token
}

// BeginAnew carries out a person's decision about the partitions of a shard, while no process owns them: it
// gives up what the refusal with the token says is missing, and so do the other refusals of its kind. It
// leaves the servers so that they fit together: the next takeover, which knows of no decision, goes on from
// there. It returns what it has done, and the refusals that are left.
//
// BeginAnew may be interrupted at any point, and be called again with the same token.
func BeginAnew(ctx context.Context, partitions []*Owner, token string) (done []string, refused []error, err error) {
	all, errs := examineAll(ctx, partitions)
	offer, covered := streams.Covered(token, errs)
	for i, err := range errs {
		switch {
		case err == nil || slices.Contains(covered, i):
		case streams.Decision(err) != "" || partitions[i].fatal(err):
			refused = append(refused, err)
		default:
			return nil, nil, err // nothing is known of this partition
		}
	}
	if offer == streams.GiveUpMessages {
		missing, err := partitions[0].Log.PassGaps(ctx, errs[covered[0]])
		if err != nil {
			return nil, nil, err
		}
		return []string{"the log goes on without messages: " + missing}, refused, nil
	}
	for _, i := range covered {
		p, text := partitions[i], ""
		if offer == streams.GiveUpEvents {
			text, err = p.giveUpEvents(ctx, all[i])
		} else {
			text, err = p.beginAnew(ctx, all[i], token)
		}
		if err != nil {
			return done, refused, p.failed(err)
		}
		done = append(done, fmt.Sprintf("partition %d %s", p.Shard, text))
	}
	return done, refused, nil
}

// giveUpEvents notes in the checkpoint that nobody is to look for the outputs any more that the stream of
// events has lost. It needs the fences, as a former owner could publish behind them.
func (p *Owner) giveUpEvents(ctx context.Context, f *found) (did string, err error) {
	f.GiveUp()
	if err := p.examiner().Choose(ctx, f, p.examiner().Streams(ctx, f, 0)); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if err := p.claim(ctx, f); err != nil {
		return "", err
	}
	upTo, err := p.Ticker.Barrier(ctx)
	if err != nil {
		return "", err
	}
	fence := p.announcer.FencePlace()
	if err := p.examiner().Streams(ctx, f, fence.Seq); err != nil {
		return "", err
	}
	if f.Lost != nil {
		return "", fmt.Errorf("lost since the examination: %w", f.Lost)
	}
	f.Checkpoint.Last, f.Checkpoint.GivenUp = fence, upTo
	return "goes on without the events that were lost", p.Checkpoints.Replace(ctx, f.Published())
}

// beginAnew begins a partition anew from the log. What is stored of it is set aside, and kept until an
// owner has rebuilt it.
//
// The process may die at any point, so the order matters:
//
//  1. takeAnew: a version that names the decision. What is whole is not marked as damaged, or the next
//     takeover would clear it. A fence in the stream of events keeps out what a former owner publishes.
//  2. The store sets aside. Until that has ended, the checkpoint still says that the log does not reach
//     back, so the partition is refused, with the same token.
//  3. The snapshots are forgotten and the checkpoint is moved to where the log begins, while the state says
//     that nothing is there. With the new checkpoint, the next takeover rebuilds the partition from the log.
//  4. The state says from where to where it is to be rebuilt. The owner that has done so removes what was
//     set aside.
func (p *Owner) beginAnew(ctx context.Context, f *found, token string) (did string, err error) {
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	version := p.progress.Claim(rand.Text() + begunBy + token)
	if err := p.takeAnew(ctx, f, version); err != nil {
		return "", err
	}
	if err := p.announcer.Fence(ctx); err != nil {
		return "", err
	}
	upTo, err := p.Ticker.Barrier(ctx)
	if err != nil {
		return "", err
	}
	info, err := p.Log.Info(ctx)
	if err != nil {
		return "", err
	}
	c := Checkpoint{Log: p.Log.ID(), Anew: p.announcer.FencePlace().Seq, Origin: max(info.State.FirstSeq, 1) - 1}
	next := store.State{Version: version, Log: c.Log, Offset: c.Origin}
	if err := p.Store.SetAside(ctx, version, next, store.Clearing); err != nil {
		return "", err
	}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), recordTimeout) // SetAside has scanned all of Redis
	defer cancel()
	if snapshots := p.Desk.Store(); snapshots != nil {
		if err := snapshots.Forget(ctx); err != nil {
			return "", err
		}
	}
	if err := p.Checkpoints.Replace(ctx, c); err != nil {
		return "", err
	}
	did = fmt.Sprintf("begins anew from message %d of the log; what Redis held is kept until that has succeeded", c.Origin+1)
	return did, p.Store.Take(ctx, store.State{Version: version}, p.progress.Claimed(), upTo)
}

// takeAnew stores the version of a decision to set aside a state. It marks a state that lacks no documents
// as refused, so that readers get an error while the keys are renamed.
func (p *Owner) takeAnew(ctx context.Context, f *found, version string) error {
	if f.rebuilds() {
		return p.Store.Take(ctx, f.State, version, store.Clearing)
	}
	// A copy of before, beside what is whole, is of a rebuild that has succeeded.
	if _, err := p.Store.RemoveAside(ctx); err != nil {
		return err
	}
	if f.State.Rebuild != 0 {
		return p.Store.Take(ctx, f.State, version, f.State.Rebuild)
	}
	return p.Store.Refuse(ctx, f.State, version)
}

// RemoveAside removes what was set aside, once the partition has been rebuilt.
func (p *Owner) RemoveAside(ctx context.Context) {
	removed, err := p.Store.RemoveAside(ctx)
	if err != nil {
		p.Logger.Warn("what was set aside could not be removed", slog.Any("error", err))
	} else if removed {
		p.Logger.Info("the partition was begun anew: what was kept of before is removed")
	}
}
