package store

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed aside.lua
var asideSource string

//go:embed remove.lua
var removeSource string

var (
	asideScript  = redis.NewScript(asideSource)
	removeScript = redis.NewScript(removeSource)
)

// SetAside is Clear, but it keeps a copy of the shard under other keys, until
// RemoveAside. If there is a copy already, SetAside keeps that one, as it is older. It goes on
// where another one was interrupted: the state goes last, so without a state there is no copy yet.
// As in Clear, each step sets a version of its own.
func (p *Shard) SetAside(ctx context.Context, version string, next State, rebuild uint64) error {
	ctx, cancel := withoutDeadline(ctx)
	defer cancel()
	state, aside := p.keys.State(), p.keys.Aside()
	there, err := p.client.Exists(ctx, aside.State()).Result()
	if err != nil {
		return fmt.Errorf("set shard %d aside: %w", p.id, err)
	}
	if there == 0 {
		steps := 0
		err = p.eachKey(ctx, p.keys.Base(), func(ctx context.Context, keys []string) error {
			names := []string{state}
			for _, k := range keys {
				if k != state {
					names = append(names, k, aside.Base()+strings.TrimPrefix(k, p.keys.Base()))
				}
			}
			if len(names) == 1 {
				return nil
			}
			steps++
			now := fmt.Sprintf("%s-aside-%d", next.Version, steps)
			err := p.fenced(ctx, asideScript, names, version, now)
			version = now
			return err
		})
		if err == nil {
			err = p.fenced(ctx, asideScript, []string{state, state, aside.State()}, version)
		}
		if err != nil {
			return fmt.Errorf("set shard %d aside: %w", p.id, err)
		}
		version = ""
	}
	return p.Clear(ctx, version, next, rebuild)
}

// RemoveAside removes the copy that SetAside made, or what there is of one, and reports whether
// there was any. It removes nothing unless the shard is whole: it may have been set aside
// again meanwhile.
func (p *Shard) RemoveAside(ctx context.Context) (removed bool, err error) {
	aside := p.keys.Aside()
	remove := func(ctx context.Context, keys []string) error {
		return p.fenced(ctx, removeScript, append([]string{p.keys.State()}, keys...))
	}
	there, err := p.client.Exists(ctx, aside.State()).Result()
	if err == nil && there > 0 { // the state goes first: without it the other keys are no copy
		err = remove(ctx, []string{aside.State()})
	}
	if err == nil {
		removed = there > 0
		err = p.eachKey(ctx, aside.Base(), func(ctx context.Context, keys []string) error {
			removed = true
			return remove(ctx, keys)
		})
	}
	if errors.Is(err, ErrFenced) {
		return false, nil
	}
	if err != nil {
		return removed, fmt.Errorf("remove the copy of shard %d: %w", p.id, err)
	}
	return removed, nil
}
