package sink

import (
	"context"
	"crypto/rand"
	_ "embed" // the script
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

//go:embed names.lua
var namesSource string

var namesScript = layout.NewHeadScript(namesSource)

// Positions in the reply of names.lua.
const (
	_ = iota // the head
	namesNext
	namesFound
	namesServer
)

const (
	namesFor   = 30 * time.Second // how long names are kept for the pages that follow
	namesChunk = 1000             // names that one script examines
)

// names are the collections that a Reader found when it listed them last, in order. Later
// pages of the listing use them, because Redis would otherwise send all names for each page.
type names struct {
	mu     sync.Mutex
	of     *shards
	key    string    // of this search; no other search of any Reader has it
	began  int64     // when the search began, by the first shard
	found  time.Time // when it ended, by this process
	sorted []string

	near struct { // see nearest
		sync.Mutex
		of      *shards
		configs int64 // how many configurations there were
		found   time.Time
		names   []string
	}
}

// namesPosition is the end of a page of collections, in a continuation.
type namesPosition struct {
	After string `json:"a"` // the last name of the page
	// The search that the page is from. The next page may use it, or a later one.
	Key   string `json:"k"`
	Since int64  `json:"t"`
}

func decodeNamesPosition(s string) (pos namesPosition, err error) {
	if s == "" {
		return pos, nil
	}
	if err = decodeContinuation(s, &pos); err != nil || pos.Since <= 0 || wire.CheckCollection(pos.After) != nil {
		return namesPosition{}, errContinuation
	}
	return pos, nil
}

// collectionNames returns the names of all collections, from a search that began no earlier
// than that of the first page. It stores in the position which search that is.
func (ps *shards) collectionNames(ctx context.Context, pos *namesPosition) (sorted []string, err error) {
	known := &ps.names
	if pos.Since > 0 {
		known.mu.Lock()
		of, key, began, found, sorted := known.of, known.key, known.began, known.found, known.sorted
		known.mu.Unlock()
		if of == ps && (key == pos.Key || began > pos.Since) && time.Since(found) < namesFor {
			return sorted, nil
		}
	}
	by := make([][]string, len(ps.keys))
	first := int64(0)
	err = ps.each(func(p int) error {
		which := []string{"state"}
		if p == 0 {
			which = append(which, "config")
		}
		for _, hash := range which {
			some, now, err := ps.scanNames(ctx, p, hash, math.MaxInt)
			if err != nil {
				return err
			}
			by[p] = append(by[p], some...)
			if p == 0 && first == 0 {
				first = now
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	sorted = slices.Concat(by...)
	slices.Sort(sorted)
	sorted = slices.Clip(slices.Compact(sorted))
	known.mu.Lock()
	defer known.mu.Unlock()
	known.of, known.key, known.began, known.found, known.sorted = ps, rand.Text(), first, time.Now(), sorted
	pos.Key, pos.Since = known.key, first
	return sorted, nil
}

// scanNames returns the names in one hash of a shard, and when the scan began. It reads so many pages at most. It
// begins anew in another process of Redis, where a cursor means nothing: names would be left out.
func (ps *shards) scanNames(ctx context.Context, p int, hash string, pages int) (names []string, began int64,
	err error) {
	k, server := ps.keys[p], ""
	for cursor := "0"; ; pages-- {
		reply, _, now, err := ps.run(ctx, namesScript, p, []string{k.State(), k.Config()}, []any{hash, cursor, namesChunk})
		if err != nil {
			return nil, 0, err
		}
		if began == 0 {
			began = now
		}
		if cursor != "0" && reply.Str(namesServer) != server {
			names, cursor = nil, "0"
			continue
		}
		server = reply.Str(namesServer)
		names = append(names, strings.Fields(reply.Str(namesFound))...)
		if cursor = reply.Str(namesNext); cursor == "0" || pages <= 1 {
			return names, began, nil
		}
	}
}

// noCollection is an ErrNoCollection whose text is a sentence for the client.
type noCollection string

func (e noCollection) Error() string { return string(e) }
func (noCollection) Unwrap() error   { return ErrNoCollection }

// exists returns an ErrNoCollection about a collection that a shard has no configuration of, unless collections are
// open ([wire.LogRules]).
func (ps *shards) exists(ctx context.Context, p int, collection string) error {
	k := ps.keys[p]
	keys := []string{k.State(), k.Config(), k.Docs(wire.LogRules)}
	_, head, _, err := ps.run(ctx, getScript, p, keys, []any{wire.LogRules})
	if err != nil {
		return err
	}
	rule, err := ps.configs.Decode(head.Config)
	if err != nil || rule.Rules.Open {
		return err
	}
	nearest, err := ps.nearest(ctx, collection, head.Configs)
	if err != nil {
		return err
	}
	return noCollection(wire.NoCollection(collection, nearest))
}

// Bounds of the search for a name that is near.
const (
	nearFor   = 5 * time.Second // how long the names are kept, unless the number of configurations changes
	nearPages = 10              // of namesChunk fields each, that are read of the configurations
)

// nearest is the name of the configured collection that is nearest to one that is not; "" if none is near.
// It uses the names that it found last as long as there are so many configurations: a command that configures a
// collection asks for it before, and the next one must find its name.
func (ps *shards) nearest(ctx context.Context, collection string, configs int64) (string, error) {
	near := &ps.names.near
	near.Lock()
	defer near.Unlock()
	if near.of != ps || near.configs != configs || time.Since(near.found) >= nearFor {
		names, _, err := ps.scanNames(ctx, 0, "config", nearPages)
		if err != nil {
			return "", err
		}
		near.of, near.configs, near.found, near.names = ps, configs, time.Now(), names
	}
	// The collection itself was configured meanwhile, or in the first shard before this one.
	others := slices.DeleteFunc(slices.Clone(near.names), func(name string) bool { return name == collection })
	return wire.Nearest(collection, others), nil
}
