package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/sink/store"
)

var (
	errKilled = errors.New("the process was killed")
	errAway   = errors.New("connection refused")
)

// call is a request of a process to Redis or to the objects.
type call struct {
	process *process
	lane    string // distinguishes the calls that a process makes at the same instant
	silent  bool   // it goes to the objects: nobody tells the process that a message was lost
	do      func()
	done    chan struct{}
	err     error // of the network
}

// ask makes a call of a process to Redis: do happens when the world lets it arrive there. The
// call may still take effect after ask has returned an error.
func ask[T any](ctx context.Context, p *process, lane string, do func() (T, error)) (T, error) {
	return submit(ctx, &call{process: p, lane: "redis " + lane, done: make(chan struct{})}, do)
}

func submit[T any](ctx context.Context, c *call, do func() (T, error)) (T, error) {
	var value, none T
	var err error
	p := c.process
	c.do = func() { value, err = do() }
	p.world.submit(c)
	select {
	case <-c.done:
		if c.err != nil {
			return none, c.err
		}
		return value, err
	case <-p.dead:
		return none, errKilled
	case <-ctx.Done():
		return none, fmt.Errorf("no answer to %s: %w", c.lane, context.Cause(ctx))
	}
}

func tell(ctx context.Context, p *process, lane string, do func() error) error {
	_, err := ask(ctx, p, lane, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// remote is Redis as a process sees it: over the network. It implements [processor.Store].
type remote struct {
	process *process
	redis   *redismodel.Server
}

// Configured returns 0: there is one shard, so nobody asks.
func (r remote) Configured(context.Context) (uint64, error) { return 0, nil }

// Rewrite does nothing: this Redis keeps no files.
func (r remote) Rewrite(context.Context) error { return nil }

func (r remote) Time(ctx context.Context) (time.Time, error) {
	return ask(ctx, r.process, "time", func() (time.Time, error) { return r.redis.Time(ctx) })
}

func (r remote) Check(ctx context.Context) error {
	return tell(ctx, r.process, "check", func() error { return r.redis.Check(ctx) })
}

func (r remote) Ping(ctx context.Context) error {
	return tell(ctx, r.process, "ping", func() error { return r.redis.Ping(ctx) })
}

func (r remote) Reads(ctx context.Context) (int64, error) {
	return ask(ctx, r.process, "reads", func() (int64, error) { return r.redis.Reads(ctx) })
}

func (r remote) Memory(ctx context.Context) (store.Memory, error) {
	return ask(ctx, r.process, "memory", func() (store.Memory, error) { return r.redis.Memory(ctx) })
}

// Clock is an instant that Redis's clock has reached.
func (r remote) Clock() int64 { return r.process.clock.Shows() }

func (r remote) Load(ctx context.Context) (store.State, error) {
	return ask(ctx, r.process, "load", func() (store.State, error) { return r.redis.Load(ctx) })
}

func (r remote) Leftovers(ctx context.Context) ([]string, error) {
	return ask(ctx, r.process, "leftovers", func() ([]string, error) { return r.redis.Leftovers(ctx) })
}

func (r remote) Verify(ctx context.Context, version string, collections []string, indexes ...store.IndexOf) error {
	return tell(ctx, r.process, "verify", func() error { return r.redis.Verify(ctx, version, collections, indexes...) })
}

func (r remote) Take(ctx context.Context, s store.State, version string, rebuild uint64) error {
	r.process.clock.Forget()
	return tell(ctx, r.process, "take", func() error { return r.redis.Take(ctx, s, version, rebuild) })
}

func (r remote) Refuse(ctx context.Context, s store.State, version string) error {
	r.process.clock.Forget()
	return tell(ctx, r.process, "refuse", func() error { return r.redis.Refuse(ctx, s, version) })
}

func (r remote) Clear(ctx context.Context, version string, next store.State, rebuild uint64) error {
	return tell(ctx, r.process, "clear", func() error {
		return r.process.site.observer.Clear(next, func() error { return r.redis.Clear(ctx, version, next, rebuild) })
	})
}

func (r remote) ReadDocuments(ctx context.Context, version string, wants []store.Want) ([][]*store.Stored, error) {
	return ask(ctx, r.process, "read", func() ([][]*store.Stored,
		error) {
		return r.redis.ReadDocuments(ctx, version, wants)
	})
}

func (r remote) Due(ctx context.Context, version string, cuts []store.Cut, limit, bytes int, whole bool) ([]store.Due,
	error) {
	return find(ctx, r, "due", func() ([]store.Due, error) {
		return r.redis.Due(ctx, version, cuts, limit, bytes,
			whole)
	})
}

func (r remote) Between(ctx context.Context, version, collection string, slices []store.Slice, limit,
	bytes int) ([]store.Found, error) {
	if most := r.process.world.plan.Found; most > 0 {
		limit = min(limit, most)
	}
	return find(ctx, r, "between", func() ([]store.Found, error) {
		return r.redis.Between(ctx, version, collection, slices, limit, bytes)
	})
}

// find asks for documents in an index, and learns what Redis's clock shows.
func find[T any](ctx context.Context, r remote, what string, do func() ([]T, error)) ([]T, error) {
	var shown time.Time
	found, err := ask(ctx, r.process, what, func() ([]T, error) {
		shown, _ = r.redis.Time(ctx)
		return do()
	})
	if err == nil {
		r.process.clock.Learn(shown)
	}
	return found, err
}

func (r remote) Copy(ctx context.Context, version string, collections []string, at store.CopyPlace, documents,
	bytes int) (store.Copied, error) {
	return ask(ctx, r.process, "copy", func() (store.Copied, error) {
		return r.redis.Copy(ctx, version, collections, at, documents, bytes)
	})
}

func (r remote) Fill(ctx context.Context, version, next string, changes []store.CollectionFill) error {
	return tell(ctx, r.process, "fill", func() error {
		r.process.site.observer.Met("snapshot loaded")
		return r.redis.Fill(ctx, version, next, changes)
	})
}

// counted is what Count returns.
type counted struct {
	full      []string
	documents uint64
}

func (r remote) Count(ctx context.Context, version string, collections []string) ([]string, uint64, error) {
	c, err := ask(ctx, r.process, "count", func() (c counted, err error) {
		c.full, c.documents, err = r.redis.Count(ctx, version, collections)
		return c, err
	})
	return c.full, c.documents, err
}

// Commit gives the model copies: the owner goes on with its changes when it waits no more.
func (r remote) Commit(ctx context.Context, pr store.Progress, configs []store.ConfigChange,
	changes []store.CollectionChanges) error {
	there := append([]store.CollectionChanges(nil), changes...)
	err := tell(ctx, r.process, "commit", func() error {
		o := r.process.site.observer
		r.process.world.trace.Commit(pr, configs, changes)
		o.Committing(pr)
		err := r.redis.Commit(ctx, pr, configs, there)
		if err == nil {
			o.Committed()
		}
		return err
	})
	if err == nil {
		copy(changes, there)
	}
	return err
}
