package lease

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Terms are how long things take.
type Terms struct {
	Refresh time.Duration // between two refreshes of the entry
	Away    time.Duration // since its last refresh, a member does not count as alive
	Gone    time.Duration // since its last refresh, an owner deletes its entry
	Settle  time.Duration // that a member must have been listed to be settled
	Well    time.Duration // that it must have been listed without a problem
	Doubt   time.Duration // that it must be listed after it has lost a shard, or not taken one
}

// Options are what a Roster is made with. All are needed.
type rosterOptions struct {
	Terms Terms
	ID    string // of this process
	// Entry returns the current entry of this process. It must not block.
	Entry func() wire.Member
	// NoBucket is called if this process owns a shard and the bucket does not exist.
	NoBucket func()
	Logger   *slog.Logger
}

// roster keeps the entry of this process among the members of a prefix, and the
// list of all members.
//
// It refreshes the entry every few seconds and when it is asked to, and removes it
// at the end. The roster of an owner also deletes the entries of processes that are gone.
type roster struct {
	opts   rosterOptions
	bucket *bucket
	link   *link
	asked  chan struct{} // holds a request for a refresh

	storing sync.Mutex // one entry is stored at a time, so that the latest is stored last

	mu       sync.Mutex
	list     []listed             // as last read
	current  bool                 // the latest refresh succeeded, and the list has its entry
	settles  map[string]time.Time // when each member that is alive will be settled
	stored   time.Time            // when JetStream last stored the entry
	storeErr error                // of the latest attempt
}

// newRoster makes a Roster, which does nothing before [Roster.Refresh] or [Roster.Run].
func newRoster(b *bucket, l *link, opts rosterOptions) *roster {
	return &roster{opts: opts, bucket: b, link: l, asked: make(chan struct{}, 1), settles: make(map[string]time.Time)}
}

// Run refreshes until ctx is done. Then it removes the entry of this process.
func (r *roster) Run(ctx context.Context) {
	tick := time.NewTicker(r.opts.Terms.Refresh)
	defer tick.Stop()
	for up := true; ctx.Err() == nil; {
		changed := r.link.Changed()
		select {
		case <-ctx.Done():
			continue
		case <-changed:
			was := up
			if up = r.link.Up(); was || !up {
				continue // only a connection that is back is a reason
			}
		case <-tick.C:
		case <-r.asked:
		}
		r.Refresh(ctx)
	}
	if err := r.bucket.Remove(context.WithoutCancel(ctx), r.opts.ID, 0); err != nil {
		r.opts.Logger.Debug("could not remove the entry of this process: an owner deletes it later", slog.Any("error", err))
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
// the entries of processes that are gone.
func (r *roster) Refresh(ctx context.Context) {
	// The end waits for this answer: else JetStream may store the entry after its removal.
	owns, revision, err := r.store(context.WithoutCancel(ctx))
	if ctx.Err() != nil {
		return
	}
	var list []listed
	if err == nil {
		list, err = r.bucket.Members(ctx)
	}
	if err != nil {
		r.outdated() // the former list stays; a lasting failure shows in the next Put
		if errors.Is(err, errNoBucket) && owns {
			r.opts.NoBucket()
		}
		return
	}
	r.learn(list, revision, time.Now())
	if !owns {
		return
	}
	for _, m := range gone(list, r.opts.Terms.Gone) {
		if r.bucket.Remove(ctx, m.ID, m.Revision) != nil {
			return // the next refresh tries again
		}
		r.opts.Logger.Info("deleted the entry of a process that is gone", slog.String("name", m.Name), slog.String("id", m.ID), slog.Time("seen", m.Stored))
	}
}

// Tell stores the entry of this process, because the others have to know now.
func (r *roster) Tell(ctx context.Context) { _, _, _ = r.store(ctx) }

// store stores the entry of this process. It tells whether the process owns a shard.
func (r *roster) store(ctx context.Context) (owns bool, revision uint64, err error) {
	r.storing.Lock()
	defer r.storing.Unlock()
	entry := r.opts.Entry()
	revision, err = r.bucket.Put(ctx, entry)
	r.note(err)
	return len(entry.Owns) > 0, revision, err
}

// Ready reads the entry of a member, and tells whether the member is there and has no problem.
func (r *roster) Ready(ctx context.Context, id string) bool {
	m, there, err := r.bucket.Member(ctx, id)
	return err == nil && there && m.Problem == ""
}

// note keeps the outcome of a refresh. It logs when refreshes begin and cease to fail.
func (r *roster) note(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	failed := r.storeErr != nil
	r.storeErr = err
	if err == nil {
		r.stored = time.Now()
	}
	switch {
	case err != nil && !failed:
		r.opts.Logger.Warn("JetStream does not store the entry of this process", slog.String("bucket", r.bucket.Name()), slog.Any("error", err))
	case err == nil && failed:
		r.opts.Logger.Info("JetStream stores the entry of this process again", slog.String("bucket", r.bucket.Name()))
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

// learn keeps a list that was read after the entry of this process was stored.
func (r *roster) learn(list []listed, revision uint64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = list
	r.current = slices.ContainsFunc(list, func(m listed) bool { return m.ID == r.opts.ID && m.Revision >= revision })
	settles := make(map[string]time.Time)
	for _, m := range alive(list, r.opts.Terms.Away) {
		at, there := r.settles[m.ID]
		if !there {
			at = now.Add(r.opts.Terms.Settle)
		}
		// An owner has a problem for a moment after each takeover, so Well is short.
		if well := now.Add(r.opts.Terms.Well); m.Problem != "" && at.Before(well) {
			at = well
		}
		settles[m.ID] = at
	}
	r.settles = settles
}

func (r *roster) outdated() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = false
}

// Doubt notes that a member has lost a shard, has left, or did not take a shard that was handed
// over to it. So it does not count as settled for a while.
func (r *roster) Doubt(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, there := r.settles[id]; there {
		r.settles[id] = time.Now().Add(r.opts.Terms.Doubt)
	}
}

// Alive are the members that refreshed their entries lately. The list is current if the
// latest refresh of this process succeeded and shows in it.
func (r *roster) Alive() (members []candidate, current bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, m := range alive(r.list, r.opts.Terms.Away) {
		at, there := r.settles[m.ID]
		members = append(members, candidate{ID: m.ID, Problem: m.Problem != "", Settled: there && !now.Before(at)})
	}
	return members, r.current
}

// alive are the members whose entries are younger than limit. The age of an entry is its
// distance from the newest entry, so that only the server's clock counts.
func alive(list []listed, limit time.Duration) (young []listed) {
	newest := newestOf(list)
	for _, m := range list {
		if newest.Sub(m.Stored) < limit {
			young = append(young, m)
		}
	}
	return young
}

// gone are the members whose entries are as old as limit, or older.
func gone(list []listed, limit time.Duration) (old []listed) {
	newest := newestOf(list)
	for _, m := range list {
		if newest.Sub(m.Stored) >= limit {
			old = append(old, m)
		}
	}
	return old
}

func newestOf(list []listed) (newest time.Time) {
	for _, m := range list {
		if m.Stored.After(newest) {
			newest = m.Stored
		}
	}
	return newest
}
