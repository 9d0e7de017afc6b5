package sink

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	stepFlights   = 2                // round trips of a store under way
	readFlights   = 4                // likewise of a reader
	flightArgs    = 256              // of all scripts in one pipeline, unless it is but one
	flightTimeout = 15 * time.Second // of a pipeline
)

// combiner runs scripts. What is asked for while as many round trips are under way
// as may be goes out together with the next one, as a pipeline: the more there is
// to do at a time, the less each costs, here and in the server. A call that finds
// room goes out at once. Only what is small shares a pipeline, as the server does all
// of it before it turns to anybody else.
type combiner struct {
	client redis.UniversalClient
	most   int         // round trips under way
	reads  atomic.Bool // the scripts write nothing, and the server is told so: see Store.Reads

	mu      sync.Mutex
	flights int
	waiting []*call
}

// call is a script that waits for its turn.
type call struct {
	ctx    context.Context
	script *redis.Script
	keys   []string
	args   []any
	cmd    *redis.Cmd
	done   chan struct{}
}

// run runs a script. It returns when ctx is done, whatever becomes of the script.
func (c *combiner) run(ctx context.Context, script *redis.Script, keys []string, args ...any) *redis.Cmd {
	c.mu.Lock()
	if c.flights < c.most {
		c.flights++
		c.mu.Unlock()
		defer c.land()
		return c.alone(ctx, script, keys, args)
	}
	one := &call{ctx: ctx, script: script, keys: keys, args: args, done: make(chan struct{})}
	c.waiting = append(c.waiting, one)
	c.mu.Unlock()
	select {
	case <-one.done:
		return one.cmd
	case <-ctx.Done():
		return tooLate(ctx)
	}
}

// alone runs one script.
func (c *combiner) alone(ctx context.Context, script *redis.Script, keys []string, args []any) *redis.Cmd {
	if c.reads.Load() {
		cmd := script.RunRO(ctx, c.client, keys, args...)
		if !refused(cmd.Err()) {
			return cmd
		}
		c.reads.Store(false)
	}
	return script.Run(ctx, c.client, keys, args...)
}

// refused says whether a server does not run scripts that write nothing as such:
// miniredis takes TIME for a write, and not everybody may be allowed to.
func refused(err error) bool {
	answer := redis.Error(nil)
	if !errors.As(err, &answer) {
		return false
	}
	text := answer.Error()
	return strings.HasPrefix(text, "NOPERM") || strings.Contains(text, "unknown command") || strings.Contains(text, "not allowed in read-only scripts")
}

// tooLate is the answer to a call whose time was up before its turn came.
func tooLate(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(ctx.Err())
	return cmd
}

// land ends a round trip, or begins the next with what waits.
func (c *combiner) land() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.flights--
		return
	}
	n := 1
	for args := len(c.waiting[0].args); n < len(c.waiting); n++ {
		if args += len(c.waiting[n].args); args > flightArgs {
			break
		}
	}
	some := c.waiting[:n:n]
	c.waiting = c.waiting[n:]
	go c.fly(some)
}

// fly makes one round trip.
func (c *combiner) fly(calls []*call) {
	defer c.land()
	ctx, cancel := context.WithTimeout(context.Background(), flightTimeout)
	defer cancel()
	pipe := c.client.Pipeline()
	send := (*redis.Script).EvalSha
	if c.reads.Load() {
		send = (*redis.Script).EvalShaRO
	}
	for _, one := range calls {
		if one.ctx.Err() != nil {
			one.cmd = tooLate(one.ctx)
			continue
		}
		one.cmd = send(one.script, ctx, pipe, one.keys, one.args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, one := range calls {
		if err := one.cmd.Err(); redis.HasErrorPrefix(err, "NOSCRIPT") || refused(err) {
			one.cmd = c.alone(ctx, one.script, one.keys, one.args)
		}
		close(one.done)
	}
}
