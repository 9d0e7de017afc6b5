package sink

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

// partitions are the partitions of a log, as a Reader sees them.
type partitions struct {
	*Reader
	shape wire.Shape
	keys  []layout.Keys
	seen  []seen
}

// seen is the latest state that a Reader has seen of a partition.
type seen struct {
	mu sync.Mutex
	position
}

// position is how far a log was applied to a partition.
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

func (r *Reader) newPartitions(shape wire.Shape) *partitions {
	n := shape.All()
	ps := &partitions{Reader: r, shape: shape, seen: make([]seen, n)}
	for p := range n {
		ps.keys = append(ps.keys, layout.NewKeys(r.prefix, p, n))
	}
	return ps
}

// all returns the partitions of the log. A Reader that was made without their number looks
// for it at each call until it finds one.
func (r *Reader) all(ctx context.Context) (*partitions, error) {
	if r.refuse != nil {
		if err := r.refuse(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if ps := r.found.Load(); ps != nil {
		return ps, nil
	}
	shape, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	ps := r.newPartitions(shape)
	if !r.found.CompareAndSwap(nil, ps) {
		return r.all(ctx)
	}
	return ps, nil
}

// Shape is the shape of the log whose documents the Reader reads.
func (r *Reader) Shape(ctx context.Context) (wire.Shape, error) { return r.find(ctx) }

// find finds the shape of the log.
func (r *Reader) find(ctx context.Context) (wire.Shape, error) {
	if r.shape != nil {
		shape, err := r.shape(ctx)
		switch {
		case err != nil:
			return shape, fmt.Errorf("%w: find the number of partitions: %w", ErrUnavailable, err)
		case shape.Partitions == 0:
			return shape, fmt.Errorf("%w: there is no log with the prefix %s yet", ErrUnavailable, r.prefix)
		}
		return shape, nil
	}
	shapes, err := r.stored(ctx)
	switch {
	case err != nil:
		return wire.Shape{}, err
	case len(shapes) == 0:
		return wire.Shape{}, fmt.Errorf("%w: Redis holds nothing under the prefix %s yet", ErrUnavailable, r.prefix)
	case len(shapes) > 1:
		return wire.Shape{}, fmt.Errorf("%w: Redis holds logs of %s and of %s under the prefix %s: remove the keys of the one that is no longer in use",
			ErrForeign, shapes[0], shapes[1], r.prefix)
	}
	return shapes[0], nil
}

// missing is the error about a partition that has no state (stored is ""), or whose state
// is of a log with another number of partitions, which is stored.
func (ps *partitions) missing(ctx context.Context, p int, stored string) error {
	if stored == "" {
		shapes, err := ps.stored(ctx)
		if err != nil {
			return err
		}
		if len(shapes) == 0 || slices.Contains(shapes, ps.shape) {
			return fmt.Errorf("%w: partition %d was not initialised, or was lost and is not yet rebuilt", ErrUnavailable, p)
		}
		stored = shapes[0].String()
	}
	if ps.finds {
		ps.found.CompareAndSwap(ps, nil)
		return fmt.Errorf("%w: the log had %s, and was made anew with %s: try again", ErrUnavailable, ps.shape, stored)
	}
	return fmt.Errorf("%w: the log has %s, and this reader was made for %s", ErrForeign, stored, ps.shape)
}

// stored returns the shapes of the logs that Redis holds. There is one, or none if nothing is
// stored yet. The state of partition 0 is under one of a few keys.
func (r *Reader) stored(ctx context.Context) (shapes []wire.Shape, err error) {
	pipe := r.client.Pipeline()
	keys := make(map[*redis.SliceCmd]layout.Keys)
	for _, k := range layout.FirstKeys(r.prefix) {
		keys[pipe.HMGet(ctx, k.State(), "partitions", layout.ShardsField)] = k
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for cmd, k := range keys {
		values, err := cmd.Result()
		if err != nil {
			return nil, fmt.Errorf("find the number of partitions: %w", layout.Foreign(err))
		}
		if values[0] == nil {
			continue
		}
		shape, ok := layout.ParseShape(values)
		if !ok || layout.NewKeys(r.prefix, 0, shape.All()) != k {
			return nil, fmt.Errorf("%w: key %s has %q for the numbers of partitions and shards", ErrForeign, k.State(), values)
		}
		shapes = append(shapes, shape)
	}
	slices.SortFunc(shapes, func(a, b wire.Shape) int { return cmp.Compare(a.All(), b.All()) })
	return shapes, nil
}

// each calls do for every partition, some at a time, and returns the first error.
func (ps *partitions) each(do func(p int) error) error {
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
