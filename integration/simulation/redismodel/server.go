// Package redismodel is a model of a shard in one Redis.
//
// A [Server] does what the scripts of sink/store do, in memory, at once, and
// deterministically. It is not safe for concurrent use. It differs from a real server:
// Clear is one step; Copy goes by id; Clock is the server's clock
// itself; and Commit does not take an id that equals a new score for one that exists.
package redismodel

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// Options configure a Server.
type Options struct {
	Now func() time.Time // the server's clock
}

// Server is a Redis that holds the only shard. It implements processor.Store.
type Server struct {
	Options
	contents
	full   bool
	evicts bool
	run    int // number of the server's process
}

// errFull is the answer of a Redis that is full to a command that may take memory.
var errFull = fmt.Errorf("%w: OOM command not allowed when used memory > 'maxmemory'", store.ErrFull)

// New makes an empty server.
func New(opts Options) *Server {
	s := &Server{Options: opts}
	s.Flush()
	return s
}

// Time is the server's clock.
func (s *Server) Time(context.Context) (time.Time, error) {
	return time.UnixMicro(s.Now().UnixMicro()), nil
}

// Check accepts the server, unless it may evict keys.
func (s *Server) Check(context.Context) error {
	if s.evicts {
		return fmt.Errorf("%w: it may evict keys", store.ErrServer)
	}
	return nil
}

// Ping returns nil: the server answers.
func (s *Server) Ping(context.Context) error { return nil }

// Configured returns 0: nobody asks where there is one shard.
func (s *Server) Configured(context.Context) (uint64, error) { return 0, nil }

// Reads returns 0: the server does not count, and nobody reads by its scripts.
func (s *Server) Reads(context.Context) (int64, error) { return 0, nil }

// Memory is the memory of what is stored.
func (s *Server) Memory(context.Context) (store.Memory, error) {
	return store.Memory{Used: int64(s.Bytes())}, nil
}

// Rewrite does nothing: the server keeps no files.
func (s *Server) Rewrite(context.Context) error { return nil }

// Snapshot is what a server held at a moment.
type Snapshot struct{ shard contents }

// Save remembers what the server holds. It copies no documents: the next change of a
// collection does.
func (s *Server) Save() Snapshot { return Snapshot{s.share()} }

// Restore is a failover to a replica that has only what a snapshot holds. The replica is
// another process, to which the cursors of scans mean nothing.
func (s *Server) Restore(held Snapshot) {
	s.run++
	s.contents = held.shard.share()
}

// Flush removes everything.
func (s *Server) Flush() { s.contents = begun(store.State{}) }

// Restart starts the server again with all that it holds, as another process.
func (s *Server) Restart() { s.run++ }

// Full sets whether the server is full: then it refuses what may take memory.
func (s *Server) Full(full bool) { s.full = full }

// Evicts sets whether the server may evict keys, by its configuration.
func (s *Server) Evicts(evicts bool) { s.evicts = evicts }

// contents are all keys of the shard.
type contents struct {
	state       store.State // without Configs and Collections; no Version if there is no state
	configsLeft int         // after the last commit; a field of the state
	configs     map[string]store.Config
	collections map[string]*collection
	entries     entries               // of the property indexes
	entriesLeft map[store.IndexOf]int // after the last commit; fields of the state
}

// begun is a shard that begins at s.
func begun(s store.State) contents {
	return contents{
		state: s, configs: map[string]store.Config{}, collections: map[string]*collection{},
		entries: entries{}, entriesLeft: map[store.IndexOf]int{},
	}
}

// share is a copy that shares the collections.
func (c *contents) share() contents {
	shared := *c
	shared.configs, shared.collections = maps.Clone(c.configs), maps.Clone(c.collections)
	shared.entries, shared.entriesLeft = maps.Clone(c.entries), maps.Clone(c.entriesLeft)
	for _, one := range c.collections {
		one.shared = true
	}
	return shared
}

// collection is a collection of the shard.
type collection struct {
	docs    map[string]*store.Stored // which never change
	index   []entry                  // sorted
	left    sizes                    // after the last commit; a field of the state
	foreign bool                     // the key of the documents is of another type
	shared  bool                     // with a snapshot
}

// at is a collection to read.
func (c *contents) at(name string) *collection { return cmp.Or(c.collections[name], &nothing) }

var nothing collection

// open is a collection to change.
func (c *contents) open(name string) *collection {
	one := c.collections[name]
	if one == nil {
		one = &collection{docs: map[string]*store.Stored{}}
	} else if one.shared {
		one = &collection{docs: maps.Clone(one.docs), index: slices.Clone(one.index), left: one.left,
			foreign: one.foreign}
	}
	c.collections[name] = one
	return one
}

// entry is a member of one of the two indexes, in the order in which Redis keeps each.
type entry struct {
	index int // inherit or own
	score int64
	id    string
}

const inherit, own = 0, 1 // by the default TTL; by a TTL of the document's own

func (e entry) compare(other entry) int {
	return cmp.Or(cmp.Compare(e.index, other.index), cmp.Compare(e.score, other.score), cmp.Compare(e.id, other.id))
}

// neverScore is the score of documents that never expire.
var _, neverScore = store.Header{TTL: ttlrules.Never}.Index()

// place is that of the first entry of an index which has a score or a greater one.
func (c *collection) place(index int, score int64) int {
	at, _ := slices.BinarySearchFunc(c.index, entry{index: index, score: score}, entry.compare)
	return at
}

// enter puts the entry of a document into its index, or removes it.
func (c *collection) enter(id string, h *store.Header, in bool) {
	if h == nil {
		return
	}
	e := entry{own, 0, id}
	switch belongs, score := h.Index(); belongs {
	case ttlrules.ByInherit:
		e.index, e.score = inherit, score
	default:
		e.score = score
	}
	switch at, is := slices.BinarySearchFunc(c.index, e, entry.compare); {
	case in && !is:
		c.index = slices.Insert(c.index, at, e)
	case is && !in:
		c.index = slices.Delete(c.index, at, at+1)
	}
}

// sizes are the numbers of documents, and of members of the two indexes.
type sizes [3]int

func (c *collection) sizes() sizes {
	n := c.place(own, math.MinInt64)
	return sizes{len(c.docs), n, len(c.index) - n}
}

// check returns an error unless the collection is as the last commit left it.
func (c *collection) check(name string) error {
	if c.foreign {
		return fmt.Errorf("%w: the key of collection %s", store.ErrForeign, name)
	}
	if c.left != c.sizes() {
		return fmt.Errorf("%w: collection %s is not as the last commit left it", store.ErrDamaged, name)
	}
	return nil
}
