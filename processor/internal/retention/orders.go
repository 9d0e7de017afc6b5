package retention

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/wire"
)

// Ask asks for a snapshot, or how far one is that was asked for before: since is 0, or
// what Ask has returned.
func (k *Keeper) Ask(since int64) wire.SnapshotReply {
	k.mu.Lock()
	defer k.mu.Unlock()
	if since == 0 {
		since = time.Now().UnixMilli()
		if k.seen != nil { // by the clock of NATS, as the snapshots
			since = k.seen.TimeStamp.UnixMilli() + 1
		}
		k.asked.Store(max(since, k.asked.Load()))
		select {
		case k.poke <- struct{}{}:
		default:
		}
	}
	a := wire.SnapshotReply{Since: since, Done: len(k.generations) > 0 && k.generations[0].Begun >= since}
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
