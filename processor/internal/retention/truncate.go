package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// begunBefore is when the older of two generations was begun; 0 if there are not two.
func begunBefore(all []wire.Generation) (begun int64) {
	if len(all) < snapshot.Kept {
		return 0
	}
	return all[snapshot.Kept-1].Begun
}

// synced is what the shard has on disk.
type synced struct {
	newest uint64    // generation
	known  time.Time // when this process has learned that it is recorded
	offset uint64    // of the older generation, once both are on disk; 0 before
}

// note notes the generations that are recorded, newest first.
func (s *synced) note(all []wire.Generation, now time.Time) {
	if len(all) == 0 {
		s.offset = 0
	} else if s.newest != all[0].Generation {
		s.newest, s.known = all[0].Generation, now
	}
}

// onDisk reports whether the server has the newest generation on disk.
func (k *Keeper) onDisk() bool { return time.Since(k.synced.known) >= k.Sync }

// behind is the offset up to which the shard does not need the log (T1); 0 if it has not had two generations on disk.
func (k *Keeper) behind() (offset uint64) {
	if len(k.generations) == snapshot.Kept && k.onDisk() {
		k.synced.offset = k.generations[snapshot.Kept-1].Offset
	}
	return k.synced.offset
}

// truncate purges the log up to where the older generations continue it. The message at that offset
// stays: stamps are compared there.
func (k *Keeper) truncate(ctx context.Context) error {
	upTo := k.behind()
	if upTo <= k.truncated {
		return nil
	}
	first, may, err := k.mayTruncate(ctx, upTo)
	if err != nil || !may {
		return err
	}
	if err := k.verify(ctx, upTo); err != nil {
		return err
	}
	if err := k.Hook.At(crash.BeforePurge); err != nil {
		return err
	}
	// verify has read all snapshots, and somebody may have replaced the log meanwhile.
	if _, may, err = k.mayTruncate(ctx, upTo); err != nil || !may {
		return err
	}
	if err := k.Log.Streams.Log.Purge(ctx, jetstream.WithPurgeSequence(upTo)); err != nil {
		return fmt.Errorf("truncate the log: %w", streams.Gone(err, k.Names.Stream()))
	}
	if err := k.Hook.At(crash.AfterPurge); err != nil {
		return err
	}
	k.Logger.Info("truncated the log", slog.Uint64("from", first), slog.Uint64("to", upTo))
	info, err := k.Log.Info(ctx)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.seen = info
	return nil
}

// mayTruncate reports whether nobody needs the log up to an offset: it is still the same log, and the
// shard has applied it and published its outputs. first is where it begins.
func (k *Keeper) mayTruncate(ctx context.Context, upTo uint64) (first uint64, may bool, err error) {
	info, err := k.Log.Info(ctx)
	if err != nil {
		return 0, false, err
	}
	if id := streams.Identity(info); id != k.Log.ID() {
		return 0, false, fmt.Errorf("truncate the log: %w: it was created at %s", streams.ErrLogChanged, streams.FormatID(id))
	}
	if first = info.State.FirstSeq; upTo <= first {
		k.truncated = upTo
		return first, false, nil
	}
	c, err := k.Checkpoints.Load(ctx)
	if err != nil {
		return first, false, err
	}
	return first, c.Seq >= upTo && k.Status.Applied.Load() >= upTo, nil
}

// verify reads both generations, which have to continue a log that is truncated up to an offset. If one is damaged, a
// new snapshot is wanted at once, and the log is not truncated.
func (k *Keeper) verify(ctx context.Context, upTo uint64) error {
	all, err := k.Desk.Store().Generations(ctx)
	for _, m := range all {
		if err == nil {
			err = k.Desk.Store().Verify(ctx, m)
		}
		if err == nil && m.Offset < upTo { // a server has lost the end of the bucket
			err = fmt.Errorf("%w: the record names one at offset %d, although later ones were recorded", snapshot.ErrDamaged,
				m.Offset)
		}
	}
	if err == nil && len(all) < snapshot.Kept {
		err = fmt.Errorf("the record names %d snapshots", len(all))
	}
	if errors.Is(err, snapshot.ErrDamaged) {
		k.put(nil) // nothing is truncated until there are two again
		k.tries.anew = snapshot.Kept
	}
	return err
}

// endEvents ends the file of the stream of events now and then: the server removes a file only when all
// events in it have aged out.
func (k *Keeper) endEvents(ctx context.Context, now time.Time) error {
	every := k.within / eventEdges
	if now.UnixMilli()-k.kept.Events.last().At < every.Milliseconds() && k.eventsAge > 0 &&
		k.kept.Events.last().At >= k.forget.Load() {
		return nil
	}
	s := k.Log.Streams
	info, err := s.Events.Info(ctx)
	if err != nil {
		return streams.Gone(err, s.Events.CachedInfo().Config.Name)
	}
	next, filling := *k.kept, s.EventsFilling(k.Names.Prefix, k.Mirrored)
	if !filling.Fits(info) {
		filling = s.EventsFilling(k.Names.Prefix, false)
	}
	if next.Events, err = k.end(ctx, k.kept.Events, now, info, filling, every); err != nil {
		return err
	}
	if err := k.save(ctx, next); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.eventsAge = info.Config.MaxAge
	return nil
}

// rewriteRedis lets Redis write its files anew, once in an interval while documents die.
func (k *Keeper) rewriteRedis(ctx context.Context, info *jetstream.StreamInfo) error {
	now, last := info.TimeStamp.UnixMilli(), max(k.kept.Redis, info.Created.UnixMilli())
	if last >= k.forget.Load() && (last > k.stirredIn(inRedis) || now-last < k.interval().Milliseconds()) {
		return nil
	}
	err := k.Redis.Rewrite(ctx)
	if errors.Is(err, store.ErrDenied) {
		if !k.denied {
			k.Logger.Warn("Redis does not rewrite its files, which keep bytes of removed documents: permit it "+
				"(deploy/redis/users.acl), or let Redis do it more often than --forget-within", slog.Any("error", err))
		}
		k.setDenied(true)
		err = nil
	} else if err == nil {
		k.setDenied(false)
	}
	if err != nil {
		return err
	}
	next := *k.kept
	next.Redis = now
	return k.save(ctx, next)
}

func (k *Keeper) setDenied(denied bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.denied = denied
}
