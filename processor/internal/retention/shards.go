package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// floor is the message of the stream of snapshots behind which the objects of a generation lie.
type floor struct {
	Generation uint64 `json:"generation"`
	Seq        uint64 `json:"seq"`
}

// noteEvery is how often a keeper stores when a document of its shard may have died last.
func (k *Keeper) noteEvery() time.Duration { return k.interval() / 8 }

// readOthers reads what the keepers of the other shards have done: the shards share the files of the snapshots, and
// Redis.
func (k *Keeper) readOthers(ctx context.Context, now time.Time) error {
	if k.Names.Shards < 2 || now.Sub(k.othersAt) < k.noteEvery()/2 && !k.forgets() {
		return nil
	}
	all := make(map[int]kept)
	for shard := range k.Names.Shards {
		if shard == k.Names.Shard {
			continue
		}
		value, _, err := k.Log.Value(ctx, keyOf(shard))
		if err != nil {
			return fmt.Errorf("read the state of the retention of shard %d: %w", shard, err)
		}
		var one kept
		if value == nil || json.Unmarshal(value, &one) != nil {
			continue // its keeper has done nothing yet
		}
		all[shard] = one
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.others, k.othersAt = all, now
	return nil
}

// readOldest reads the sequence of the oldest message of the stream of snapshots.
func (k *Keeper) readOldest(ctx context.Context) error {
	oldest := uint64(math.MaxUint64)
	if store := k.Log.Streams.Snapshots; store != nil {
		info, err := store.Stream().Info(ctx)
		if err != nil {
			return streams.Gone(err, store.Stream().CachedInfo().Config.Name)
		}
		oldest = info.State.FirstSeq
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.oldest = oldest
	return nil
}

// floor is the message behind which all objects of the shard lie; 0 if that is not known.
func (k *Keeper) floor() uint64 {
	if len(k.generations) < snapshot.Kept {
		return 0
	}
	lowest := uint64(math.MaxUint64)
	for _, g := range k.generations {
		at := uint64(0)
		for _, f := range k.kept.Floors {
			if f.Generation == g.Generation {
				at = f.Seq
			}
		}
		lowest = min(lowest, at)
	}
	return lowest
}

// holds reports whether snapshots of the shard may be in a file with what another shard has removed, or is to remove. The
// bytes of that stay in the file for as long as the snapshots do.
func (k *Keeper) holds() bool {
	floor := k.floor()
	for _, other := range k.others {
		if len(other.Objects) > 0 && other.Objects.upTo(floor, 0) <= other.Stirred {
			return true
		}
	}
	return false
}

// stirredIn is when a document may have died last that a place has bytes of. The files of Redis have those of all shards.
func (k *Keeper) stirredIn(place string) int64 {
	last := k.stirred
	if place == inRedis {
		for _, other := range k.others {
			last = max(last, other.Stirred)
		}
	}
	return last
}

// saw notes a look at the log: settled means that nothing can have died since the last one. What dies after a rest is
// no older than the end of the rest. The caller holds mu.
func (k *Keeper) saw(now time.Time, settled bool) {
	next := *k.kept
	if k.seen != nil {
		next.Rested = maps.Clone(next.Rested)
		for place, since := range k.cleanSince(k.seen) {
			if since <= k.stirredIn(place) {
				continue
			}
			if next.Rested == nil {
				next.Rested = make(map[string]int64)
			}
			next.Rested[place] = max(next.Rested[place], k.seen.TimeStamp.Add(-k.unnoticed(place)).UnixMilli())
		}
	}
	if !settled {
		k.stirred = now.UnixMilli()
	}
	next.Stirred = k.stirred
	k.kept = &next
}

// unnoticed is for how long a document may have been dead in a place before the keeper notices.
func (k *Keeper) unnoticed(place string) time.Duration {
	if place == inRedis && k.Names.Shards > 1 {
		return k.every() + 2*k.noteEvery()
	}
	return k.every()
}

// noteRest stores now and then what the last looks have found, for the other shards and the next owner.
func (k *Keeper) noteRest(ctx context.Context, now time.Time) error {
	had, have := k.stored, k.kept
	if now.Sub(k.noted) < k.noteEvery() || had.Stirred == have.Stirred && maps.Equal(had.Rested, have.Rested) {
		return nil
	}
	if err := k.save(ctx, *have); err != nil {
		return err
	}
	k.noted = now
	return nil
}
