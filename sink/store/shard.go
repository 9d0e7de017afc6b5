package store

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

// Shard is one shard in Redis: a fold of its log. Its owner loads it, takes it over, and then commits steps. Each
// step is computed from the version that the commit before it left:
//
//   - P1: a commit takes effect as a whole, offset included, or not at all.
//   - P2: a commit takes effect only if the version is the expected one. No version is used
//     twice, so an old version in Redis means an old state in Redis.
//
// It is safe for concurrent use.
type Shard struct {
	client  redis.UniversalClient
	scripts *layout.Runner
	prefix  wire.Prefix
	id      int
	shards  int
	keys    layout.Keys
	clock   *clock // of its server
}

// Header, Config, Warning, BodyChange, Pause, PropertyIndex and Making are defined where they are encoded, in
// sink/internal/layout.
type (
	// Header is stored in front of a document's body: its timestamp, etag, TTL, target and
	// traceparent.
	Header = layout.Header
	// Config is the configuration of a collection, with the history of its default TTL.
	Config = layout.Config
	// Warning is one of the seconds of the property warnBefore.
	Warning = layout.Warning
	// BodyChange is a change of the property eventBody.
	BodyChange = layout.BodyChange
	// Pause is a time in which the property paused was set.
	Pause = layout.Pause
	// PropertyIndex is one of the pointers of the property indexes.
	PropertyIndex = layout.PropertyIndex
	// Making is how far property indexes are made that were declared when the collection had documents already.
	Making = layout.Making
)

// MostPausedChanges is how many changes of defaultTtl and eventBody a paused collection takes.
const MostPausedChanges = layout.MostPausedChanges

// MaxTrace is the longest traceparent that is stored with a document, MaxTraceWithTarget that with a
// document that has a target.
const (
	MaxTrace           = layout.MaxTrace
	MaxTraceWithTarget = layout.MaxTraceWithTarget
)

// Stored is a document as it is stored. Body is "" where only the header was read.
type Stored struct {
	Header Header
	Body   string
}

// storedAt reads the document at position i of a reply; nil if there is none.
func storedAt(r layout.Reply, i int) (*Stored, error) {
	if !r.Has(i) {
		return nil, nil
	}
	h, body, err := layout.ParseDocument(r.Str(i))
	if err != nil {
		return nil, err
	}
	return &Stored{Header: h, Body: body}, nil
}

// collectionKeys are the keys of a collection, in the order in which all scripts take them.
func (p *Shard) collectionKeys(collection string) []string {
	return []string{p.keys.Docs(collection), p.keys.Inherit(collection), p.keys.Own(collection)}
}

// fenced runs a script that returns 0 if the shard is at another version.
func (p *Shard) fenced(ctx context.Context, script *redis.Script, keys []string, args ...any) error {
	n, err := script.Run(ctx, p.client, keys, args...).Int()
	if err = layout.Foreign(err); err == nil && n == 0 {
		err = ErrFenced
	}
	return err
}

// begin are the fields, with their values, of a state that begins at s.
func (p *Shard) begin(s State) []any {
	return []any{"format", wire.FormatText, layout.ShardsField, p.shards, "log", s.Log, "offset", s.Offset, "watermark",
		s.Watermark,
		"stamp", s.Stamp.String(), eventsField, s.Events}
}

// lostConfigs and lost say what Redis lost.
const lostConfigs = "configurations are lost"

func lost(collection string) string {
	return fmt.Sprintf("collection %s does not have the documents or the index that the last commit left", collection)
}

func lostEntries(key string) string {
	return fmt.Sprintf("the property index %s does not have the entries that the last commit left", key)
}

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
