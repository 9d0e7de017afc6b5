package simulation

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/seed18712806/lapse/integration/simulation/redismodel"
	"github.com/seed18712806/lapse/processor"
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

// The methods of processor.Store: what a process asks of the whole server.

func (p *process) Partition(i int) processor.PartitionStore {
	return remote{p, i, p.site.redis.Partition(i), fmt.Sprintf("partition %03d", i)}
}

func (p *process) Time(ctx context.Context) (time.Time, error) {
	return ask(ctx, p, "time", func() (time.Time, error) { return p.site.redis.Time(ctx) })
}

func (p *process) Check(ctx context.Context) error {
	return tell(ctx, p, "check", func() error { return p.site.redis.Check(ctx) })
}

func (p *process) Ping(ctx context.Context) error {
	return tell(ctx, p, "ping", func() error { return p.site.redis.Ping(ctx) })
}

func (p *process) Reads(ctx context.Context) (int64, error) {
	return ask(ctx, p, "reads", func() (int64, error) { return p.site.redis.Reads(ctx) })
}

func (p *process) Memory(ctx context.Context) (store.Memory, error) {
	return ask(ctx, p, "memory", func() (store.Memory, error) { return p.site.redis.Memory(ctx) })
}

// Rewrite implements [processor.Store]. This Redis keeps no files.
func (p *process) Rewrite(context.Context) error { return nil }

// remote is a partition as a process sees it: over the network.
type remote struct {
	process   *process
	index     int
	partition *redismodel.Partition
	lane      string
}

// Clock is an instant that Redis's clock has reached.
func (r remote) Clock() int64 { return r.process.clock.Shows() }

func (r remote) Load(ctx context.Context) (store.State, error) {
	return ask(ctx, r.process, r.lane+" load", func() (store.State, error) { return r.partition.Load(ctx) })
}

func (r remote) Leftovers(ctx context.Context) ([]string, error) {
	return ask(ctx, r.process, r.lane+" leftovers", func() ([]string, error) { return r.partition.Leftovers(ctx) })
}

func (r remote) Verify(ctx context.Context, version string, collections []string) error {
	return tell(ctx, r.process, r.lane+" verify", func() error { return r.partition.Verify(ctx, version, collections) })
}

func (r remote) Take(ctx context.Context, s store.State, version string, rebuild uint64) error {
	r.process.clock.Forget()
	return tell(ctx, r.process, r.lane+" take", func() error { return r.partition.Take(ctx, s, version, rebuild) })
}

func (r remote) Refuse(ctx context.Context, s store.State, version string) error {
	r.process.clock.Forget()
	return tell(ctx, r.process, r.lane+" refuse", func() error { return r.partition.Refuse(ctx, s, version) })
}

func (r remote) Clear(ctx context.Context, version string, next store.State, rebuild uint64) error {
	return tell(ctx, r.process, r.lane+" clear", func() error {
		return r.process.site.observer.Clear(r.index, next, func() error { return r.partition.Clear(ctx, version, next, rebuild) })
	})
}

func (r remote) Read(ctx context.Context, version string, wants []store.Want) ([][]*store.Stored, error) {
	return ask(ctx, r.process, r.lane+" read", func() ([][]*store.Stored, error) { return r.partition.Read(ctx, version, wants) })
}

func (r remote) Due(ctx context.Context, version string, cuts []store.Cut, limit, bytes int, whole bool) ([]store.Due, error) {
	return find(ctx, r, "due", func() ([]store.Due, error) { return r.partition.Due(ctx, version, cuts, limit, bytes, whole) })
}

func (r remote) Between(ctx context.Context, version, collection string, slices []store.Slice, limit, bytes int) ([]store.Found, error) {
	return find(ctx, r, "between", func() ([]store.Found, error) {
		return r.partition.Between(ctx, version, collection, slices, limit, bytes)
	})
}

// find asks for documents in an index, and learns what Redis's clock shows.
func find[T any](ctx context.Context, r remote, what string, do func() ([]T, error)) ([]T, error) {
	var shown time.Time
	found, err := ask(ctx, r.process, r.lane+" "+what, func() ([]T, error) {
		shown, _ = r.process.site.redis.Time(ctx)
		return do()
	})
	if err == nil {
		r.process.clock.Learn(shown)
	}
	return found, err
}

// scanned is what Scan returns.
type scanned struct {
	found        []store.Change
	next, server string
}

func (r remote) Scan(ctx context.Context, version, collection, cursor string, count int) ([]store.Change, string, string, error) {
	s, err := ask(ctx, r.process, r.lane+" scan", func() (s scanned, err error) {
		s.found, s.next, s.server, err = r.partition.Scan(ctx, version, collection, cursor, count)
		return s, err
	})
	return s.found, s.next, s.server, err
}

func (r remote) Copy(ctx context.Context, version string, collections []string, at store.CopyPlace, documents, bytes int) (store.Copied, error) {
	return ask(ctx, r.process, r.lane+" copy", func() (store.Copied, error) {
		return r.partition.Copy(ctx, version, collections, at, documents, bytes)
	})
}

func (r remote) Fill(ctx context.Context, version, next string, changes []store.CollectionFill) error {
	return tell(ctx, r.process, r.lane+" fill", func() error { return r.partition.Fill(ctx, version, next, changes) })
}

// counted is what Count returns.
type counted struct {
	full      []string
	documents uint64
}

func (r remote) Count(ctx context.Context, version string, collections []string) ([]string, uint64, error) {
	c, err := ask(ctx, r.process, r.lane+" count", func() (c counted, err error) {
		c.full, c.documents, err = r.partition.Count(ctx, version, collections)
		return c, err
	})
	return c.full, c.documents, err
}

// Commit gives the model copies: the owner goes on with its changes when it waits no more.
func (r remote) Commit(ctx context.Context, pr store.Progress, configs []store.ConfigChange, changes []store.CollectionChanges) error {
	there := append([]store.CollectionChanges(nil), changes...)
	err := tell(ctx, r.process, r.lane+" commit", func() error {
		o := r.process.site.observer
		r.process.world.trace.Commit(pr, configs, changes)
		o.Committing(pr)
		err := r.partition.Commit(ctx, pr, configs, there)
		if err == nil {
			o.Committed(r.index)
		}
		return err
	})
	if err == nil {
		copy(changes, there)
	}
	return err
}
