package store

import (
	"context"
	_ "embed" // the script
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed fence.lua
var fenceSource string

var fenceScript = redis.NewScript(fenceSource)

// Take makes version the version of a shard that is at s (else ErrFenced), so that a
// commit computed from s by anybody else fails. It stores up to which offset the shard
// lacks documents. A shard without a state gets one, at the beginning of the log.
func (p *Shard) Take(ctx context.Context, s State, version string, rebuild uint64) error {
	return p.fence(ctx, s, version, formatRebuild(rebuild))
}

// Refuse is Take for a shard that is damaged and cannot be rebuilt. It is kept as it is,
// and readers get sink.ErrUnavailable.
func (p *Shard) Refuse(ctx context.Context, s State, version string) error {
	return p.fence(ctx, s, version, layout.Refused)
}

func (p *Shard) fence(ctx context.Context, s State, version, rebuild string) error {
	args := []any{s.Version, "version", version, "rebuild", rebuild}
	if s.Version == "" {
		args = append(args, p.begin(s)...)
	} else if s.Log != "" { // a promotion has given the log another identity
		args = append(args, "log", s.Log)
	}
	p.clock.forget()
	if err := p.fenced(ctx, fenceScript, []string{p.keys.State()}, args...); err != nil {
		return fmt.Errorf("take over shard %d: %w", p.id, err)
	}
	return nil
}
