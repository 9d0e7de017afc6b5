package sink

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Partition is one partition in the store: a fold of its part of the log. Whoever
// owns it loads it, takes it over, and then commits steps, each computed from the
// version that the one before left:
//
//   - P1: a commit takes effect as a whole, offset included, or not at all.
//   - P2: a commit takes effect only if the version is the one expected. Versions
//     are never used twice, so a version that is back is a state that is back.
type Partition struct {
	client  redis.UniversalClient
	scripts *combiner
	id, of  int
	keys    keyspace
	clock   *clock // of its server
}

// State is where a partition stands.
type State struct {
	Version   string // of the state: the fence; "" if there is no state
	Log       string // identity of the log it was computed from
	Offset    uint64 // sequence of the last message that was applied
	Watermark int64  // log time: the greatest stamp that was applied, Unix milliseconds
	Rebuild   uint64 // the offset below which the partition lacks what it had; 0 if it lacks nothing
	Configs   map[string]Config
	// Collections are those that have documents.
	Collections []string
}

const sizePrefix = "size:"

// Load reads the state. A partition without one has an empty Version.
func (p *Partition) Load(ctx context.Context) (State, error) {
	r, err := run(ctx, p.scripts, loadScript, []string{p.keys.state(), p.keys.config()})
	if err != nil {
		return State{}, fmt.Errorf("load partition %d: %w", p.id, err)
	}
	if r.int(0) == -2 {
		key := []string{p.keys.state(), p.keys.config()}[r.int(1)-1]
		return State{}, fmt.Errorf("%w: key %s is a %s, not a hash", ErrForeign, key, r.str(2))
	}
	fields, configs := r.list(1).fields(), r.list(2).fields()
	if len(fields) == 0 {
		if len(configs) > 0 {
			return State{}, fmt.Errorf("%w: there is a key %s but no %s", ErrDamaged, p.keys.config(), p.keys.state())
		}
		return State{}, nil
	}
	s, err := p.parseState(fields)
	if errors.Is(err, ErrDamaged) {
		return State{}, err
	}
	if err != nil {
		return State{}, fmt.Errorf("%w: key %s: %w", ErrForeign, p.keys.state(), err)
	}
	s.Configs = make(map[string]Config, len(configs))
	for name, raw := range configs {
		if s.Configs[name], err = decodeConfig(raw); err != nil {
			return State{}, fmt.Errorf("%w: key %s, field %s: %w", ErrForeign, p.keys.config(), name, err)
		}
	}
	return s, nil
}

func (p *Partition) parseState(fields map[string]string) (s State, err error) {
	if v := fields["format"]; v != format {
		return s, fmt.Errorf("its format is %q, and this version of lapse has %q", v, format)
	}
	if n := fields["partitions"]; n != strconv.Itoa(p.of) {
		return s, fmt.Errorf("it is of a log with %s partitions, and this one has %d", n, p.of)
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
	if r := fields["rebuild"]; r != "" {
		if s.Rebuild, err = parseUint("rebuild", r); err != nil {
			return s, err
		}
	}
	if s.Rebuild == clearing {
		return s, fmt.Errorf("%w: its removal was begun and not ended", ErrDamaged)
	}
	for f := range fields {
		if name, ok := strings.CutPrefix(f, sizePrefix); ok {
			s.Collections = append(s.Collections, name)
		}
	}
	slices.Sort(s.Collections)
	return s, nil
}

// Take makes version the version of a partition that is at s, so that everybody
// else who computes from s is refused, and notes up to which offset it lacks what
// it had. A partition without a state gets one: that of the beginning of the log.
func (p *Partition) Take(ctx context.Context, s State, version string, rebuild uint64) error {
	args := []any{s.Version, "version", version, "rebuild", formatRebuild(rebuild)}
	if s.Version == "" {
		args = append(args, "format", format, "partitions", p.of, "log", s.Log, "offset", s.Offset, "watermark", s.Watermark)
	}
	p.clock.forget()
	n, err := fenceScript.Run(ctx, p.client, []string{p.keys.state()}, args...).Int()
	err = foreign(err)
	if err == nil && n == 0 {
		err = ErrFenced
	}
	if err != nil {
		return fmt.Errorf("take over partition %d: %w", p.id, err)
	}
	return nil
}

// Verify is ErrFenced unless the partition is at the version, ErrDamaged if one of
// the collections has not the documents or the index that it was left with, and
// ErrForeign if one of its keys is of another type.
func (p *Partition) Verify(ctx context.Context, version string, collections []string) error {
	keys := []string{p.keys.state(), p.keys.config()}
	args := make([]any, 0, len(collections))
	for _, c := range collections {
		keys = append(keys, p.keys.docs(c), p.keys.inherit(c), p.keys.own(c))
		args = append(args, c)
	}
	r, err := run(ctx, p.scripts, verifyScript, keys, args...)
	if err == nil && r.str(1) != version {
		err = ErrFenced
	}
	if err == nil {
		switch r.int(0) {
		case -1:
			err = fmt.Errorf("%w: key %s is of another type", ErrForeign, keys[r.int(2)-1])
		case -2:
			lost := "configurations are lost"
			if n := r.int(2); n > 0 {
				lost = lostText(collections[n-1])
			}
			err = fmt.Errorf("%w: %s", ErrDamaged, lost)
		}
	}
	if err != nil {
		return fmt.Errorf("verify partition %d: %w", p.id, err)
	}
	return nil
}

// Leftovers are the keys that are stored of a partition, whatever they hold.
func (p *Partition) Leftovers(ctx context.Context) ([]string, error) {
	var found []string
	err := p.eachKey(ctx, func(keys []string) error {
		found = append(found, keys...)
		return nil
	})
	slices.Sort(found)
	return slices.Compact(found), err // a scan may find a key twice
}

// clearing is the rebuild of a partition that is being removed: it lacks all.
const clearing = math.MaxUint64

// Clear removes everything that is stored of a partition. The state goes last, and
// says meanwhile that the partition is not fit to be read or to be gone on from.
func (p *Partition) Clear(ctx context.Context) error {
	state := p.keys.state()
	if there, err := p.client.HExists(ctx, state, "version").Result(); err != nil {
		return fmt.Errorf("clear partition %d: %w", p.id, err)
	} else if there {
		if err := p.client.HSet(ctx, state, "rebuild", strconv.FormatUint(clearing, 10)).Err(); err != nil {
			return fmt.Errorf("clear partition %d: %w", p.id, err)
		}
	}
	err := p.eachKey(ctx, func(keys []string) error {
		keys = slices.DeleteFunc(keys, func(k string) bool { return k == state })
		if len(keys) == 0 {
			return nil
		}
		return p.client.Unlink(ctx, keys...).Err()
	})
	if err == nil {
		err = p.client.Unlink(ctx, state).Err()
	}
	if err != nil {
		return fmt.Errorf("clear partition %d: %w", p.id, err)
	}
	return nil
}

// eachKey finds the keys of the partition, whatever its state says.
func (p *Partition) eachKey(ctx context.Context, do func(keys []string) error) error {
	scan := func(ctx context.Context, node redis.Cmdable) error {
		for cursor := uint64(0); ; {
			keys, next, err := node.Scan(ctx, cursor, escapeGlob(p.keys.base)+"*", 1000).Result()
			if err != nil {
				return err
			}
			if len(keys) > 0 {
				if err := do(keys); err != nil {
					return err
				}
			}
			if cursor = next; cursor == 0 {
				return nil
			}
		}
	}
	var err error
	if cluster, ok := p.client.(*redis.ClusterClient); ok {
		var node *redis.Client
		if node, err = cluster.MasterForKey(ctx, p.keys.state()); err == nil {
			err = scan(ctx, node)
		}
	} else {
		err = scan(ctx, p.client)
	}
	if err != nil {
		return fmt.Errorf("scan the keys of partition %d: %w", p.id, err)
	}
	return nil
}

// escapeGlob keeps the characters of a pattern from meaning anything.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(s)
}

func formatRebuild(rebuild uint64) string {
	if rebuild == 0 {
		return ""
	}
	return strconv.FormatUint(rebuild, 10)
}
