package redisconn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// clusterClient makes a client of a cluster in which a node that stands still delays nothing
// else. go-redis asks any node for the slots, and only once in a while or when it is redirected,
// so that it would look for a dead master for a minute; and it repeats what has timed out. So
// the slots are asked for often, after each failure, and with a short limit, and a command ends
// at its limit with all its repetitions. The routing policies are off because they ask a node
// about each command at the start.
func clusterClient(o *redis.ClusterOptions, poolSize int) *redis.ClusterClient {
	o.DisableRoutingPolicies = true
	o.MaxRetries, o.ContextTimeoutEnabled, o.DialerRetries, o.DisableIdentity = -1, true, 1, true
	o.DialTimeout = cmp.Or(o.DialTimeout, dialTimeout)
	o.ReadTimeout = cmp.Or(o.ReadTimeout, answerTimeout)
	o.WriteTimeout = cmp.Or(o.WriteTimeout, answerTimeout)
	o.PoolTimeout, o.PoolSize = cmp.Or(o.PoolTimeout, poolTimeout), cmp.Or(o.PoolSize, poolSize)
	o.ClusterStateReloadInterval = slotsEvery
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClusterClient(o)
	client.AddHook(timeLimit{every: o.ReadTimeout, failed: client.ReloadState})
	client.OnNewNode(func(node *redis.Client) { node.AddHook(timeLimit{slots: slotsTimeout}) })
	return client
}

// timeLimit is a hook that limits how long commands take.
type timeLimit struct {
	every  time.Duration             // of every command and pipeline; 0: no limit
	slots  time.Duration             // of CLUSTER SLOTS; 0: no limit
	failed func(ctx context.Context) // is called if a server does not answer; nil: nothing is
}

func (l timeLimit) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l timeLimit) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		most := l.every
		if l.slots > 0 && cmd.FullName() == "cluster slots" {
			most = l.slots
		}
		return l.run(ctx, most, func(ctx context.Context) error { return next(ctx, cmd) })
	}
}

func (l timeLimit) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return l.run(ctx, l.every, func(ctx context.Context) error { return next(ctx, cmds) })
	}
}

func (l timeLimit) run(ctx context.Context, most time.Duration, do func(ctx context.Context) error) error {
	limited, cancel := ctx, context.CancelFunc(func() {})
	if most > 0 {
		limited, cancel = context.WithTimeout(ctx, most)
	}
	defer cancel()
	err := do(limited)
	var answer redis.Error
	if err != nil && l.failed != nil && !errors.As(err, &answer) && !errors.Is(err, context.Canceled) {
		l.failed(context.WithoutCancel(ctx))
	}
	return err
}

// Logging logs the messages of go-redis about failed connections of a pool at debug level,
// because the failed commands report the same error to their callers.
type Logging struct{ Logger *slog.Logger }

func (l Logging) Printf(ctx context.Context, format string, v ...any) {
	l.Logger.DebugContext(ctx, "go-redis", slog.String("message", fmt.Sprintf(format, v...)))
}
