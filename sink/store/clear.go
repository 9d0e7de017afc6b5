package store

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed clear.lua
var clearSource string

var clearScript = redis.NewScript(clearSource)

// Clearing is the value of State.Rebuild in a shard whose removal has begun: it lacks
// everything.
const Clearing = math.MaxUint64

// keysAtOnce is how many keys a scan asks for, and a script gets.
const keysAtOnce = 1000

// scanTimeout limits one part of a scan, with what is done to its keys.
const scanTimeout = 10 * time.Second

// formatRebuild writes State.Rebuild as the state stores it; "" for 0.
func formatRebuild(rebuild uint64) string {
	if rebuild == 0 {
		return ""
	}
	return strconv.FormatUint(rebuild, 10)
}

// Leftovers are the names of all keys of the shard, whatever they hold. It takes as long as a
// scan of the server takes, also after the deadline of ctx.
func (p *Shard) Leftovers(ctx context.Context) ([]string, error) {
	var found []string
	err := p.eachKey(ctx, p.keys.Base(), func(_ context.Context, keys []string) error {
		found = append(found, keys...)
		return nil
	})
	slices.Sort(found)
	return slices.Compact(found), err // a scan may find a key twice
}

// Clear removes all keys of a shard that is at a version (else ErrFenced). It leaves the
// state of a shard that begins at next and lacks everything up to rebuild. Call Take
// with [Clearing] before: then Load reports a removal that did not finish as damage. Each step
// sets a version of its own: so the one after it is refused by a replica that became the master
// without it. It takes as long as a scan of the server takes, also after the deadline of ctx.
func (p *Shard) Clear(ctx context.Context, version string, next State, rebuild uint64) error {
	state, steps := p.keys.State(), 0
	err := p.eachKey(ctx, p.keys.Base(), func(ctx context.Context, keys []string) error {
		if keys = slices.DeleteFunc(keys, func(k string) bool { return k == state }); len(keys) == 0 {
			return nil
		}
		steps++
		now := fmt.Sprintf("%s-removing-%d", next.Version, steps)
		err := p.fenced(ctx, clearScript, append([]string{state}, keys...), version, "version", now)
		version = now
		return err
	})
	if err == nil {
		ctx, cancel := withoutDeadline(ctx)
		defer cancel()
		args := append([]any{version, "version", next.Version, "rebuild", formatRebuild(rebuild)}, p.begin(next)...)
		err = p.fenced(ctx, clearScript, []string{state}, args...)
	}
	if err != nil {
		return fmt.Errorf("clear shard %d: %w", p.id, err)
	}
	return nil
}

// withoutDeadline is ctx until it is cancelled: its deadline does not count.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	unhurried, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ends := func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	}
	ends() // at once, if ctx is cancelled already
	stop := context.AfterFunc(ctx, ends)
	return unhurried, func() { stop(); cancel() }
}

// eachKey calls do with the keys that begin with base, whatever they hold, some at a time.
// base is one of the shard's. In a cluster it fails while the slot of the keys is being
// moved, because then no master has all of them.
//
// The scan passes by all keys of the server, and other programs may have any number there. So the
// deadline of ctx does not end it: each part has a limit of its own (see scanTimeout).
//
// A cursor means nothing to another process of Redis: keys that it has not returned would be left out. So eachKey
// scans anew if the server was started again meanwhile, or another one has become the master.
func (p *Shard) eachKey(ctx context.Context, base string, do func(ctx context.Context, keys []string) error) error {
	ctx, cancel := withoutDeadline(ctx)
	defer cancel()
	part := func(ctx context.Context, node redis.Cmdable, cursor uint64) (next uint64, err error) {
		ctx, cancel := context.WithTimeout(ctx, scanTimeout)
		defer cancel()
		keys, next, err := node.Scan(ctx, cursor, escapeGlob(base)+"*", keysAtOnce).Result()
		if err != nil {
			return 0, err
		}
		for some := range slices.Chunk(keys, keysAtOnce) { // a server may return more than it was asked for
			if err := do(ctx, some); err != nil {
				return 0, err
			}
		}
		return next, nil
	}
	once := func(ctx context.Context, node redis.Cmdable) (parts int, err error) {
		for cursor := uint64(0); ; {
			if cursor, err = part(ctx, node, cursor); cursor == 0 || err != nil {
				return parts, err
			}
			parts++
		}
	}
	scan := func(ctx context.Context, node redis.Cmdable) error {
		for {
			before, err := processOf(ctx, node)
			if err != nil {
				return err
			}
			if parts, err := once(ctx, node); parts == 0 || err != nil {
				return err
			}
			if after, err := processOf(ctx, node); after == before || err != nil {
				return err
			}
		}
	}
	var err error
	if cluster, ok := p.client.(*redis.ClusterClient); ok {
		var node *redis.Client
		if node, err = cluster.MasterForKey(ctx, p.keys.State()); err == nil {
			err = p.settled(ctx, node)
		}
		if err == nil {
			err = scan(ctx, node)
		}
		if err == nil {
			err = p.settled(ctx, node)
		}
		if err != nil {
			cluster.ReloadState(ctx)
		}
	} else {
		err = scan(ctx, p.client)
	}
	if err != nil && !errors.Is(err, ErrFenced) {
		return fmt.Errorf("scan the keys of shard %d: %w", p.id, err)
	}
	return err
}

// processOf names the process of a server; "" if the server does not tell.
func processOf(ctx context.Context, node redis.Cmdable) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTimeout)
	defer cancel()
	server, err := info(ctx, node, "server")
	return server["run_id"], err
}

// settled returns an error unless a master has the slot of the shard and is not moving it. A
// master that moves a slot, or does not have it, answers with a redirection if it is asked for a
// key that does not exist.
func (p *Shard) settled(ctx context.Context, node *redis.Client) error {
	if err := node.Exists(ctx, p.keys.State()+"?").Err(); err != nil {
		return fmt.Errorf("the slot of the shard may be moving to another master of the cluster: %w", err)
	}
	return nil
}

// escapeGlob escapes the characters that have a meaning in a pattern of Redis.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}
