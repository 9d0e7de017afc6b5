package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/wire"
)

// Errors of the store, to be told apart with errors.Is.
var (
	// ErrFenced: the partition is not at the version that a step was computed
	// from. Whoever gets it knows nothing about the partition any more, and has to
	// load it again.
	ErrFenced = errors.New("the partition has moved on")
	// ErrDamaged: what is stored is not what was committed: keys or fields are
	// missing or were changed by somebody else.
	ErrDamaged = errors.New("the partition is damaged")
	// ErrExists: a document is there that was said not to be.
	ErrExists = errors.New("the document exists")
	// ErrForeign: what is stored under lapse's keys is not lapse's, or of another
	// version of lapse, or of another log.
	ErrForeign = errors.New("not stored by this lapse")
	// ErrServer: the Redis server cannot be used.
	ErrServer = errors.New("this Redis server cannot be used")
)

// Store is where the partitions are kept. It is safe for concurrent use.
type Store struct {
	client     redis.UniversalClient
	partitions []*Partition
}

// NewStore makes a store of n partitions. It does not talk to the server.
func NewStore(client redis.UniversalClient, prefix wire.Prefix, n int) *Store {
	s := &Store{client: client, partitions: make([]*Partition, n)}
	scripts := &combiner{client: client, most: stepFlights}
	one := &clock{}
	_, many := client.(*redis.ClusterClient)
	for i := range s.partitions {
		if many {
			one = &clock{}
		}
		s.partitions[i] = &Partition{client: client, scripts: scripts, id: i, of: n, keys: newKeyspace(prefix, i, n), clock: one}
	}
	return s
}

// Partition is the i-th partition.
func (s *Store) Partition(i int) *Partition { return s.partitions[i] }

// Check refuses (with ErrServer) a server that is older than Redis 7.0 or that may
// evict. One that does not tell its version, as miniredis, is taken as it is.
func (s *Store) Check(ctx context.Context) error {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return checkServer(ctx, node)
		})
	}
	return checkServer(ctx, s.client)
}

func checkServer(ctx context.Context, client redis.Cmdable) error {
	server, err := info(ctx, client, "server")
	if err != nil {
		return err
	}
	if v := server["redis_version"]; v != "" {
		if major, _ := strconv.Atoi(strings.SplitN(v, ".", 2)[0]); major < 7 {
			return fmt.Errorf("%w: it is Redis %s, and 7.0 or newer is needed", ErrServer, v)
		}
	}
	memory, err := info(ctx, client, "memory")
	if err != nil {
		return err
	}
	if policy := memory["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		return fmt.Errorf("%w: its maxmemory-policy is %s, so it may throw documents away: set it to noeviction", ErrServer, policy)
	}
	return nil
}

// info reads a section of INFO; it is empty where the server does not have it.
func info(ctx context.Context, client redis.Cmdable, section string) (map[string]string, error) {
	text, err := client.Info(ctx, section).Result()
	if err != nil {
		var answer redis.Error
		if errors.As(err, &answer) && strings.Contains(answer.Error(), "is not supported") {
			return nil, nil
		}
		return nil, fmt.Errorf("ask Redis for its %s: %w", section, err)
	}
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[k] = v
		}
	}
	return m, nil
}

// Reads is how many scripts that write nothing the servers have run since they began:
// those by which Readers read are all of that kind, and a partition's own are not.
// It is 0 where a server does not count, as miniredis.
func (s *Store) Reads(ctx context.Context) (uint64, error) {
	if cluster, ok := s.client.(*redis.ClusterClient); ok {
		var n atomic.Uint64
		err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			one, err := readsOf(ctx, node)
			n.Add(one)
			return err
		})
		return n.Load(), err
	}
	return readsOf(ctx, s.client)
}

func readsOf(ctx context.Context, client redis.Cmdable) (uint64, error) {
	stats, err := info(ctx, client, "commandstats")
	if err != nil {
		return 0, err
	}
	calls, _, _ := strings.Cut(strings.TrimPrefix(stats["cmdstat_evalsha_ro"], "calls="), ",")
	if calls == "" {
		return 0, nil
	}
	return parseUint("number of calls", calls)
}
