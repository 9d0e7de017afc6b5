package store

import (
	"errors"

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
	// ErrExists: a step was committed on the condition that its documents are new, and one
	// of them exists.
	ErrExists = errors.New("the document exists")
	// ErrForeign: a key of lapse holds something that this lapse did not store: the key is
	// another program's, another version's, or another log's.
	ErrForeign = layout.ErrForeign
	// ErrServer: the Redis server cannot be used.
	ErrServer = errors.New("this Redis server cannot be used")
	// ErrDenied: the user may not run a command that lapse needs.
	ErrDenied = errors.New("the user of lapse may not run")
)

// The number of partitions of a log, which is fixed when the log is created.
const (
	// DefaultPartitions is the number if nobody asks for another one.
	DefaultPartitions = layout.DefaultPartitions
	// MaxPartitions is the most that a log may have.
	MaxPartitions = layout.MaxPartitions
)

// roundTrips limits how many round trips of a Store are under way at a time. The scripts
// of further steps share the next one.
const roundTrips = 2

// Store is the partitions of a log in Redis. It is safe for concurrent use.
type Store struct {
	client     redis.UniversalClient
	partitions []*Partition
}

// NewStore makes a store of n partitions. It does not talk to the server.
func NewStore(client redis.UniversalClient, prefix wire.Prefix, n int) *Store {
	s := &Store{client: client, partitions: make([]*Partition, n)}
	scripts := layout.NewRunner(client, roundTrips)
	shared := &clock{}
	_, cluster := client.(*redis.ClusterClient)
	for i := range s.partitions {
		p := &Partition{client: client, scripts: scripts, id: i, of: n, keys: layout.NewKeys(prefix, i, n), clock: shared}
		if cluster { // they may be on different servers
			p.clock = &clock{}
		}
		s.partitions[i] = p
	}
	return s
}

// Partition is the i-th partition.
func (s *Store) Partition(i int) *Partition { return s.partitions[i] }
