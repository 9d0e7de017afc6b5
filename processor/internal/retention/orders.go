package retention

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/sink/wire"
)

// Ask asks for a snapshot, or how far one is that was asked for before: since is 0, or
// what Ask has returned, which a new owner takes as an order anew.
func (k *Keeper) Ask(since int64) wire.SnapshotReply {
	k.mu.Lock()
	defer k.mu.Unlock()
	if since == 0 {
		since = time.Now().UnixMilli()
		if k.seen != nil { // by the clock of NATS, as the snapshots
			since = k.seen.TimeStamp.UnixMilli() + 1
		}
	}
	a := wire.SnapshotReply{Since: since, Done: len(k.generations) > 0 && k.generations[0].Begun >= since}
	if !a.Done && since > k.asked.Load() {
		k.asked.Store(since)
		select {
		case k.poke <- struct{}{}:
		default:
		}
	}
	if k.failure != nil {
		a.Failure = k.failure.Error()
	}
	return a
}

// TakeOrders answers orders of snapshots until ctx is done.
func (k *Keeper) TakeOrders(ctx context.Context) {
	sub, err := k.JetStream.Conn().Subscribe(k.Names.Prefix.Snapshot(k.Names.Shard), func(m *nats.Msg) {
		var order wire.SnapshotOrder
		if len(m.Data) > 0 && json.Unmarshal(m.Data, &order) != nil {
			return // it is not from lapse
		}
		answer := k.Ask
		if order.Forget {
			answer = func(since int64) wire.SnapshotReply {
				reply, err := k.Forget(ctx, since)
				if err != nil {
					reply.Failure = err.Error()
				}
				return reply
			}
		}
		if reply, err := json.Marshal(answer(order.Since)); err == nil && m.Reply != "" {
			_ = m.Respond(reply)
		}
	})
	if err != nil {
		k.Logger.Warn("orders of snapshots are not taken", slog.Any("error", err))
		return
	}
	<-ctx.Done()
	_ = sub.Unsubscribe()
}

// forgetEvery is how often the keeper looks while it has an order to forget.
const forgetEvery = 250 * time.Millisecond

// Forget orders to let go of all that had died before an instant, as soon as the rules allow, or asks how far that is:
// since is 0, or what Forget has returned. An order is lost with its owner, so the client repeats it.
func (k *Keeper) Forget(ctx context.Context, since int64) (wire.SnapshotReply, error) {
	if since == 0 {
		info, err := k.Log.Info(ctx) // by the clock of NATS
		if err != nil {
			return wire.SnapshotReply{}, err
		}
		since = info.TimeStamp.UnixMilli() + 1
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ordered.Store(time.Now().UnixMilli())
	if since > k.forget.Load() {
		k.forget.Store(since)
		select {
		case k.poke <- struct{}{}:
		default:
		}
	}
	a := wire.SnapshotReply{Since: since, Until: wire.Time(since + k.within.Milliseconds()), Done: k.letGo(since)}
	if k.failure != nil {
		a.Failure = k.failure.Error()
	}
	if a.Done {
		a.Left = k.left(since)
	}
	return a, nil
}

// letGo reports whether a shard has removed all that it can of documents that had ended before an instant.
func (k *Keeper) letGo(before int64) bool {
	if k.seen == nil {
		return false
	}
	for place := range k.cleanSince(k.seen) {
		if !k.goneFrom(place, before) && (place != inLog || k.fits()) {
			return false
		}
	}
	return k.Names.Shard != 0 || k.eventsAge > 0 && k.kept.Events.last().At >= before
}

// goneFrom reports whether a place has nothing left of what had died before an instant.
func (k *Keeper) goneFrom(place string, before int64) bool {
	return k.goneBefore(place, k.cleanSince(k.seen)[place]) >= before
}

// goneBefore is the instant before which nothing is left in a place, which is clean since an instant: if nothing has
// died since then, up to the last look.
func (k *Keeper) goneBefore(place string, since int64) int64 {
	if since > k.stirredIn(place) {
		return max(since, k.seen.TimeStamp.Add(-k.unnoticed(place)).UnixMilli())
	}
	return since
}

// fits reports whether the log has room for a filling: without one its file ends when it has stored as much.
func (k *Keeper) fits() bool {
	return k.Log == nil || k.Log.Streams.LogFilling(k.Names).Fits(k.seen)
}

// left are the places that may still have something of what had died before an instant, and that only time, or somebody
// else, rids of it.
func (k *Keeper) left(before int64) (all []string) {
	if !k.goneFrom(inLog, before) {
		all = append(all, inLog)
	}
	if k.Names.Shard != 0 {
		return all
	}
	if k.denied {
		all = append(all, inRedis)
	}
	if k.eventsSince(k.seen.TimeStamp) < before && k.seen.Created.UnixMilli() < before {
		all = append(all, inEvents)
	}
	return all
}

// orderedFor is how long an order to forget counts after somebody has asked last how far it is.
const orderedFor = 5 * time.Second

// forgets reports whether the keeper has an order to forget that it, or another shard, may not have carried out. A
// shard that is done may have to take one more snapshot: another one has ended a file since in which its last two are.
func (k *Keeper) forgets() bool {
	at := k.forget.Load()
	return at > 0 && (time.Now().UnixMilli()-k.ordered.Load() < orderedFor.Milliseconds() || !k.letGo(at))
}

// wantsForOrder reports whether one more snapshot helps to carry out an order to forget.
func (k *Keeper) wantsForOrder() bool {
	at := k.forget.Load()
	if !k.forgets() || k.goneFrom(inLog, at) && k.goneFrom(inSnapshots, at) && !k.holdsFor(at) {
		return false
	}
	files, ok := k.kept.Objects.from(at)
	log, fits := k.kept.Log.from(at)
	if !ok || !fits && k.fits() || len(k.generations) < snapshot.Kept {
		return true
	}
	older := k.generations[snapshot.Kept-1]
	return older.Begun < max(files.At, log.At) || older.Offset < log.Seq || k.Names.Shards > 1 && k.floor() < files.Seq ||
		k.holdsFor(at)
}

// holdsFor reports whether snapshots of the shard are in a file that another shard has ended for an order to forget.
func (k *Keeper) holdsFor(at int64) bool {
	floor := k.floor()
	for _, other := range k.others {
		if file, ok := other.Objects.from(at); ok && floor < file.Seq {
			return true
		}
	}
	return false
}

// from is the oldest edge that is not before an instant.
func (e edges) from(at int64) (edge, bool) {
	i := slices.IndexFunc(e, func(one edge) bool { return one.At >= at })
	if i < 0 {
		return edge{}, false
	}
	return e[i], true
}
