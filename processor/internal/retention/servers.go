package retention

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// endEvents ends the file of the stream of events now and then: the server removes a file only when all
// events in it have aged out.
func (k *Keeper) endEvents(ctx context.Context, now time.Time) error {
	every := k.within / eventEdges
	if now.UnixMilli()-k.kept.Events.last().At < every.Milliseconds() && k.eventsAge > 0 && k.kept.Events.last().At >= k.forget.Load() {
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
			k.Logger.Warn("Redis does not rewrite its files, which keep bytes of removed documents: permit it (deploy/redis/users.acl), or let Redis do it more often than --forget-within", slog.Any("error", err))
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
