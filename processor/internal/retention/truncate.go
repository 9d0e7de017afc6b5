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
)

// begunBefore is when the first of the older generations of all partitions was begun; 0 if one has not two
// generations.
func begunBefore(all [][]snapshot.Generation) (begun int64) {
	for i, some := range all {
		if len(some) < snapshot.Kept {
			return 0
		}
		if older := some[snapshot.Kept-1]; i == 0 || older.Begun < begun {
			begun = older.Begun
		}
	}
	return begun
}

// synced is what a partition has on disk.
type synced struct {
	newest uint64    // generation
	known  time.Time // when this process has learned that it is recorded
	offset uint64    // of the older generation, once both are on disk; 0 before
}

// note notes the generations that are recorded, newest first.
func (s *synced) note(all []snapshot.Generation, now time.Time) {
	if len(all) == 0 {
		s.offset = 0
	} else if s.newest != all[0].Generation {
		s.newest, s.known = all[0].Generation, now
	}
}

// onDisk reports whether the server has the newest generation of the i-th partition on disk.
func (k *Keeper) onDisk(i int) bool { return time.Since(k.synced[i].known) >= k.Sync }

// behind is the offset up to which no partition needs the log (T1); 0 if one has not had two generations
// on disk.
func (k *Keeper) behind() (offset uint64) {
	for i, all := range k.generations {
		s := &k.synced[i]
		if len(all) == snapshot.Kept && k.onDisk(i) {
			s.offset = all[snapshot.Kept-1].Offset
		}
		if i == 0 || s.offset < offset {
			offset = s.offset
		}
	}
	return offset
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

// mayTruncate reports whether nobody needs the log up to an offset: it is still the same log, and all
// partitions have applied it and published their outputs. first is where it begins.
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
	for i, s := range k.Statuses.Partitions {
		c, err := k.Checkpoints.Load(ctx, k.Statuses.Number(i))
		if err != nil {
			return first, false, err
		}
		if c.Seq < upTo || s.Applied.Load() < upTo {
			return first, false, nil // later
		}
	}
	return first, true, nil
}

// verify reads both generations of all partitions, which have to continue a log that is truncated up
// to an offset. If one is damaged, the partition gets a new snapshot at once, and the log is not
// truncated.
func (k *Keeper) verify(ctx context.Context, upTo uint64) error {
	var damaged error
	for i := range k.generations {
		all, err := k.Desk.Store().Generations(ctx, k.Statuses.Number(i))
		for _, m := range all {
			if err == nil {
				err = k.Desk.Store().Verify(ctx, m)
			}
			if err == nil && m.Offset < upTo { // a server has lost the end of the bucket
				err = fmt.Errorf("%w: the record names one at offset %d, although later ones were recorded", snapshot.ErrDamaged, m.Offset)
			}
		}
		if err == nil && len(all) < snapshot.Kept {
			err = fmt.Errorf("partition %d: its record names %d snapshots", k.Statuses.Number(i), len(all))
		}
		switch {
		case errors.Is(err, snapshot.ErrDamaged):
			k.put(i, nil) // nothing is truncated until there are two again
			k.tries[i].anew = snapshot.Kept
			damaged = errors.Join(damaged, fmt.Errorf("partition %d: %w", k.Statuses.Number(i), err))
		case err != nil:
			return err
		}
	}
	return damaged
}
