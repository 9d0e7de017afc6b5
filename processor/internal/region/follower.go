package region

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	cutEvery       = time.Second
	lookEvery      = 50 * time.Millisecond // whether the mirrors have reached a cut
	rolesEvery     = streams.PromotionNotice / 3
	tellEvery      = 10 * time.Minute
	firstLimit     = 5 * time.Second // of the first cut, where others were adopted before
	rememberedCuts = 1000
)

// ProblemRegion: what the first region has cannot be followed.
var ProblemRegion = health.Problem{Name: "region", Advice: "Look at the reason. Reads go on with what is here."}

// Parts are what a follower works with.
type Parts struct {
	Names     wire.Log
	Log       *streams.Log
	Origin    *streams.Origin
	Domain    string // JetStream domain of this region
	NATS      *nats.Conn
	JetStream jetstream.JetStream
	Options   streams.Options
	Tail      *events.Tail
	Status    *shard.Status
	Snapshots *snapshot.Store // nil if they are elsewhere
	Redis     interface {
		Rewrite(ctx context.Context) error
	}
	Health *health.Board
	Logger *slog.Logger
	Forget time.Duration // within which Redis gives up the bytes of dead documents
}

// Follower follows the first region, for a shard.
type Follower struct {
	Parts
	*waits
	stored   map[string][]byte    // values as they were adopted
	compared map[string]*compared // by mirror
	running  bool                 // the shard was taken over
	anew     uint64               // of the checkpoint that counts here: see shard.Checkpoint
	later    *later               // a checkpoint that counts here once the shard has applied the log up to it
	adopted  bool                 // a cut, in this session
	told     time.Time            // when the first region was told last that this one follows it
	swept    uint64               // end of the snapshots when they were swept last
	asked    time.Time            // when the last cut was taken
	pending  *cut                 // that is not adopted yet
	written  time.Time            // when Redis was asked last to write its files anew

	mu   sync.Mutex
	cuts []instant // that the log here has not applied yet, the oldest first
	asOf time.Time // everything that the first region had then is applied here; zero if that is not known
	down time.Time // since when the first region does not answer; zero while it does
	last uint64    // sequence of the first region's log, as last heard
}

// instant is where the log of the first region has ended.
type instant struct {
	at  time.Time
	seq uint64
}

// New makes a follower. It begins in [Follower.Begin].
func New(parts Parts) *Follower {
	return &Follower{Parts: parts, stored: map[string][]byte{}, compared: map[string]*compared{}, written: time.Now(),
		waits: &waits{}}
}

// Mirror tells the owner what the first region has published, until ctx is done.
func (f *Follower) Mirror(ctx context.Context) shard.Mirror {
	f.waits.ended, f.waits.role = ctx, f.role
	return f.waits
}

// Begin adopts a cut. If none was adopted before, it waits for that: nothing else tells what the state is
// to be. Otherwise it goes on after a while, because the first region may be lost. It ends if the region here is
// promoted meanwhile.
func (f *Follower) Begin(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { cancel(f.WatchRole(ctx)) })
	defer watch.Wait()
	defer cancel(nil)
	known, err := f.hasAdopted(ctx)
	if err != nil {
		return err
	}
	began, told := time.Now(), time.Time{}
	for {
		err := f.step(ctx)
		f.report(err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case endsSession(err):
			return err
		case f.adopted:
			return nil
		case known && time.Since(began) > firstLimit:
			return nil
		}
		if time.Since(told) > firstLimit {
			told = time.Now()
			f.Logger.Info("waiting for the mirrors to reach what the first region has", slog.String("domain", f.Origin.Domain),
				slog.Any("error", err))
		}
		if !backoff.Wait(ctx, lookEvery) {
			return context.Cause(ctx)
		}
	}
}

// hasAdopted reports whether a checkpoint is stored here, and lets the owner know it.
func (f *Follower) hasAdopted(ctx context.Context) (has bool, err error) {
	c, err := shard.NewCheckpoints(f.Log, f.Names.Shard).Load(ctx)
	if err != nil || c.Log == "" {
		return false, err
	}
	f.anew = c.Anew
	f.of(f.Names.Stream()).upTo = c.ParsedStamp().Seq
	f.of(f.Names.Prefix.EventsStream()).upTo = c.From.Seq
	f.waits.advance(&c)
	return true, nil
}

// Run follows until ctx is done. It returns an error if the region here must not go on as it is.
func (f *Follower) Run(ctx context.Context) error {
	f.running = true
	for backoff.Wait(ctx, lookEvery) {
		err := f.step(ctx)
		if ctx.Err() != nil {
			return nil
		}
		f.report(err)
		if endsSession(err) {
			return err
		}
	}
	return nil
}

// endsSession reports whether an error ends the session.
func endsSession(err error) bool {
	r := streams.AsRefusal(err)
	return r != nil && !errors.Is(r, streams.ErrMismatch) || errors.Is(err, streams.ErrPromotion) ||
		errors.Is(err, errAnew)
}

// WatchRole returns an error once the streams here are mirrors no longer, or a promotion has begun.
func (f *Follower) WatchRole(ctx context.Context) error {
	for backoff.Wait(ctx, rolesEvery) {
		err := f.role(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, streams.ErrPromotion):
			return streams.ErrPromotion
		}
	}
	return nil
}

// role returns an error unless the region follows another one: ErrPromotion if the streams here are mirrors no longer,
// or a promotion has begun.
func (f *Follower) role(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
	defer cancel()
	role, err := streams.RoleOf(asking, f.JetStream, f.Options)
	if err == nil && role.Exists && !role.Mirror {
		err = streams.ErrPromotion
	}
	return err
}

// FollowEvents keeps the tail of the stream of events up to date.
func (f *Follower) FollowEvents(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := f.Tail.Follow(ctx); err != nil && ctx.Err() == nil {
			f.Logger.Warn("the reading of the mirrored events was interrupted, and begins again", slog.Any("error", err))
			backoff.Wait(ctx, 100*time.Millisecond)
		}
	}
	return nil
}

// step takes a cut if it is time, and adopts it once the mirrors have reached it.
func (f *Follower) step(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	f.settle()
	if err := f.storeLater(ctx); err != nil {
		return err
	}
	if f.pending == nil && time.Since(f.asked) >= cutEvery {
		c, err := f.takeCut(ctx)
		f.tell(ctx)
		if err == nil {
			f.seen(c)
			if err = f.compare(ctx, c); err == nil {
				f.note(c)
			}
		}
		if err != nil {
			if errors.Is(err, streams.ErrOrigin) {
				f.unanswered(context.WithoutCancel(ctx))
			}
			return err
		}
		f.pending = c
	}
	if f.pending == nil {
		return nil
	}
	here, err := f.askEnds(ctx, f.Log.Streams.Get)
	if err != nil {
		return err
	}
	if !here.reach(f.pending.ends) {
		if time.Since(f.pending.asked) > 10*cutEvery { // the first region may have lost its end since
			f.pending = nil
		}
		return nil
	}
	if err := f.adopt(ctx, f.pending); err != nil {
		return err
	}
	f.pending, f.adopted = nil, true
	f.waits.reached.Store(true)
	return f.rewrite(ctx)
}

// tell tells lapse in the first region now and then that this one follows it, so that it asks here whether it still is
// the first. Nothing else depends on it: no process may run there.
func (f *Follower) tell(ctx context.Context) {
	if f.Names.Shard != 0 || time.Since(f.told) < tellEvery {
		return
	}
	if _, err := f.Origin.Ask(ctx, f.Names.Prefix, wire.RegionRequest{Follower: f.Domain}); err == nil {
		f.told = time.Now()
	}
}

// rewrite lets Redis write its files anew now and then, so that they forget.
func (f *Follower) rewrite(ctx context.Context) error {
	if f.Redis == nil || f.Names.Shard != 0 || time.Since(f.written) < f.Forget/5 {
		return nil
	}
	f.written = time.Now()
	if err := f.Redis.Rewrite(ctx); err != nil {
		f.Logger.Warn("Redis has not written its files anew, which keep bytes of removed documents", slog.Any("error", err))
	}
	return nil
}

// seen notes where the log of the first region ends.
func (f *Follower) seen(c *cut) {
	f.asked = c.asked
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = c.log.State.LastSeq
}

// note notes a cut of which the mirrors here are true copies: what is here is as old as the last such cut that is
// applied.
func (f *Follower) note(c *cut) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.cuts) < rememberedCuts {
		f.cuts = append(f.cuts, instant{c.asked, c.ends.log})
	}
}

// settle finds out as of when the state here is that of the first region.
func (f *Follower) settle() {
	applied := f.Status.Applied.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.cuts) > 0 && f.cuts[0].seq <= applied {
		f.asOf, f.cuts = f.cuts[0].at, f.cuts[1:]
	}
}

// report tells whether the first region answers, and what else keeps this one from following.
func (f *Follower) report(err error) {
	lost := errors.Is(err, streams.ErrOrigin) || errors.Is(err, context.DeadlineExceeded)
	f.mu.Lock()
	was := f.down
	switch {
	case !lost:
		f.down = time.Time{}
	case was.IsZero():
		f.down = time.Now()
	}
	f.mu.Unlock()
	switch {
	case lost && was.IsZero():
		f.Logger.Warn("the first region does not answer; reads go on with what is here",
			slog.String("domain", f.Origin.Domain), slog.Any("error", err))
	case !lost && !was.IsZero():
		f.Logger.Info("the first region answers again", slog.String("domain", f.Origin.Domain),
			slog.String("after", time.Since(was).Round(time.Millisecond).String()))
	}
	if lost {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("following the region in the JetStream domain %q: %w", f.Origin.Domain, err)
	}
	f.Health.Set(ProblemRegion, err)
}

// Following is how far the region here is behind the first.
func (f *Follower) Following() wire.Following {
	f.settle()
	applied := f.Status.Applied.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	is := wire.Following{Domain: f.Origin.Domain, Behind: max(f.last, applied) - applied}
	if !f.asOf.IsZero() {
		is.AsOf = wire.Time(f.asOf.UnixMilli())
	}
	if !f.down.IsZero() {
		is.Down = wire.Time(f.down.UnixMilli())
	}
	return is
}
