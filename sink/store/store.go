package store

import (
	"context"
	"errors"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

// Errors of the store, to be told apart with errors.Is.
var (
	// ErrFenced: the partition is not at the version that a step was computed from. The
	// caller has to load the partition again before it does anything else with it.
	ErrFenced = errors.New("the partition has moved on")
	// ErrDamaged: Redis does not have what was committed. Keys or fields are missing, or
	// somebody else changed them.
	ErrDamaged = errors.New("the partition is damaged")
	// ErrForeign: a key of lapse holds something that this lapse did not store: the key is
	// another program's, another version's, or another log's.
	ErrForeign = layout.ErrForeign
	// ErrServer: the Redis server cannot be used.
	ErrServer = errors.New("this Redis server cannot be used")
	// ErrDenied: the user may not run a command that lapse needs.
	ErrDenied = errors.New("the user of lapse may not run")
)

// MaxPartitions is the most partitions that all logs of a prefix may have.
const MaxPartitions = layout.MaxPartitions

// DefaultPartitions is how many partitions each log has if nobody asks for another number. It
// is fixed when the logs are created.
func DefaultPartitions(shards int) int { return layout.DefaultPartitions(shards) }

// roundTrips limits how many round trips of a Store are under way at a time. The scripts
// of further steps share the next one.
const roundTrips = 2

// Store is the partitions of a shard in Redis. It is safe for concurrent use.
type Store struct {
	client     redis.UniversalClient
	prefix     wire.Prefix
	shape      wire.Shape
	partitions []*Partition
}

// NewStore makes a store of n partitions, of a prefix with one shard. It does not talk to the
// server.
func NewStore(client redis.UniversalClient, prefix wire.Prefix, n int) *Store {
	return NewShard(client, prefix, wire.Shape{Shards: 1, Partitions: n}, 0)
}

// NewShard makes a store of the partitions of a shard. It does not talk to the server.
func NewShard(client redis.UniversalClient, prefix wire.Prefix, shape wire.Shape, shard int) *Store {
	s := &Store{client: client, prefix: prefix, shape: shape, partitions: make([]*Partition, shape.Partitions)}
	scripts := layout.NewRunner(client, roundTrips)
	shared := &clock{}
	_, cluster := client.(*redis.ClusterClient)
	for i := range s.partitions {
		number := shape.First(shard) + i
		p := &Partition{client: client, scripts: scripts, id: number, shape: shape, keys: layout.NewKeys(prefix, number, shape.All()), clock: shared}
		if cluster { // they may be on different servers
			p.clock = &clock{}
		}
		s.partitions[i] = p
	}
	return s
}

// Partition is the i-th partition of the shard.
func (s *Store) Partition(i int) *Partition { return s.partitions[i] }

// Configured is the sequence, in the stream of configurations, up to which the partitions of
// all shards have applied it; 0 if one has applied none.
func (s *Store) Configured(ctx context.Context) (uint64, error) {
	pipe := s.client.Pipeline()
	all := make([]*redis.StringCmd, s.shape.All())
	for i := range all {
		all[i] = pipe.HGet(ctx, layout.NewKeys(s.prefix, i, len(all)).State(), configuredField)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	least := uint64(math.MaxUint64)
	for _, cmd := range all {
		n, err := cmd.Uint64()
		if err != nil && !errors.Is(err, redis.Nil) {
			return 0, layout.Foreign(err)
		}
		least = min(least, n)
	}
	return least, nil
}
