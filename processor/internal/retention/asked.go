package retention

import "time"

// Asked is how far the snapshots are that somebody has asked for.
type Asked struct {
	Since      int64  `json:"since"` // Unix milliseconds; names the request
	Partitions int    `json:"partitions"`
	Done       int    `json:"done"`
	Failure    string `json:"failure,omitempty"` // of the last attempt
}

// Ask asks for a snapshot of each partition, or how far one is that was asked for before: since is 0, or
// what Ask has returned.
func (k *Keeper) Ask(since int64) Asked {
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
	a := Asked{Since: since, Partitions: len(k.Statuses.Partitions)}
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
