package store

import (
	"context"
	_ "embed" // the script
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
)

//go:embed commit.lua
var commitSource string

var commitScript = redis.NewScript(commitSource)

// Positions in the reply of commit.lua.
const (
	commitStatus  = iota
	commitWhich                 // the key or the collection that the status is about, from 1
	commitEmptied = commitWhich // if it committed: the first collection that is now empty, from 1; the rest follow
)

// Statuses in the reply of commit.lua.
const (
	commitDone      = 1
	commitFenced    = 0
	commitOtherType = -1
	commitLost      = -2
	commitLostIndex = -3
)

// Progress is how far the log is applied to a shard after a step.
type Progress struct {
	Version   string // the expected version
	Next      string // the version to set
	Offset    uint64
	Watermark int64
	Stamp     Stamp // see State
	Rebuild   uint64
	// Configured is that of the State after a step that applies something of the stream of
	// configurations; else 0, and that of the State stays.
	Configured uint64
	Events     string // see State; if it is empty, that of the State stays
}

// ConfigChange is a new configuration of a collection. A nil Config removes it.
type ConfigChange struct {
	Collection string
	Config     *Config
}

// Commit applies one step to a shard that is at pr.Version (else ErrFenced), and sets
// Emptied in the changes. It returns ErrDamaged if Redis does not have what the last commit
// left, and ErrFull if the server has no memory left. After each of these errors it has applied nothing.
func (p *Shard) Commit(ctx context.Context, pr Progress, configs []ConfigChange, changes []CollectionChanges) error {
	keys := make([]string, 2, 2+3*len(changes))
	keys[0], keys[1] = p.keys.State(), p.keys.Config()
	for _, c := range changes {
		keys = append(keys, p.keys.Docs(c.Collection), p.keys.Inherit(c.Collection), p.keys.Own(c.Collection))
	}
	keys = p.byKeys(keys, changes)
	r, err := p.scripts.Run(ctx, commitScript, keys, commitArgs(pr, configs, changes)...)
	if err != nil {
		if redis.HasErrorPrefix(err, "OOM") {
			err = fmt.Errorf("%w: %w", ErrFull, err)
		}
		return fmt.Errorf("commit shard %d: %w", p.id, err)
	}
	switch r.Int(commitStatus) {
	case commitDone:
		for i := commitEmptied; i < len(r); i++ {
			changes[r.Int(i)-1].Emptied = true
		}
		return nil
	case commitFenced:
		return fmt.Errorf("commit shard %d: %w", p.id, ErrFenced)
	case commitOtherType:
		return fmt.Errorf("commit shard %d: %w: key %s is of another type", p.id, ErrForeign, keys[r.Int(commitWhich)-1])
	case commitLostIndex:
		return fmt.Errorf("commit shard %d: %w: %s", p.id, ErrDamaged, lostEntries(keys[r.Int(commitWhich)-1]))
	default: // commitLost
		what := lostConfigs
		if n := r.Int(commitWhich); n > 0 {
			what = lost(changes[n-1].Collection)
		}
		return fmt.Errorf("commit shard %d: %w: %s", p.id, ErrDamaged, what)
	}
}

// The fields of the state that hold State.Configured and State.Events.
const (
	configuredField = "configured"
	eventsField     = "events"
)

// commitArgs are the arguments of commit.lua, in the order in which its header lists them.
func commitArgs(pr Progress, configs []ConfigChange, changes []CollectionChanges) []any {
	args := make([]any, 0, 17+2*len(configs)+64)
	fields := []any{"version", pr.Next, "offset", pr.Offset, "watermark", pr.Watermark, "stamp", pr.Stamp.String(), "rebuild", formatRebuild(pr.Rebuild)}
	if pr.Configured > 0 {
		fields = append(fields, configuredField, pr.Configured)
	}
	if pr.Events != "" {
		fields = append(fields, eventsField, pr.Events)
	}
	makes, made := making(changes)
	fields = append(fields, makes...)
	args = append(args, pr.Version, len(fields))
	args = append(args, fields...)
	args = append(args, len(changes))
	for _, c := range changes {
		args = append(args, layout.SizePrefix+c.Collection)
	}
	args = append(args, len(configs))
	for _, c := range configs {
		raw := ""
		if c.Config != nil {
			raw = c.Config.Encode()
		}
		args = append(args, c.Collection, raw)
	}
	for _, c := range changes {
		args = c.appendArgs(args)
	}
	return appendIndexes(args, changes, made)
}
