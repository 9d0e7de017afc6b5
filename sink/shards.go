package sink

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// shards are the shards of a prefix, as a Reader sees them.
type shards struct {
	*Reader
	keys    []layout.Keys
	scripts []*layout.Runner
	seen    []seen
}

// seen is the latest state that a Reader has seen of a shard.
type seen struct {
	mu sync.Mutex
	position
}

// position is how far a log was applied to a shard.
type position struct {
	log    string
	offset uint64
}

// before reports whether a is an earlier position of the same log.
func (a position) before(b position) bool { return a.log == b.log && a.offset < b.offset }

func (s *seen) get() position {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.position
}

// advance stores a position, unless it is before the latest one.
func (s *seen) advance(at position) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !at.before(s.position) {
		s.position = at
	}
}

func (r *Reader) newShards(n int) *shards {
	ps := &shards{Reader: r, seen: make([]seen, n)}
	for p := range n {
		ps.keys = append(ps.keys, layout.NewKeys(r.prefix, p, n))
		ps.scripts = append(ps.scripts, layout.NewReadRunner(r.client, readRoundTrips))
	}
	return ps
}

// of is the shard of a document.
func (ps *shards) of(collection, id string) int {
	return wire.ShardOf(len(ps.keys), collection, wire.EscapeID(id))
}

// name names a shard in a message: with one shard, its number would say nothing.
func (ps *shards) name(p int) string {
	if len(ps.keys) == 1 {
		return "Redis"
	}
	return "shard " + strconv.Itoa(p)
}

// all returns the shards. A Reader that was made without their number looks for it at each call
// until it finds one.
func (r *Reader) all(ctx context.Context) (*shards, error) {
	if r.refuse != nil {
		if err := r.refuse(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if ps := r.found.Load(); ps != nil {
		return ps, nil
	}
	numbers, err := r.stored(ctx)
	switch {
	case err != nil:
		return nil, err
	case len(numbers) == 0:
		return nil, fmt.Errorf("%w: Redis holds nothing under the prefix %s yet", ErrUnavailable, r.prefix)
	case len(numbers) > 1:
		return nil, fmt.Errorf("%w: Redis holds both the documents of %s and those of %s under the prefix %s: remove the "+
			"keys that are no longer in use",
			ErrForeign, plural(numbers[0]), plural(numbers[1]), r.prefix)
	}
	ps := r.newShards(numbers[0])
	if !r.found.CompareAndSwap(nil, ps) {
		return r.all(ctx)
	}
	return ps, nil
}

// missing is the error about a shard that has no state (stored is 0), or whose state is of another
// number of shards, which is stored.
func (ps *shards) missing(ctx context.Context, p, stored int) error {
	n := len(ps.keys)
	if stored == 0 {
		numbers, err := ps.stored(ctx)
		if err != nil {
			return err
		}
		if len(numbers) == 0 || slices.Contains(numbers, n) {
			return fmt.Errorf("%w: %s was not initialised, or was lost and is not yet rebuilt", ErrUnavailable, ps.name(p))
		}
		stored = numbers[0]
	}
	if ps.finds {
		ps.found.CompareAndSwap(ps, nil)
		return fmt.Errorf("%w: there were %s, and lapse was made anew with %s: try again", ErrUnavailable, plural(n),
			plural(stored))
	}
	return fmt.Errorf("%w: Redis has the documents of %s, and this reader was made for %s", ErrForeign, plural(stored),
		plural(n))
}

func plural(shards int) string {
	if shards == 1 {
		return "1 shard"
	}
	return strconv.Itoa(shards) + " shards"
}

// stored returns the numbers of shards that Redis has states of. There is one number, or none if
// nothing is stored yet. The state of shard 0 is under one of a few keys.
func (r *Reader) stored(ctx context.Context) (numbers []int, err error) {
	pipe := r.client.Pipeline()
	keys := make(map[*redis.SliceCmd]layout.Keys)
	for _, k := range layout.FirstKeys(r.prefix) {
		keys[pipe.HMGet(ctx, k.State(), "format", layout.ShardsField)] = k
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for cmd, k := range keys {
		values, err := cmd.Result()
		if err != nil {
			return nil, fmt.Errorf("find the number of shards: %w", layout.Foreign(err))
		}
		format, initialised := values[0].(string)
		if !initialised {
			continue
		}
		n, ok := layout.ParseShards(values[1])
		if ok && layout.NewKeys(r.prefix, 0, n) == k {
			numbers = append(numbers, n)
			continue
		}
		if err := wire.CheckFormat("the key "+k.State(), format); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrForeign, err)
		}
		return nil, fmt.Errorf("%w: key %s has %q for the number of shards", ErrForeign, k.State(), values[1])
	}
	slices.Sort(numbers)
	return numbers, nil
}

// each calls do for every shard, some at a time, and returns the first error.
func (ps *shards) each(do func(p int) error) error {
	const atATime = 16
	errs := make([]error, len(ps.keys))
	var wg sync.WaitGroup
	gate := make(chan struct{}, atATime)
	for p := range ps.keys {
		gate <- struct{}{}
		wg.Go(func() {
			errs[p] = do(p)
			<-gate
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// view is what a script read of a shard and a collection, at one moment. Documents from
// the same reply are judged by it.
type view struct {
	now       int64 // the later of the server's clock and the watermark
	config    layout.Config
	raw       string      // config as it is stored
	documents int64       // number of documents of the collection
	size      layout.Size // of the collection after the last commit
}

// expired reports whether a document is expired.
func (v view) expired(h layout.Header) bool { return v.config.History.Expired(h.Clock(), v.now) }

// cuts are the greatest scores of expired documents.
func (v view) cuts() ttlrules.Cuts { return v.config.History.Cuts(v.now) }

// view reads a collection's view of one shard, and no document.
func (ps *shards) view(ctx context.Context, p int, collection string) (view, error) {
	v, _, err := ps.ask(ctx, getScript, p, collection, nil, []any{collection})
	return v, err
}

// ask runs a script about one collection, whose reply begins with a head. The script takes
// the keys of the state, the configurations and the documents, then more keys. ask returns an
// error if the shard must not be read.
func (ps *shards) ask(ctx context.Context, script *redis.Script, p int, collection string, more []string,
	args []any) (view, layout.Reply, error) {
	k := ps.keys[p]
	keys := append([]string{k.State(), k.Config(), k.Docs(collection)}, more...)
	reply, head, now, err := ps.run(ctx, script, p, keys, args)
	if err != nil {
		return view{}, nil, err
	}
	v := view{now: now, raw: head.Config, documents: head.Documents, size: head.Size}
	if v.size.Documents() != strconv.FormatInt(v.documents, 10) {
		return view{}, nil, ps.lostDocuments(p, collection)
	}
	if v.config, err = ps.configs.Decode(v.raw); err == nil && v.raw == "" {
		err = ps.exists(ctx, p, collection)
	}
	return v, reply, err
}

// run runs a script whose reply begins with a head. It returns an error if the shard must
// not be read, and else the instant by which documents are judged.
func (ps *shards) run(ctx context.Context, script *redis.Script, p int, keys []string, args []any) (reply layout.Reply,
	head layout.Head, now int64, err error) {
	// Replies may arrive in another order than the server sent them. So this one is compared
	// with the state that was seen before the request, not with the latest one.
	seen := ps.seen[p].get()
	if reply, err = ps.scripts[p].Run(ctx, script, keys, args...); err != nil {
		return nil, head, 0, fmt.Errorf("read %s: %w", ps.name(p), err)
	}
	head = reply.Head(0)
	if err = ps.check(ctx, p, head, seen); err != nil {
		return nil, head, 0, err
	}
	return reply, head, max(head.Clock, head.Watermark), nil
}

// check returns an error if a shard must not be read. seen is the state that this Reader
// had seen before.
func (ps *shards) check(ctx context.Context, p int, head layout.Head, seen position) error {
	unavailable := func(why string) error {
		return fmt.Errorf("%w: %s %s", ErrUnavailable, ps.name(p), why)
	}
	if !head.Initialised {
		return ps.missing(ctx, p, 0)
	}
	if err := wire.CheckFormat(ps.name(p), head.Format); err != nil {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if head.Shards != len(ps.keys) {
		return ps.missing(ctx, p, head.Shards)
	}
	switch head.Rebuild {
	case "":
	case layout.Refused:
		return unavailable("has lost data, and the log no longer reaches back to rebuild it; see /readyz of the process " +
			"that owns the shard")
	default:
		return unavailable("is being rebuilt")
	}
	at := position{log: head.Log, offset: head.Offset}
	if at.before(seen) {
		return unavailable("went back to an older state, and is to be rebuilt")
	}
	ps.seen[p].advance(at)
	if head.Configs != head.ConfigsLeft {
		if _, err := ps.configs.Decode(head.Config); err != nil {
			return err // another program wrote it
		}
		return unavailable("has lost configurations")
	}
	return nil
}

func (ps *shards) lostDocuments(p int, collection string) error {
	return fmt.Errorf("%w: %s has lost documents of collection %s", ErrUnavailable, ps.name(p), collection)
}

func (ps *shards) lostIndex(p int, collection string) error {
	return fmt.Errorf("%w: %s has lost a part of the index of collection %s", ErrUnavailable, ps.name(p), collection)
}
