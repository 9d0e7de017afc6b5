package retention

import (
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Ask asks for a snapshot of each partition, or how far one is that was asked for before: since is 0, or
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
	a := wire.SnapshotReply{Since: since, Partitions: len(k.Statuses.Partitions)}
	for _, some := range k.generations {
		if len(some) > 0 && some[0].Begun >= since {
			a.Done++
		}
	}
	if k.failure != nil {
		a.Failure = k.failure.Error()
	}
	return a
}
