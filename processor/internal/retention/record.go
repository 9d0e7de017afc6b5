package retention

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

const format = 1

// kept is what the keeper of a shard has done. It is stored in the bucket of checkpoints, for the next
// owner of the shard. If it is lost, the keeper does it again.
type kept struct {
	Format int    `json:"format"`
	Log    edges  `json:"log,omitempty"`
	Events edges  `json:"events,omitempty"`
	ID     string `json:"id"` // of the log
	// Turn is from when on the log has no room for a filling, and stores messages in place of others.
	Turn edge `json:"turn,omitzero"`
	// Objects are the edges of the snapshots.
	Objects edges `json:"objects,omitempty"`
	Redis   int64 `json:"redis"`  // when Redis began to write its files anew, Unix milliseconds
	Within  int64 `json:"within"` // the promise, milliseconds
	Since   int64 `json:"since"`  // from when on it is kept, Unix milliseconds
	// Stirred is when a document of the shard may have died last, Unix milliseconds.
	Stirred int64 `json:"stirred,omitempty"`
	// Rested is an instant for each place, Unix milliseconds: what had died before it had gone from there.
	Rested map[string]int64 `json:"rested,omitempty"`
	Floors []floor          `json:"floors,omitempty"` // of the last generations, if there are several shards
}

// turn notes an edge of a log that has no room for a filling: what it has stored since the last turn has
// ended the file of then.
func (k *kept) turn(info *jetstream.StreamInfo) {
	now := edge{At: info.TimeStamp.UnixMilli(), Seq: info.State.LastSeq}
	if k.Turn.At != 0 {
		if !streams.Turned(info, k.Turn.Seq) {
			return
		}
		k.Log = k.Log.add(edge{At: k.Turn.At, Seq: now.Seq})
	}
	k.Turn = now
}

// keyOf is the key of what the keeper of a shard has done.
func keyOf(shard int) string { return "retention." + strconv.Itoa(shard) }

// load reads what the keeper has done. A promise that is new, or shorter than before, begins now.
func (k *Keeper) load(ctx context.Context, info *jetstream.StreamInfo) (*kept, error) {
	value, _, err := k.Log.Value(ctx, keyOf(k.Names.Shard))
	if err != nil {
		return nil, fmt.Errorf("read the state of the retention: %w", err)
	}
	have := &kept{}
	if value != nil {
		if err := json.Unmarshal(value, have); err != nil {
			return nil, fmt.Errorf("read the state of the retention: %w", err)
		}
	}
	if have.ID != k.Log.ID() || have.Format != format {
		have = &kept{Format: format, ID: k.Log.ID()}
	}
	if within := k.within.Milliseconds(); have.Within != within {
		if have.Within == 0 || have.Within > within {
			have.Since = info.TimeStamp.UnixMilli()
		}
		have.Within = within
	}
	return have, nil
}

// save stores what the keeper has done. Two owners at the same time may take turns in it: each has done
// what it stores.
func (k *Keeper) save(ctx context.Context, next kept) error {
	value, err := json.Marshal(next)
	if err == nil {
		_, err = k.Log.Streams.Checkpoints.Put(ctx, keyOf(k.Names.Shard), value)
	}
	if err != nil {
		return fmt.Errorf("store the state of the retention: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept, k.stored = &next, next
	return nil
}

// edge is an instant at which a file of the server was ended: all messages up to a sequence are in files
// of before.
type edge struct {
	At  int64  `json:"at"` // Unix milliseconds, before the filling
	Seq uint64 `json:"seq"`
}

// mostEdges is how many edges are remembered: those of the events have to reach back as long as events are
// kept.
const mostEdges = 32

// edges are those of a stream, oldest first.
type edges []edge

// last is the newest edge; zero if there is none.
func (e edges) last() edge {
	if len(e) == 0 {
		return edge{}
	}
	return e[len(e)-1]
}

// add adds an edge, and forgets the oldest one.
func (e edges) add(next edge) edges {
	e = append(slices.Clone(e), next)
	return e[max(0, len(e)-mostEdges):]
}

// upTo is the instant of the newest edge up to a sequence: the files have nothing that was stored
// before it, once all messages up to there are removed. It is since if there is none.
func (e edges) upTo(seq uint64, since int64) int64 {
	for _, one := range slices.Backward(e) {
		if one.Seq <= seq {
			return max(one.At, since)
		}
	}
	return since
}

// before is the instant of the newest edge that is not after another instant.
func (e edges) before(at, since int64) int64 {
	for _, one := range slices.Backward(e) {
		if one.At <= at {
			return max(one.At, since)
		}
	}
	return since
}

// behind is the instant of the newest edge that is not after another instant, and that lies before the oldest message
// of the stream: all files of before it are gone.
func (e edges) behind(at int64, oldest uint64, since int64) int64 {
	for _, one := range slices.Backward(e) {
		if one.At <= at && one.Seq < oldest {
			return max(one.At, since)
		}
	}
	return since
}

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

// holds reports whether snapshots of the shard may be in a file with what another shard has removed, or is to remove.
// The bytes of that stay in the file for as long as the snapshots do.
func (k *Keeper) holds() bool {
	floor := k.floor()
	for _, other := range k.others {
		if len(other.Objects) > 0 && other.Objects.upTo(floor, 0) <= other.Stirred {
			return true
		}
	}
	return false
}

// stirredIn is when a document may have died last that a place has bytes of. The files of Redis have those of all
// shards.
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
