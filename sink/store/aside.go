package store

import (
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed aside.lua
var asideSource string

var asideScript = redis.NewScript(asideSource)

// SetAside is Clear, but it keeps a copy of the partition under other keys, until
// RemoveAside. If there is a copy already, SetAside keeps that one, as it is older.
func (p *Partition) SetAside(ctx context.Context, version string, next State, rebuild uint64) error {
	state, aside := p.keys.State(), p.keys.Aside()
	there, err := p.client.Exists(ctx, aside.State()).Result()
	if err != nil {
		return fmt.Errorf("set partition %d aside: %w", p.id, err)
	}
	if there == 0 {
		err = p.eachKey(ctx, p.keys.Base(), func(keys []string) error {
			names := []string{state}
			for _, k := range keys {
				if k != state {
					names = append(names, k, aside.Base()+strings.TrimPrefix(k, p.keys.Base()))
				}
			}
			return p.fenced(ctx, asideScript, names, version)
		})
		if err == nil {
			err = p.fenced(ctx, asideScript, []string{state, state, aside.State()}, version)
		}
		if err != nil {
			return fmt.Errorf("set partition %d aside: %w", p.id, err)
		}
		version = ""
	}
	return p.Clear(ctx, version, next, rebuild)
}

// RemoveAside removes the copy that SetAside made, and reports whether there was one. It
// keeps a copy that another owner makes meanwhile, because that has another version.
func (p *Partition) RemoveAside(ctx context.Context) (removed bool, err error) {
	state := p.keys.Aside().State()
	version, err := p.client.HGet(ctx, state, "version").Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err == nil {
		err = p.eachKey(ctx, p.keys.Aside().Base(), func(keys []string) error {
			keys = slices.DeleteFunc(keys, func(k string) bool { return k == state })
			return p.fenced(ctx, clearScript, append([]string{state}, keys...), version)
		})
	}
	if err == nil {
		err = p.fenced(ctx, clearScript, []string{state, state}, version)
		removed = err == nil
	}
	if err != nil {
		err = fmt.Errorf("remove the copy of partition %d: %w", p.id, err)
	}
	return removed, err
}
