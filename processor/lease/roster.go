package lease

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// roster keeps the entry of this process among the members of a prefix, and the
// list of all members.
//
// It refreshes the entry every few seconds and when it is asked to, and removes it
// at the end. The roster of an owner also deletes the entries of processes that are gone.
type roster struct {
	m     *Member
	asked chan struct{} // holds a request for a refresh

	storing sync.Mutex // one entry is stored at a time, so that the latest is stored last

	mu       sync.Mutex
	list     []listed  // as last read
	stored   time.Time // when JetStream last stored the entry
	storeErr error     // of the latest attempt
}

// Run refreshes until ctx is done. Then it removes the entry of this process.
func (r *roster) Run(ctx context.Context) {
	tick := time.NewTicker(r.m.timing.refresh)
	defer tick.Stop()
	for up := true; ctx.Err() == nil; {
		changed := r.m.link.Changed()
		select {
		case <-ctx.Done():
			continue
		case <-changed:
			was := up
			if up = r.m.link.Up(); was || !up {
				continue // only a connection that is back is a reason
			}
		case <-tick.C:
		case <-r.asked:
		}
		r.Refresh(ctx)
	}
	if err := r.m.bucket.Remove(context.WithoutCancel(ctx), r.m.opts.ID, 0); err != nil {
		r.m.log.Debug("could not remove the entry of this process: an owner deletes it later", slog.Any("error", err))
	}
}

// Soon asks Run for a refresh now.
func (r *roster) Soon() {
	select {
	case r.asked <- struct{}{}:
	default:
	}
}

// Refresh stores the entry of this process and lists all members. An owner also deletes
// the entries of processes that are gone, and releases shards that others are to have.
func (r *roster) Refresh(ctx context.Context) {
	if r.m.opts.Unfit() == nil {
		r.m.unfitSince = time.Time{}
	} else if r.m.unfitSince.IsZero() {
		r.m.unfitSince = time.Now()
	}
	// The end waits for this answer: else JetStream may store the entry after its removal.
	owns, err := r.store(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		return
	}
	var list []listed
	if err == nil {
		list, err = r.m.bucket.Members(ctx)
	}
	if err != nil { // the former list stays; a lasting failure shows in the next store
		if errors.Is(err, errNoBucket) && owns {
			r.m.each((*shard).suspect) // an owner that verifies creates the bucket again
		}
		return
	}
	r.mu.Lock()
	r.list = list
	r.mu.Unlock()
	if !owns {
		return
	}
	r.m.share()
	for _, m := range list {
		if age(list, m) < r.m.timing.gone {
			continue
		}
		if r.m.bucket.Remove(ctx, m.ID, m.Revision) != nil {
			return // the next refresh tries again
		}
		r.m.log.Info("deleted the entry of a process that is gone",
			slog.String("name", m.Name), slog.String("id", m.ID), slog.Time("seen", m.Stored))
	}
}

// store stores the entry of this process. It tells whether the process owns a shard.
func (r *roster) store(ctx context.Context) (owns bool, err error) {
	r.storing.Lock()
	defer r.storing.Unlock()
	entry := r.m.describe()
	err = r.m.bucket.Put(ctx, entry)
	r.note(err)
	return len(entry.Owns) > 0, err
}

// note keeps the outcome of a refresh. It logs when refreshes begin and cease to fail.
func (r *roster) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed, bucket := r.storeErr != nil, slog.String("bucket", r.m.bucket.Name())
	r.storeErr = err
	if err == nil {
		r.stored = time.Now()
	}
	switch {
	case err != nil && !failed:
		r.m.log.Warn("JetStream does not store the entry of this process", bucket, slog.Any("error", err))
	case err == nil && failed:
		r.m.log.Info("JetStream stores the entry of this process again", bucket)
	}
}

// Members are the entries of all processes, as last listed.
func (r *roster) Members() []wire.Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	members := make([]wire.Member, 0, len(r.list))
	for _, m := range r.list {
		members = append(members, m.Member)
	}
	return members
}

// Stored tells when JetStream last stored the entry, and why it did not store the latest.
func (r *roster) Stored() (at time.Time, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stored, r.storeErr
}

// Alive are the members that refreshed their entries lately, sorted by their ids.
func (r *roster) Alive() (members []listed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.list {
		if age(r.list, m) < r.m.timing.away {
			members = append(members, m)
		}
	}
	slices.SortFunc(members, func(a, b listed) int { return cmp.Compare(a.ID, b.ID) })
	return members
}

// age is the distance of an entry from the newest one, so that only the server's clock counts.
func age(list []listed, m listed) time.Duration {
	newest := slices.MaxFunc(list, func(a, b listed) int { return a.Stored.Compare(b.Stored) })
	return newest.Stored.Sub(m.Stored)
}
