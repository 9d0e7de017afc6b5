package partition

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

const takeOverTimeout = 30 * time.Second

// takeOver makes the partition this process's, at the start and after every failure. The
// order matters:
//
//  1. examine: what is stored, and whether the log can continue it, or a snapshot, which is
//     then verified. Nothing is written, so a refusal changes nothing.
//  2. claim: a new version in Redis, by compare-and-set. A former owner's commits are
//     refused from then on.
//  3. claim: a fence in the stream of events, acknowledged. A former owner's publications
//     are refused from then on.
//  4. a tick, appended to the log. The causes of everything that a former owner has
//     published are at or before its sequence.
//  5. resume: examine the streams and the checkpoint again, as all may have changed before
//     the fences stood; remove what is damaged, or older than the log, if the log reaches
//     back to rebuild it, or to the snapshot; verify that the partition is still this
//     process's.
//
// If there is a snapshot to be loaded, the owner does that next (load in snapshot.go), beside
// the other partitions.
func (p *Partition) takeOver(stop context.Context) error {
	f, err := p.examine(stop)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), takeOverTimeout)
	defer cancel()
	if errors.Is(err, streams.ErrRefused) {
		err = p.refuse(ctx, f, err)
	}
	if err != nil {
		return p.takeOverFailed(err)
	}
	if err := p.claim(ctx, f); err != nil {
		return err
	}
	upTo, err := p.shared.Ticker.Barrier(ctx)
	if err != nil {
		return p.takeOverFailed(err)
	}
	return p.resume(ctx, f, upTo)
}

// TakeOver takes over all partitions of a shard, and returns the last sequence of the log then.
// Before it changes anything it examines all of them, and returns the first reason why it
// would be wrong to go on with one. A partition that only cannot be taken over now tries
// again in Run.
func TakeOver(ctx context.Context, partitions []*Partition) (upTo uint64, err error) {
	ticker, consent := partitions[0].shared.Ticker, partitions[0].shared.Consent
	all := make([]*found, len(partitions))
	errs := make([]error, len(partitions))
	each := func(do func(i int, p *Partition) error) error {
		var wg sync.WaitGroup
		for i, p := range partitions {
			if errs[i] == nil {
				wg.Go(func() { errs[i] = do(i, p) })
			}
		}
		wg.Wait()
		for i, err := range errs {
			if err != nil && partitions[i].fatal(err) {
				return partitions[i].failed(err)
			}
		}
		return nil
	}
	examineOne := func(i int, p *Partition) (err error) {
		all[i], err = p.examine(ctx)
		return err
	}
	err = each(examineOne)
	if consent != nil {
		gap := consent.Cover(errs)
		if err := partitions[0].shared.Log.PassGaps(ctx, gap); err != nil {
			return 0, err
		}
		for i, err := range errs {
			if consent.Allows(i, err) || gap != nil && errors.Is(err, streams.ErrLogGap) {
				errs[i] = nil
			}
		}
		err = each(examineOne)
	}
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if err := each(func(i int, p *Partition) error { return p.claim(ctx, all[i]) }); err != nil {
		return 0, err
	}
	if upTo, err = ticker.Barrier(ctx); err != nil {
		return 0, err
	}
	return upTo, each(func(i int, p *Partition) error { return p.resume(ctx, all[i], upTo) })
}

func (p *Partition) takeOverFailed(err error) error {
	if streams.MustStop(err) || errors.Is(err, store.ErrFenced) {
		return p.failed(err)
	}
	return p.failed(fmt.Errorf("take over: %w", err))
}

func (p *Partition) examiner() *examiner {
	return newExaminer(p.number(), p.store, p.shared.Log, p.shared.Events, p.shared.Checkpoints, p.shared.Desk.Store(), p.shared.Ticker)
}

func (p *Partition) known() known {
	return known{EverTaken: p.tenure.everTaken, Committed: p.progress.CommittedOffset(), Damage: p.tenure.damage}
}

// examine finds out what is stored, and whether the log can continue it, or a snapshot.
func (p *Partition) examine(stop context.Context) (*found, error) {
	p.announcer.Hold()
	f, err := p.examiner().State(stop, p.known()) // which may scan all of Redis
	if err != nil {
		return f, err
	}
	if p.delivery.open && p.progress.Attempted(f.State.Version) {
		p.deliver() // the commit took effect, and only its reply was lost
	}
	p.delivery = delivery{}
	err = p.examiner().Streams(stop, f, 0) // which may read a lot
	if p.shared.Consent.Allows(p.id, err) {
		f.Anew = true
		return f, p.examiner().Cover(stop, 0)
	}
	err = p.examiner().Choose(stop, f, err) // likewise
	if p.shared.Consent.Allows(p.id, err) {
		f.GiveUp()
		err = p.examiner().Choose(stop, f, p.examiner().Streams(stop, f, 0))
	}
	return f, err
}

// refuse marks a damaged partition that the log cannot rebuild: it is kept as it is, and
// readers get an error. The other partitions go on.
func (p *Partition) refuse(ctx context.Context, f *found, why error) error {
	if f.State.Version == "" || f.State.Refused || f.State.Rebuild == store.Clearing {
		return why
	}
	if err := p.store.Refuse(ctx, f.State, rand.Text()+"-refused"); err != nil {
		return err
	}
	return why
}

// claim fences off a former owner, in Redis and in the stream of events.
func (p *Partition) claim(ctx context.Context, f *found) error {
	version, lacks := p.progress.Claim(rand.Text()), f.Lacks(p.known())
	if f.State.Version == "" || f.Damage != nil {
		lacks = store.Clearing // until resume knows how much
	}
	if f.State.Version == "" {
		f.State.Offset = f.Checkpoint.Origin
	}
	p.tenure.verified = time.Now()
	var err error
	if f.Anew && lacks != store.Clearing {
		err = takeAnew(ctx, p.store, f.State, version)
	} else {
		err = p.store.Take(ctx, f.State, version, lacks)
	}
	if err != nil {
		return err
	}
	if f.State.Before {
		p.shared.upgraded.Do(func() {
			p.logger.Info("partitions are in the format of an earlier lapse, which can no longer read them; documents that never expire are added to the indexes in the background")
		})
	}
	if err := p.shared.Hook.At(crash.AfterTake); err != nil {
		return err
	}
	return p.announcer.Fence(ctx) // resume verifies that the partition is still this process's
}

// resume goes on from what was found, now that no former owner can commit or publish. upTo
// is the sequence of a tick that was appended after the claim.
func (p *Partition) resume(ctx context.Context, f *found, upTo uint64) error {
	if lost, examined := f.Lost != nil, f.Checkpoint.Seq; f.Anew {
		if err := p.examiner().Cover(ctx, p.announcer.FencePlace().Seq); err != nil {
			return p.takeOverFailed(err)
		}
	} else {
		if err := p.examiner().Streams(ctx, f, p.announcer.FencePlace().Seq); errors.Is(err, streams.ErrLogTruncated) {
			return p.failed(fmt.Errorf("truncated since the examination, which is made anew: %v", errors.Unwrap(err)))
		} else if err != nil {
			return p.takeOverFailed(err)
		} else if f.Lost != nil && (!lost || f.Checkpoint.Seq < examined) { // a checkpoint was stored meanwhile that is of no use
			return p.failed(fmt.Errorf("lost since the examination, which is made anew: %w", f.Lost))
		}
	}
	f.Last = upTo
	if f.GivesUp() {
		p.logger.Warn("goes on without the events that were lost, as a person has decided", slog.Uint64("from", f.Checkpoint.Seq))
		f.Checkpoint.Last, f.Checkpoint.GivenUp = p.announcer.FencePlace(), upTo
	}
	p.announcer.Begin(f.Published(), f.Last, f.LastOutput())
	if f.Lost != nil || f.GivesUp() {
		// Before anything is removed: the checkpoint names outputs that the stream does not have.
		if err := p.shared.Checkpoints.Replace(ctx, p.number(), f.Published()); err != nil {
			return p.takeOverFailed(err)
		}
	}
	version, lacks := p.progress.Claimed(), f.Lacks(p.known())
	next := store.State{Version: version, Log: p.shared.Log.ID(), Offset: f.Checkpoint.Origin, Events: p.announcer.Last().String()}
	var err error
	switch {
	case f.Anew:
		next, err = p.beginAnew(ctx, next)
		f.State, lacks = next, f.Last
	case f.Snapshot != nil:
		if f.State.Version != "" && f.State.Rebuild != store.Clearing {
			p.logger.Error("the partition cannot go on from what is stored, and is loaded from a snapshot", slog.Any("error", cmp.Or(f.Damage, f.Old, f.Lost)))
			p.shared.Metrics.Rebuilds.Inc()
		}
		f.State, err = p.clear(ctx, f)
		version, lacks = f.State.Version, f.Last // until all is loaded
	case f.Damage != nil:
		p.logger.Error("the partition is damaged, and is rebuilt from the log", slog.Any("error", f.Damage))
		p.shared.Metrics.Rebuilds.Inc()
		err = p.store.Clear(ctx, p.progress.Version(), next, f.Last)
		f.State, lacks = next, f.Last
	default:
		err = p.store.Take(ctx, store.State{Version: p.progress.Version()}, version, lacks)
	}
	if err != nil {
		return p.takeOverFailed(err)
	}
	if f.Unfit != nil {
		p.logger.Warn("snapshots cannot be used", slog.Any("error", f.Unfit))
	}
	p.tenure.damage, p.tenure.loads = nil, f.Snapshot
	p.goOn(f.State, version, lacks)
	return nil
}

// beginAnew sets aside what is stored of the partition, which then begins at the beginning of the
// log. See type beginning.
func (p *Partition) beginAnew(ctx context.Context, next store.State) (store.State, error) {
	b := beginning{
		Partition: p.number(), Store: p.store, Log: p.shared.Log, Checkpoints: p.shared.Checkpoints, Snapshots: p.shared.Desk.Store(),
		Fence: p.announcer.FencePlace().Seq,
	}
	c, err := b.SetAside(ctx, p.progress.Version())
	if err != nil {
		return next, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeOverTimeout) // it may have taken long
	defer cancel()
	next.Offset = c.Origin
	p.logger.Warn("the partition begins anew from the log; what Redis held is kept until that has succeeded", slog.Uint64("from", next.Offset))
	upTo := p.announcer.UpTo()
	p.announcer.Begin(c, upTo, p.announcer.Last())
	return next, p.store.Take(ctx, store.State{Version: p.progress.Version()}, next.Version, upTo)
}

// RemoveAside removes what was set aside, once the partition has been rebuilt.
func (p *Partition) RemoveAside(ctx context.Context) {
	removed, err := p.store.RemoveAside(ctx)
	if err != nil {
		p.logger.Warn("what was set aside could not be removed", slog.Any("error", err))
	} else if removed {
		p.logger.Info("the partition was begun anew: what was kept of before is removed")
	}
}

// goOn goes on from a state. The messages that were read are kept if the state is not
// older than where the reading began; else the log is read again.
func (p *Partition) goOn(stored store.State, version string, rebuild uint64) {
	older := !p.tenure.everTaken || stored.Offset < p.pending.Base || p.inbox.Lacks() != nil
	p.progress.Resume(stored, version, rebuild)
	p.collections = fold.NewCollections(stored.Configs, stored.Collections)
	p.collections.Index(stored.Unindexed)
	p.queue.Set(nil)
	if older {
		p.pending = fold.Pending{Base: stored.Offset}
		p.shared.Reader.Return(p.id, stored)
	} else {
		p.inbox.Skip(stored.Offset)
		p.pending.Skip(stored.Offset)
	}
	if rebuild != 0 && p.tenure.everTaken { // at the start it is no news
		p.logger.Warn("the partition is being rebuilt from the log", slog.Uint64("from", stored.Offset), slog.Uint64("to", rebuild))
	}
	// It soon commits what it has read: else two owners that take the partition from each other, each
	// before the other's heartbeat, would never get on.
	p.tenure.taken, p.tenure.everTaken, p.duties.heartbeat = true, true, time.Time{}
	p.status.Next.Store(math.MaxInt64) // until this owner has looked it up
	p.status.Lacking.Store(rebuild)
	p.status.Applied.Store(stored.Offset)
	p.status.Configured.Store(stored.Configured)
	p.status.Owned.Store(true)
	p.shared.Outcomes.Poke()
}
