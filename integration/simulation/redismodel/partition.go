package redismodel

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/seed18712806/lapse/sink/store"
)

// Partition is one partition. It implements processor.PartitionStore with the effects and
// the errors of [store.Partition].
type Partition struct {
	server *Server
	id     int
	contents
	aside contents
}

// isAt returns an error unless the partition is at a version; "" if it must have no state.
func (p *Partition) isAt(version string) error {
	if p.state.Version != version {
		return fmt.Errorf("partition %d: %w", p.id, store.ErrFenced)
	}
	return nil
}

// State is the state, and whether there is one.
func (p *Partition) State() (store.State, bool) { return p.whole(), p.state.Version != "" }

// Load reads the state.
func (p *Partition) Load(context.Context) (store.State, error) {
	switch {
	case p.state.Version == "" && p.configs > 0:
		return store.State{}, fmt.Errorf("%w: partition %d has configurations and no state", store.ErrDamaged, p.id)
	case p.state.Version == "":
		return store.State{}, nil
	case p.state.Rebuild == store.Clearing:
		return p.state, fmt.Errorf("%w: the removal of partition %d was not ended", store.ErrDamaged, p.id)
	}
	return p.whole(), nil
}

// Leftovers are the names of all keys.
func (p *Partition) Leftovers(context.Context) (names []string, err error) {
	has := func(there bool, name string) {
		if there {
			names = append(names, fmt.Sprintf("lapse:{%d}:%s", p.id, name))
		}
	}
	has(p.state.Version != "", "state")
	has(p.configs > 0, "config")
	for i := range p.collections.items {
		c := &p.collections.items[i]
		n := c.sizes()
		has(n[0] > 0 || c.foreign, "docs:"+c.name)
		has(n[1] > 0, "inherit:"+c.name)
		has(n[2] > 0, "own:"+c.name)
	}
	slices.Sort(names)
	return names, nil
}

// Verify verifies that the partition is at a version, and is as the last commit left it.
func (p *Partition) Verify(_ context.Context, version string, collections []string) error {
	if err := p.isAt(version); err != nil {
		return err
	}
	if p.configsLeft != p.configs {
		return fmt.Errorf("%w: partition %d has lost configurations", store.ErrDamaged, p.id)
	}
	for _, name := range collections {
		if err := p.at(name).check(); err != nil {
			return err
		}
	}
	return nil
}

// Take takes the partition over.
func (p *Partition) Take(_ context.Context, s store.State, version string, rebuild uint64) error {
	return p.fence(s, version, rebuild, false)
}

// Refuse refuses the partition.
func (p *Partition) Refuse(_ context.Context, s store.State, version string) error {
	return p.fence(s, version, 0, true)
}

func (p *Partition) fence(s store.State, version string, rebuild uint64, refused bool) error {
	p.server.learned = time.Time{}
	if err := p.isAt(s.Version); err != nil {
		return err
	}
	if s.Version == "" {
		if p.server.full {
			return errFull
		}
		p.begin(s)
	}
	p.state.Version, p.state.Rebuild, p.state.Refused = version, rebuild, refused
	return nil
}

// begin makes the state of a partition that begins at s.
func (p *Partition) begin(s store.State) {
	p.state = store.State{Version: s.Version, Log: s.Log, Offset: s.Offset, Watermark: s.Watermark, Stamp: known(s.Stamp)}
}

// known is a stamp as the state keeps it.
func known(s store.Stamp) store.Stamp {
	if s.Seq == 0 {
		return store.Stamp{}
	}
	return s
}

// Clear removes everything, and begins anew.
func (p *Partition) Clear(_ context.Context, version string, next store.State, rebuild uint64) error {
	if err := p.isAt(version); err != nil {
		return err
	}
	p.contents = contents{}
	p.begin(next)
	p.state.Rebuild = rebuild
	return nil
}

// SetAside is Clear, but keeps a copy.
func (p *Partition) SetAside(ctx context.Context, version string, next store.State, rebuild uint64) error {
	if p.aside.state.Version == "" {
		if err := p.isAt(version); err != nil {
			return err
		}
		p.aside, p.contents = p.contents, contents{}
		version = ""
	}
	return p.Clear(ctx, version, next, rebuild)
}

// RemoveAside removes the copy, and reports whether there was one.
func (p *Partition) RemoveAside(context.Context) (removed bool, err error) {
	removed = p.aside.state.Version != ""
	p.aside = contents{}
	return removed, nil
}

// Clock is an instant that the server's clock has reached; math.MinInt64 if Due was not
// called for 5 seconds, or not since a takeover.
func (p *Partition) Clock() int64 {
	now := p.server.now()
	if p.server.learned.IsZero() || now.Sub(p.server.learned) > 5*time.Second {
		return math.MinInt64
	}
	return now.UnixMilli()
}
