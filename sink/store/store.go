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
	// ErrFenced: the shard is not at the version that a step was computed from. The
	// caller has to load the shard again before it does anything else with it.
	ErrFenced = errors.New("the shard has moved on")
	// ErrDamaged: Redis does not have what was committed. Keys or fields are missing, or
	// somebody else changed them.
	ErrDamaged = errors.New("the shard is damaged")
	// ErrForeign: a key of lapse holds something that this lapse did not store: the key is
	// another program's, another version's, or another log's.
	ErrForeign = layout.ErrForeign
	// ErrServer: the Redis server cannot be used.
	ErrServer = errors.New("this Redis server cannot be used")
	// ErrFull: the server has no memory left for what a commit adds.
	ErrFull = errors.New("the memory of Redis is full")
	// ErrDenied: the user may not run a command that lapse needs.
	ErrDenied = errors.New("the user of lapse may not run")
)

// roundTrips limits how many round trips of a Shard are under way at a time. Further scripts share the next one.
const roundTrips = 2

// New makes the store of one of so many shards. It does not talk to the server.
func New(client redis.UniversalClient, prefix wire.Prefix, shard, shards int) *Shard {
	return &Shard{
		client: client, scripts: layout.NewRunner(client, roundTrips), prefix: prefix, id: shard, shards: shards,
		keys: layout.NewKeys(prefix, shard, shards), clock: &clock{},
	}
}

// Configured is the sequence, in the stream of configurations, up to which all shards have applied it; 0 if one
// has applied none.
func (p *Shard) Configured(ctx context.Context) (uint64, error) {
	pipe := p.client.Pipeline()
	all := make([]*redis.StringCmd, p.shards)
	for i := range all {
		all[i] = pipe.HGet(ctx, layout.NewKeys(p.prefix, i, p.shards).State(), configuredField)
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
