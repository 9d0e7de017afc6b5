package shard

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// errAgain is why a snapshot is abandoned when the shard is taken over again.
var errAgain = errors.New("the shard is taken over again")

// errEnds is why a snapshot is abandoned when the owner ends.
var errEnds = errors.New("the process ends, or gives the shard up")

// record scans some documents for a snapshot, if one is wanted and it is time to. A shard
// that lacks documents takes none.
func (p *Owner) record(ctx context.Context) error {
	t := &p.tenure
	if t.recording == nil && p.progress.Rebuild() == 0 {
		if w := p.Desk.Order(); w != nil {
			t.recording = beginRecording(w, p.collections)
		}
	}
	if t.recording.Failed() {
		t.recording = nil // the writer says why
	}
	if t.recording == nil || t.recording.Wait(time.Now()) > 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("waiting for Redis (documents of a snapshot)")()
	began := time.Now()
	done, err := t.recording.Scan(ctx, p.Store, p.progress.Version(), p.collections, p.Queue.ReadUpTo().Seq)
	if err != nil {
		return err
	}
	t.verified = began
	if err := p.Hook.At(crash.AfterCopy); err != nil || !done {
		return err
	}
	return p.recorded(ctx)
}

// recorded ends a snapshot at the committed position.
func (p *Owner) recorded(ctx context.Context) error {
	if !p.progress.IsCommitted() {
		if err := p.commit(ctx, p.progress.Here(), nil, nil); err != nil {
			return err
		}
	}
	if err := p.Hook.At(crash.BeforeSnapshot); err != nil {
		return err
	}
	published := p.announcer.PublishedUpTo()
	p.tenure.recording.Finish(snapshot.Manifest{
		Offset: p.progress.CommittedOffset(), Watermark: p.progress.CommittedWatermark(), Stamp: p.progress.Stamp(), Configured: p.progress.Configured(),
		Published: published.Seq, PublishedTime: published.Watermark, From: published.From, Last: p.announcer.Last(),
	})
	p.tenure.recording = nil
	return nil
}

// rest is how long the owner waits for messages before it looks after its duties.
func (p *Owner) rest() time.Duration {
	rest := p.lookUpIn()
	if p.tenure.recording != nil {
		rest = min(rest, p.tenure.recording.Wait(time.Now()))
	}
	if p.collections != nil && p.collections.IndexesMade() > 0 {
		rest = min(rest, max(p.makeIn(), time.Millisecond))
	}
	return rest
}

// abandon gives up the snapshot that is being taken, and the load of one.
func (p *Owner) abandon(why error) {
	p.tenure.recording.Abandon(why)
	p.tenure.loader.Close()
	p.tenure.recording, p.tenure.loader, p.tenure.loads = nil, nil, nil
}

// clear clears the shard, to load the snapshot that was found. The state says so until the
// load has ended. It returns the state at the snapshot's offset.
func (p *Owner) clear(ctx context.Context, m *snapshot.Manifest) (store.State, error) {
	version := p.progress.Version()
	next := store.State{Version: p.progress.Cleared(), Log: m.Log, Offset: m.Offset, Watermark: m.Watermark, Stamp: m.Stamp, Configured: m.Configured, Events: p.announcer.Last().String()}
	err := p.Store.Take(ctx, store.State{Version: version}, version, store.Clearing)
	if err == nil {
		err = p.Store.Clear(ctx, version, next, store.Clearing)
	}
	if err == nil {
		err = p.Hook.At(crash.AfterClear)
	}
	return next, err
}

// load loads some of the snapshot that was found.
func (p *Owner) load(stop context.Context) error {
	t := &p.tenure
	if t.loader == nil {
		p.Logger.Info("the shard is loaded from a snapshot", slog.Uint64("generation", t.loads.Generation), slog.Uint64("offset", t.loads.Offset))
		t.loader = newLoader(p.Store, p.progress.Version(), t.loads, p.Desk.Store().Entries(stop, t.loads))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(stop), streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("loading a snapshot, from NATS into Redis")()
	began := time.Now()
	done, err := t.loader.Load(ctx)
	if err != nil {
		return err
	}
	t.verified = began
	if err := p.Hook.At(crash.AfterFill); err != nil || !done {
		return err
	}
	if err := p.Hook.At(crash.BeforeLoaded); err != nil {
		return err
	}
	s, err := t.loader.End(ctx, p.progress.Claimed(), p.progress.Rebuild())
	if err != nil {
		return err
	}
	if err := p.Hook.At(crash.AfterLoaded); err != nil {
		return err
	}
	p.progress.Resume(s, s.Version, s.Rebuild)
	p.collections = p.collections.Anew(s.Configs, s.Collections)
	p.collections.ResumeMaking(s.Making)
	p.warnFrom()
	p.Logger.Info("the shard was loaded from a snapshot", slog.Uint64("generation", t.loads.Generation), slog.Uint64("offset", s.Offset),
		slog.Uint64("documents", t.loader.Documents), slog.Duration("took", time.Since(t.loader.Began)))
	p.abandon(nil)
	return nil
}
