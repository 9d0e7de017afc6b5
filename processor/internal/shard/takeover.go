package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

const takeOverTimeout = 30 * time.Second

// takeOver makes the shard this process's, at the start and after every failure. The order matters:
//
//  1. examine: what is stored, and whether the log can continue it, or a snapshot, which is
//     then verified. Nothing is written, so a refusal changes nothing.
//  2. claim: a new version in Redis, by compare-and-set. A former owner's commits are refused from then on.
//  3. claim: a fence in the stream of events, acknowledged. A former owner's publications are refused from then on.
//  4. a tick, appended to the log. The causes of everything that a former owner has
//     published are at or before its sequence, which takeOver returns.
//  5. resume: examine the streams and the checkpoint again, as all may have changed before the fences stood; remove
//     what is damaged, or older than the log, if the log reaches back to rebuild it, or to the snapshot; verify that
//     the shard is still this process's.
//
// If there is a snapshot to be loaded, the owner does that next (load in snapshot.go). stop ends an examination, and
// ctx all that follows. The error is a [streams.Refusal] if the verdict is to refuse.
func (p *Owner) takeOver(stop, ctx context.Context) (upTo uint64, err error) {
	upTo, err = p.tryTakeOver(stop, ctx)
	switch {
	case err == nil:
		return upTo, nil
	case streams.AsRefusal(err) != nil || errors.Is(err, store.ErrFenced):
		return 0, p.failed(err)
	}
	return 0, p.failed(fmt.Errorf("take over: %w", err))
}

func (p *Owner) tryTakeOver(stop, ctx context.Context) (upTo uint64, err error) {
	v, err := p.examine(stop)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, takeOverTimeout)
	defer cancel()
	if v.Refusal != nil && v.Skipped != nil && p.Mirror != nil {
		// The first region may have replaced the snapshots that the record here names. The next record names newer
		// ones.
		return 0, fmt.Errorf("waiting for a snapshot of the first region: %v", v.Refusal.What())
	}
	if v.Refusal != nil && p.Mirror != nil {
		return 0, p.follow(&v)
	}
	if v.Refusal != nil && v.Refusal.Kind != streams.ErrRefused {
		return 0, v.Refusal
	}
	if ask := p.MayLead; ask != nil {
		if err := ask(ctx); err != nil {
			return 0, err
		}
	}
	if v.Refusal != nil {
		return 0, p.refuse(ctx, &v)
	}
	if err := p.claim(ctx, &v); err != nil {
		return 0, err
	}
	if upTo, err = p.Ticker.Barrier(ctx); err != nil {
		return 0, err
	}
	return upTo, p.resume(ctx, &v, upTo)
}

// follow returns what to do where the examination refuses what is stored, in a region that follows another one. Its
// mirrors have been compared with the first region, so what does not fit them is to be rebuilt: nobody has to decide
// about it.
func (p *Owner) follow(v *verdict) error {
	what := v.Refusal.What()
	switch {
	case !p.Mirror.Reached():
		return fmt.Errorf("waiting for the mirrors of the first region: %v", what)
	case p.tenure.damage == nil && v.State.Version != "":
		p.tenure.damage = fmt.Errorf("%w: %v", errOtherMirror, what)
		return fmt.Errorf("what is stored is not of the log of the first region, and is rebuilt: %v", what)
	}
	r := *v.Refusal
	r.Accept, r.Advice = "", "look at the first region, which this one follows"
	return &r
}

// errOtherMirror is the damage of a shard that was computed from a log that the first region does not have any more.
var errOtherMirror = fmt.Errorf("%w: it was computed from another log", store.ErrDamaged)

// TakeOver takes the shard over at the start, and returns the last sequence of the log then, or why it would be
// wrong to go on. A shard that only cannot be taken over now tries again in Run.
func (p *Owner) TakeOver(ctx context.Context) (upTo uint64, err error) {
	upTo, err = p.takeOver(ctx, ctx)
	if err == nil || p.fatal(err) {
		return upTo, err
	}
	return p.Ticker.Barrier(ctx)
}

func (p *Owner) known() known {
	return known{EverTaken: p.tenure.everTaken, Committed: p.progress.CommittedOffset, Damage: p.tenure.damage}
}

// examine finds out what is stored, and whether the log can continue it, or a snapshot. It may scan all of Redis, and
// read a lot of the stream of events.
func (p *Owner) examine(stop context.Context) (v verdict, err error) {
	p.announcer.Hold()
	f, err := examiner{&p.Parts}.State(stop, p.known())
	if err != nil {
		return v, err
	}
	if p.progress.Attempted(f.State.Version) {
		p.deliver() // the commit took effect, and only its reply was lost
	}
	p.outcomes = nil
	return examiner{&p.Parts}.Examine(stop, f)
}

// refuse marks a damaged shard that the log cannot rebuild: it is kept as it is, and
// readers get an error. It returns the refusal.
func (p *Owner) refuse(ctx context.Context, v *verdict) error {
	if v.State.Version == "" || v.State.Refused || v.State.Rebuild == store.Clearing {
		return v.Refusal
	}
	if err := p.Store.Refuse(ctx, v.State, rand.Text()+"-refused"); err != nil {
		return err
	}
	return v.Refusal
}

// claim fences off a former owner, in Redis and in the stream of events.
func (p *Owner) claim(ctx context.Context, v *verdict) error {
	version, lacks := p.progress.Claim(rand.Text()), v.Rebuild(p.known(), v.Log.State.LastSeq)
	if v.fromBeginning() || v.State.Version == "" || v.Damage != nil {
		lacks = store.Clearing // until resume knows how much
	}
	if v.State.Version == "" {
		v.State.Offset = v.Known.Origin
	}
	v.State.Log = p.Log.ID() // the one that it is of may have got another identity: see Log.Is
	p.tenure.verified = time.Now()
	if err := p.Store.Take(ctx, v.State, version, lacks); err != nil {
		return err
	}
	if err := p.Hook.At(crash.AfterTake); err != nil {
		return err
	}
	return p.announcer.Fence(ctx) // resume verifies that the shard is still this process's
}

// resume goes on from what was found, now that no former owner can commit or publish. upTo
// is the sequence of a tick that was appended after the claim.
func (p *Owner) resume(ctx context.Context, before *verdict, upTo uint64) error {
	v, err := examiner{&p.Parts}.Again(ctx, *before, p.announcer.FencePlace().Seq)
	if err == nil {
		err = v.changed(before)
	}
	if err != nil {
		return err
	}
	published, last := v.Published(), upTo
	if p.Mirror != nil {
		upTo = math.MaxUint64
	}
	p.announcer.Begin(published, upTo, v.LastOutput())
	if len(v.Lost) > 0 {
		// Before anything is removed: the checkpoint names outputs that the stream does not have.
		if err := p.Checkpoints.Replace(ctx, published); err != nil {
			return err
		}
	}
	if err := p.forgetSnapshots(ctx, &v); err != nil {
		return err
	}
	version, lacks := p.progress.Claimed(), v.Rebuild(p.known(), last)
	next := v.State
	next.Events = v.Output.String()
	switch {
	case v.Snapshot != nil:
		if v.State.Version != "" && v.State.Rebuild != store.Clearing {
			p.Logger.Error("the shard cannot go on from what is stored, and is loaded from a snapshot",
				slog.Any("error", v.Why))
			p.Metrics.Rebuilds.Inc()
		}
		next, err = p.clear(ctx, v.Snapshot)
		version, lacks = next.Version, last // until all is loaded
	case v.fromBeginning() && v.Why != nil:
		p.Logger.Error("the shard cannot go on from what is stored, and is rebuilt from the log",
			slog.Any("error", v.Why))
		p.Metrics.Rebuilds.Inc()
		next = store.State{
			Version: version, Log: p.Log.ID(), Offset: v.Known.Origin, Events: p.announcer.Last().String(),
		}
		lacks = last
		err = p.Store.Clear(ctx, p.progress.Version, next, lacks)
	default:
		err = p.Store.Take(ctx, store.State{Version: p.progress.Version}, version, lacks)
	}
	if err != nil {
		return err
	}
	if v.Skipped != nil {
		p.Logger.Warn("snapshots cannot be used", slog.Any("error", v.Skipped))
	}
	p.tenure.damage, p.tenure.loads = nil, v.Snapshot
	p.goOn(next, version, lacks)
	if v.Known.Origin > 0 {
		p.collections.LacksBeginning()
	}
	return nil
}

// forgetSnapshots forgets the snapshots from before a person has begun the shard anew: the log is not to be
// truncated behind them. Those that another owner has taken since stay.
func (p *Owner) forgetSnapshots(ctx context.Context, v *verdict) error {
	snapshots := p.Desk.Store()
	if snapshots == nil || !v.fromBeginning() || v.Checkpoint.Anew == 0 {
		return nil
	}
	recorded, err := snapshots.Recorded(ctx)
	if err != nil || len(recorded) == 0 {
		return err
	}
	all, err := snapshots.Generations(ctx)
	if err != nil && !damaged(err) {
		return err
	}
	if len(all) > 0 && !v.formerly(all[0].Offset, all[0].Last) {
		return nil
	}
	return snapshots.Forget(ctx, recorded[0].Generation)
}

// goOn goes on from a state. The messages that were read are kept if the state is not
// older than where the reading began; else the log is read again.
func (p *Owner) goOn(stored store.State, version string, rebuild uint64) {
	older := !p.tenure.everTaken || stored.Offset < p.Queue.Base() || p.Queue.Truncated() != nil
	p.progress.Resume(stored, version, rebuild)
	p.collections = fold.NewCollections(stored.Configs, stored.Collections)
	p.collections.ResumeMaking(stored.Making)
	p.warnFrom()
	p.due.Set(nil)
	p.pending = nil
	if older {
		p.Reader.Return(stored)
	} else {
		p.Queue.Skip(stored.Offset)
	}
	if rebuild != 0 && p.tenure.everTaken { // at the start it is no news
		p.Logger.Warn("the shard is being rebuilt from the log", slog.Uint64("from", stored.Offset), slog.Uint64("to",
			rebuild))
	}
	// It soon commits what it has read: else two owners that take the shard from each other, each
	// before the other's heartbeat, would never get on.
	p.tenure.taken, p.tenure.everTaken, p.duties.heartbeat = true, true, time.Time{}
	p.Status.FirstDue.Store(math.MaxInt64) // until this owner has looked it up
	p.Status.Rebuild.Store(rebuild)
	p.Status.Applied.Store(stored.Offset)
	p.Status.Committed.Store(stored.Offset)
	p.Status.Configured.Store(stored.Configured)
	p.Status.Making.Store(int64(p.collections.IndexesMade()))
	p.Status.Owned.Store(true)
}

// LogRules are the rules of the log ([wire.LogRules]) by what TakeOver has found: by the snapshot that is to be loaded,
// or else by what is stored. known is false if a person has begun the shard anew, and neither has rules: then the log
// needs them. LogRules is for the time before Run.
func (p *Owner) LogRules() (rules wire.LogRulesBody, known bool, err error) {
	if m := p.tenure.loads; m != nil {
		c, err := store.DecodeConfig(m.Configs[wire.LogRules])
		if err != nil {
			err = fmt.Errorf("%w: %w", snapshot.ErrDamaged, err)
		}
		return c.Rules, true, err
	}
	// the shard could not be taken over yet, and Run tries again: the last rules in the log tell
	if p.collections == nil {
		return rules, true, nil
	}
	return p.collections.Config(wire.LogRules).Rules, !p.collections.Unruled(), nil
}
