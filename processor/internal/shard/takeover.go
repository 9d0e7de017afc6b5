package shard

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

const takeOverTimeout = 30 * time.Second

// takeOver makes partitions of a shard this process's, at the start and after every failure. The order
// matters:
//
//  1. examine: what is stored, and whether the log can continue it, or a snapshot, which is
//     then verified. Nothing is written, so a refusal changes nothing.
//  2. claim: a new version in Redis, by compare-and-set. A former owner's commits are
//     refused from then on.
//  3. claim: a fence in the stream of events, acknowledged. A former owner's publications
//     are refused from then on.
//  4. a tick, appended to the log. The causes of everything that a former owner has
//     published are at or before its sequence, which takeOver returns; 0 if no partition was claimed.
//  5. resume: examine the streams and the checkpoint again, as all may have changed before
//     the fences stood; remove what is damaged, or older than the log, if the log reaches
//     back to rebuild it, or to the snapshot; verify that the partition is still this
//     process's.
//
// Each step is done with all partitions before the next. A partition that fails is left out of the next
// steps, and its owner tries again. If it would be wrong to go on with one, takeOver goes on with none.
//
// If there is a snapshot to be loaded, the owner does that next (load in snapshot.go), beside
// the other partitions. stop ends an examination, and ctx all that follows.
func takeOver(stop, ctx context.Context, partitions []*Owner) (upTo uint64, errs []error) {
	all, errs := examineAll(stop, partitions)
	if fatal(partitions, errs) != nil {
		return 0, errs
	}
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if ask := partitions[0].MayLead; ask != nil {
		if err := ask(ctx); err != nil {
			each(partitions, errs, func(int, *Owner) error { return err })
			return 0, errs
		}
	}
	for i, p := range partitions {
		if errors.Is(errs[i], streams.ErrRefused) {
			errs[i] = p.refuse(ctx, all[i], errs[i])
		}
	}
	each(partitions, errs, func(i int, p *Owner) error { return p.claim(ctx, all[i]) })
	if fatal(partitions, errs) != nil || !slices.Contains(errs, nil) {
		return 0, errs
	}
	upTo, err := partitions[0].Ticker.Barrier(ctx)
	each(partitions, errs, func(i int, p *Owner) error {
		if err != nil {
			return err
		}
		return p.resume(ctx, all[i], upTo)
	})
	return upTo, errs
}

// examineAll examines partitions.
func examineAll(stop context.Context, partitions []*Owner) (all []*found, errs []error) {
	all, errs = make([]*found, len(partitions)), make([]error, len(partitions))
	each(partitions, errs, func(i int, p *Owner) (err error) { all[i], err = p.examine(stop); return err })
	return all, errs
}

// each does a step of a takeover with all partitions that have not failed, and notes which do.
func each(partitions []*Owner, errs []error, step func(i int, p *Owner) error) {
	var wg sync.WaitGroup
	for i, p := range partitions {
		if errs[i] == nil {
			wg.Go(func() {
				if err := step(i, p); err != nil {
					errs[i] = p.takeOverFailed(err)
				}
			})
		}
	}
	wg.Wait()
}

// fatal is the first of the errors of partitions with which it would be wrong to go on.
func fatal(partitions []*Owner, errs []error) error {
	for i, err := range errs {
		if err != nil && partitions[i].fatal(err) {
			return err
		}
	}
	return nil
}

// TakeOver takes over all partitions of a shard, and returns the last sequence of the log then, or the
// first reason why it would be wrong to go on with one. A partition that only cannot be taken over now
// tries again in Run.
func TakeOver(ctx context.Context, partitions []*Owner) (upTo uint64, err error) {
	upTo, errs := takeOver(ctx, ctx, partitions)
	if err := fatal(partitions, errs); err != nil {
		return 0, err
	}
	if upTo == 0 { // each of them has failed for now
		return partitions[0].Ticker.Barrier(ctx)
	}
	return upTo, nil
}

func (p *Owner) takeOverFailed(err error) error {
	if streams.MustStop(err) || errors.Is(err, store.ErrFenced) {
		return p.failed(err)
	}
	return p.failed(fmt.Errorf("take over: %w", err))
}

func (p *Owner) examiner() *examiner {
	return newExaminer(p.Shard, p.Store, p.Log, p.Events, p.Checkpoints, p.Desk.Store(), p.Ticker)
}

func (p *Owner) known() known {
	return known{EverTaken: p.tenure.everTaken, Committed: p.progress.CommittedOffset(), Damage: p.tenure.damage}
}

// examine finds out what is stored, and whether the log can continue it, or a snapshot.
func (p *Owner) examine(stop context.Context) (*found, error) {
	p.announcer.Hold()
	f, err := p.examiner().State(stop, p.known()) // which may scan all of Redis
	if err != nil {
		return f, err
	}
	if p.delivery.open && p.progress.Attempted(f.State.Version) {
		p.deliver() // the commit took effect, and only its reply was lost
	}
	p.delivery = delivery{}
	return f, p.examiner().Choose(stop, f, p.examiner().Streams(stop, f, 0)) // which may read a lot
}

// refuse marks a damaged partition that the log cannot rebuild: it is kept as it is, and
// readers get an error. The other partitions go on.
func (p *Owner) refuse(ctx context.Context, f *found, why error) error {
	if f.State.Version == "" || f.State.Refused || f.State.Rebuild == store.Clearing {
		return why
	}
	if err := p.Store.Refuse(ctx, f.State, rand.Text()+"-refused"); err != nil {
		return p.takeOverFailed(err)
	}
	return why
}

// claim fences off a former owner, in Redis and in the stream of events.
func (p *Owner) claim(ctx context.Context, f *found) error {
	version, lacks := p.progress.Claim(rand.Text()), f.Rebuild(p.known())
	if f.State.Version == "" || f.Damage != nil {
		lacks = store.Clearing // until resume knows how much
	}
	if f.State.Version == "" {
		f.State.Offset = f.Checkpoint.Origin
	}
	f.State.Log = p.Log.ID() // the one that it is of may have got another identity: see Log.Is
	p.tenure.verified = time.Now()
	if err := p.Store.Take(ctx, f.State, version, lacks); err != nil {
		return err
	}
	if err := p.Hook.At(crash.AfterTake); err != nil {
		return err
	}
	return p.announcer.Fence(ctx) // resume verifies that the partition is still this process's
}

// resume goes on from what was found, now that no former owner can commit or publish. upTo
// is the sequence of a tick that was appended after the claim.
func (p *Owner) resume(ctx context.Context, f *found, upTo uint64) error {
	lost, examined := f.Lost != nil, f.Checkpoint.Seq
	if err := p.examiner().Streams(ctx, f, p.announcer.FencePlace().Seq); errors.Is(err, streams.ErrLogTruncated) {
		return fmt.Errorf("truncated since the examination, which is made anew: %v", errors.Unwrap(err))
	} else if err != nil {
		return err
	} else if f.Lost != nil && (!lost || f.Checkpoint.Seq < examined) { // a checkpoint was stored meanwhile that is of no use
		return fmt.Errorf("lost since the examination, which is made anew: %w", f.Lost)
	}
	f.Last = upTo
	if p.Channel.Mirror != nil {
		upTo = math.MaxUint64
	}
	p.announcer.Begin(f.Published(), upTo, f.LastOutput())
	if f.Lost != nil {
		// Before anything is removed: the checkpoint names outputs that the stream does not have.
		if err := p.Checkpoints.Replace(ctx, f.Published()); err != nil {
			return err
		}
	}
	version, lacks := p.progress.Claimed(), f.Rebuild(p.known())
	next := store.State{Version: version, Log: p.Log.ID(), Offset: f.Checkpoint.Origin, Events: p.announcer.Last().String()}
	var err error
	switch {
	case f.Snapshot != nil:
		if f.State.Version != "" && f.State.Rebuild != store.Clearing {
			p.Logger.Error("the partition cannot go on from what is stored, and is loaded from a snapshot", slog.Any("error", cmp.Or(f.Damage, f.Old, f.Lost)))
			p.Metrics.Rebuilds.Inc()
		}
		f.State, err = p.clear(ctx, f)
		version, lacks = f.State.Version, f.Last // until all is loaded
	case f.Damage != nil:
		p.Logger.Error("the partition is damaged, and is rebuilt from the log", slog.Any("error", f.Damage))
		p.Metrics.Rebuilds.Inc()
		err = p.Store.Clear(ctx, p.progress.Version(), next, f.Last)
		f.State, lacks = next, f.Last
	default:
		err = p.Store.Take(ctx, store.State{Version: p.progress.Version()}, version, lacks)
	}
	if err != nil {
		return err
	}
	if f.Unfit != nil {
		p.Logger.Warn("snapshots cannot be used", slog.Any("error", f.Unfit))
	}
	p.tenure.damage, p.tenure.loads = nil, f.Snapshot
	p.goOn(f.State, version, lacks)
	return nil
}

// goOn goes on from a state. The messages that were read are kept if the state is not
// older than where the reading began; else the log is read again.
func (p *Owner) goOn(stored store.State, version string, rebuild uint64) {
	older := !p.tenure.everTaken || stored.Offset < p.pending.Base || p.Queue.Truncated() != nil
	p.progress.Resume(stored, version, rebuild)
	p.collections = fold.NewCollections(stored.Configs, stored.Collections)
	p.warnFrom()
	p.due.Set(nil)
	if older {
		p.pending = fold.Pending{Base: stored.Offset}
		p.Reader.Return(stored)
	} else {
		p.Queue.Skip(stored.Offset)
		p.pending.Skip(stored.Offset)
	}
	if rebuild != 0 && p.tenure.everTaken { // at the start it is no news
		p.Logger.Warn("the partition is being rebuilt from the log", slog.Uint64("from", stored.Offset), slog.Uint64("to", rebuild))
	}
	// It soon commits what it has read: else two owners that take the partition from each other, each
	// before the other's heartbeat, would never get on.
	p.tenure.taken, p.tenure.everTaken, p.duties.heartbeat = true, true, time.Time{}
	p.Status.Next.Store(math.MaxInt64) // until this owner has looked it up
	p.Status.Rebuild.Store(rebuild)
	p.Status.Applied.Store(stored.Offset)
	p.Status.Configured.Store(stored.Configured)
	p.Status.Owned.Store(true)
}
