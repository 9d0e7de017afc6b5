package store

import (
	"cmp"
	"context"
	_ "embed" // the script
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

//go:embed load.lua
var loadSource string

var loadScript = redis.NewScript(loadSource)

// Positions in the reply of load.lua.
const (
	loadStatus = iota
	loadState
	loadConfigs
)

// The status in the reply of load.lua if a key has another type, and the positions of what
// it then returns.
const (
	loadOtherType = -2

	loadKey  = 1
	loadType = 2
)

// State is the state of a shard.
type State struct {
	Version   string // of the state: the fence; "" if there is no state
	Log       string // identity of the log it was computed from
	Offset    uint64 // sequence of the last message that was applied
	Watermark int64  // log time: the greatest stamp that was applied, Unix milliseconds
	Stamp     Stamp  // of the last message that has moved Offset or Watermark, as far as it is known
	Rebuild   uint64 // the shard lacks documents from below this offset; 0 if it lacks none
	Refused   bool   // it is damaged, and the log does not reach back to rebuild it
	// Configured is the sequence, in the stream of configurations, up to which that is
	// applied; 0 if there is one shard, whose log has them.
	Configured uint64
	// Events is where the stream of events has the last output of the shard, as that package
	// writes it; "" if that is not known.
	Events  string
	Configs map[string]Config
	// Collections are those that have documents.
	Collections []string
	// Making is what of the property indexes is being made, by collection.
	Making map[string]Making
}

// Load reads the state. A shard without one has an empty Version. With
// [ErrDamaged] the state has only the version and the log.
func (p *Shard) Load(ctx context.Context) (State, error) {
	keys := []string{p.keys.State(), p.keys.Config()}
	r, err := p.scripts.Run(ctx, loadScript, keys)
	if err != nil {
		return State{}, fmt.Errorf("load shard %d: %w", p.id, err)
	}
	if r.Int(loadStatus) == loadOtherType {
		return State{}, fmt.Errorf("%w: key %s is a %s, not a hash", ErrForeign, keys[r.Int(loadKey)-1], r.Str(loadType))
	}
	fields, configs := r.List(loadState).Fields(), r.List(loadConfigs).Fields()
	if len(fields) == 0 {
		if len(configs) > 0 {
			return State{}, fmt.Errorf("%w: there is a key %s but no %s", ErrDamaged, p.keys.Config(), p.keys.State())
		}
		return State{}, nil
	}
	s, err := p.parseState(fields)
	if errors.Is(err, ErrDamaged) {
		return s, err
	}
	if err != nil {
		return State{}, fmt.Errorf("%w: key %s: %w", ErrForeign, p.keys.State(), err)
	}
	s.Configs = make(map[string]Config, len(configs))
	for name, raw := range configs {
		if s.Configs[name], err = layout.DecodeConfig(raw); err != nil {
			return State{}, fmt.Errorf("%w: key %s, field %s: %w", ErrForeign, p.keys.Config(), name, err)
		}
	}
	return s, nil
}

func (p *Shard) parseState(fields map[string]string) (s State, err error) {
	if err := wire.CheckFormat("it", fields["format"]); err != nil {
		return s, err
	}
	if n := fields[layout.ShardsField]; n != strconv.Itoa(p.shards) {
		return s, fmt.Errorf("it is of a prefix with %s shards, and this one has %d", n, p.shards)
	}
	s.Version, s.Log = fields["version"], fields["log"]
	if s.Version == "" {
		return s, errors.New("it has no version")
	}
	if s.Offset, err = parseUint("offset", fields["offset"]); err != nil {
		return s, err
	}
	watermark, err := parseUint("watermark", fields["watermark"])
	if err != nil {
		return s, err
	}
	s.Watermark = int64(watermark)
	if s.Stamp, err = ParseStamp(fields["stamp"]); err != nil {
		return s, err
	}
	if s.Configured, err = parseUint(configuredField, cmp.Or(fields[configuredField], "0")); err != nil {
		return s, err
	}
	s.Events = fields[eventsField]
	switch r := fields["rebuild"]; r {
	case "":
	case layout.Refused:
		s.Refused = true
	default:
		if s.Rebuild, err = parseUint("rebuild", r); err != nil {
			return s, err
		}
	}
	if s.Rebuild == Clearing {
		return s, fmt.Errorf("%w: its removal was begun and not ended", ErrDamaged)
	}
	for f, value := range fields {
		if name, ok := strings.CutPrefix(f, layout.SizePrefix); ok {
			s.Collections = append(s.Collections, name)
		}
		if name, ok := strings.CutPrefix(f, layout.MakingPrefix); ok {
			if s.Making == nil {
				s.Making = make(map[string]Making)
			}
			if s.Making[name], err = layout.DecodeMaking(value); err != nil {
				return s, err
			}
		}
	}
	if n := len(s.Collections); fields["sizes"] != "" && fields["sizes"] != strconv.Itoa(n) || fields["sizes"] == "" &&
		n > 0 {
		return s, fmt.Errorf("%w: its state has the sizes of %d collections, and the last commit left %q", ErrDamaged, n,
			fields["sizes"])
	}
	slices.Sort(s.Collections)
	return s, nil
}

func parseUint(name, s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("its %s is %q, not a number", name, s)
	}
	return n, nil
}

// Stamp is the instant at which the log stored one of its messages. If a log lost its end
// and has grown again since, it has another stamp at the same sequence.
type Stamp struct {
	Seq uint64 // of the message; 0 if no stamp is known
	At  int64  // Unix nanoseconds
}

// String writes a stamp as ParseStamp reads it; "" if none is known.
func (s Stamp) String() string {
	if s.Seq == 0 {
		return ""
	}
	return strconv.FormatUint(s.Seq, 10) + ":" + strconv.FormatInt(s.At, 10)
}

// ParseStamp reads what String wrote.
func ParseStamp(text string) (s Stamp, err error) {
	if text == "" {
		return s, nil
	}
	seq, at, _ := strings.Cut(text, ":")
	if s.Seq, err = parseUint("stamp", seq); err != nil {
		return s, err
	}
	n, err := parseUint("stamp", at)
	s.At = int64(n)
	return s, err
}

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
