package partition

import (
	"context"
	"time"

	"github.com/seed18712806/lapse/processor/internal/announce"
	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// recordTimeout bounds what is recorded after the scan of Redis.
const recordTimeout = 30 * time.Second

// takeAnew stores the version of a takeover that will set aside a state that lacks no documents, or
// what a rebuild still has to bring. It is marked as refused, unless it is being rebuilt: so nobody
// reads it while its keys are renamed.
func takeAnew(ctx context.Context, at Store, s store.State, version string) error {
	// A copy of before, beside what is whole, is of a rebuild that has succeeded.
	if _, err := at.RemoveAside(ctx); err != nil {
		return err
	}
	if s.Rebuild != 0 {
		return at.Take(ctx, s, version, s.Rebuild)
	}
	return at.Refuse(ctx, s, version)
}

// beginning begins a partition anew from the log, as a person has decided. What is stored of
// it is set aside, and kept until the partition has been rebuilt.
//
// The process may die at any point, so the order matters:
//
//  1. takeAnew: the version of the takeover. What is whole is not marked as damaged, or the next
//     takeover would clear it.
//  2. [beginning.SetAside] sets aside. Until it has ended, the checkpoint still says that the log
//     does not reach back, so the partition is refused. A person's new token goes on with it.
//  3. The same forgets the snapshots and moves the checkpoint, while the state says that nothing is
//     there. With the new checkpoint, the next takeover rebuilds the partition from the log.
//  4. The owner stores the state with which the rebuild begins. When that has succeeded, it
//     removes what was set aside.
type beginning struct {
	Partition   int
	Store       Store
	Log         *streams.Log
	Checkpoints *announce.Checkpoints
	Snapshots   *snapshot.Store // nil if there are none
	Fence       uint64          // of the owner in the stream of events
}

// SetAside sets aside the partition, which is at a version. It returns the new checkpoint, whose
// origin is where the log begins. The state then begins there, at the same version, and lacks
// everything.
func (b beginning) SetAside(ctx context.Context, version string) (announce.Checkpoint, error) {
	c := announce.Checkpoint{Log: b.Log.ID(), Anew: b.Fence}
	info, err := b.Log.Info(ctx)
	if err != nil {
		return c, err
	}
	if info.State.FirstSeq > 0 {
		c.Origin = info.State.FirstSeq - 1
	}
	empty := store.State{Version: version, Log: c.Log, Offset: c.Origin}
	if err := b.Store.SetAside(ctx, version, empty, store.Clearing); err != nil {
		return c, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout) // SetAside has scanned all of Redis
	defer cancel()
	if b.Snapshots != nil {
		if err := b.Snapshots.Forget(ctx, b.Partition); err != nil {
			return c, err
		}
	}
	return c, b.Checkpoints.Replace(ctx, b.Partition, c)
}
