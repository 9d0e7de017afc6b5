package sink

import (
	"context"
	_ "embed" // the scripts
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The scripts move data and check the fence; what they do, take and return is
// said at the head of each. No rule about TTLs is in them.
var (
	//go:embed lua/load.lua
	loadSource string
	//go:embed lua/fence.lua
	fenceSource string
	//go:embed lua/read.lua
	readSource string
	//go:embed lua/commit.lua
	commitSource string
	//go:embed lua/due.lua
	dueSource string
	//go:embed lua/verify.lua
	verifySource string
	//go:embed lua/scan.lua
	scanSource string
	//go:embed lua/get.lua
	getSource string
	//go:embed lua/counts.lua
	countsSource string

	loadScript   = redis.NewScript(loadSource)
	fenceScript  = redis.NewScript(fenceSource)
	readScript   = redis.NewScript(readSource)
	commitScript = redis.NewScript(commitSource)
	dueScript    = redis.NewScript(dueSource)
	verifyScript = redis.NewScript(verifySource)
	scanScript   = redis.NewScript(scanSource)
	getScript    = redis.NewScript(getSource)
	countsScript = redis.NewScript(countsSource)
)

// run runs a script and takes its reply for a list, which all of them return but
// the fence.
func run(ctx context.Context, c *combiner, script *redis.Script, keys []string, args ...any) (reply, error) {
	v, err := c.run(ctx, script, keys, args...).Slice()
	return reply(v), foreign(err)
}

// foreign makes Redis's answer that a key is of another type an ErrForeign. It is
// a code, not a text, but miniredis has it in the midst of one.
func foreign(err error) error {
	if answer := redis.Error(nil); errors.As(err, &answer) && strings.Contains(answer.Error(), "WRONGTYPE") {
		return fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return err
}

// reply is a list that a script returned. Its methods panic on nothing: what is
// not of the kind asked for reads as that kind's zero value.
type reply []any

func (r reply) at(i int) any {
	if i < len(r) {
		return r[i]
	}
	return nil
}

func (r reply) int(i int) int64 {
	switch v := r.at(i).(type) {
	case int64:
		return v
	case string:
		n, _ := strconv.ParseInt(v, 10, 64)
		return n
	}
	return 0
}

func (r reply) str(i int) string { s, _ := r.at(i).(string); return s }

func (r reply) has(i int) bool { _, ok := r.at(i).(string); return ok }

func (r reply) list(i int) reply { l, _ := r.at(i).([]any); return l }

// score reads a sorted set's score, which Redis writes as a float.
func (r reply) score(i int) (int64, bool) {
	s, ok := r.at(i).(string)
	if !ok {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return int64(f), err == nil
}

// fields reads a flat list of field and value.
func (r reply) fields() map[string]string {
	m := make(map[string]string, len(r)/2)
	for i := 0; i+1 < len(r); i += 2 {
		m[r.str(i)] = r.str(i + 1)
	}
	return m
}

func parseUint(name, s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("its %s is %q, not a number", name, s)
	}
	return n, nil
}
