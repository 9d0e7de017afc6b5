package store

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // the script
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink/internal/layout"
	"github.com/seed18712806/lapse/sink/wire"
)

// Check refuses (with ErrServer) a server that is older than Redis 7.0 or that may evict
// keys, and (with ErrDenied) a user who lacks a permission. A server that does not tell its
// version or its permissions, as the embedded one, passes. A master of a cluster that does not answer
// passes too if another one has answered: it must not hold up the shards of the others.
func (p *Shard) Check(ctx context.Context) error {
	var passed atomic.Bool
	_, cluster := p.client.(*redis.ClusterClient)
	err := p.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		if cluster {
			limited, cancel := context.WithTimeout(ctx, checkTimeout)
			defer cancel()
			ctx = limited
		}
		err := p.checkPermissions(ctx, node)
		if err == nil {
			err = checkServer(ctx, node)
		}
		if err == nil {
			passed.Store(true)
		}
		return err
	})
	if passed.Load() && !errors.Is(err, ErrServer) && !errors.Is(err, ErrDenied) {
		return nil
	}
	return err
}

// Ping returns an error unless the server answers; of a cluster, unless every master does.
func (p *Shard) Ping(ctx context.Context) error {
	return p.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		return explainDenied(node.Ping(ctx).Err())
	})
}

// checkTimeout limits how long one master of a cluster is checked.
const checkTimeout = 2 * time.Second

// timeTimeout limits how long a master is asked for its time after another one has answered.
const timeTimeout = 3 * time.Second

// Time reads the server's clock; of a cluster, that of the master that answers first.
func (p *Shard) Time(ctx context.Context) (time.Time, error) {
	if _, cluster := p.client.(*redis.ClusterClient); !cluster {
		now, err := p.client.Time(ctx).Result()
		return now, explainDenied(err)
	}
	first, failed := make(chan time.Time, 1), make(chan error, 1)
	go func() {
		asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeTimeout)
		defer cancel()
		answered := false
		var once sync.Once
		err := p.eachMaster(asking, func(ctx context.Context, node redis.Cmdable) error {
			now, err := node.Time(ctx).Result()
			if err == nil {
				once.Do(func() { answered = true; first <- now })
			}
			return explainDenied(err)
		})
		if !answered {
			failed <- cmp.Or(err, errNoMaster)
		}
	}()
	select {
	case now := <-first:
		return now, nil
	case err := <-failed:
		return time.Time{}, err
	case <-ctx.Done():
		return time.Time{}, ctx.Err()
	}
}

var errNoMaster = errors.New("the cluster of Redis has no master")

// eachMaster calls do for the server; of a cluster, for every master at the same time. Of a
// cluster, the error names the master.
func (p *Shard) eachMaster(ctx context.Context, do func(ctx context.Context, node redis.Cmdable) error) error {
	cluster, ok := p.client.(*redis.ClusterClient)
	if !ok {
		return do(ctx, p.client)
	}
	return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := do(ctx, node); err != nil {
			return fmt.Errorf("master %s: %w", node.Options().Addr, err)
		}
		return nil
	})
}

func checkServer(ctx context.Context, node redis.Cmdable) error {
	server, err := info(ctx, node, "server")
	if err != nil {
		return err
	}
	if v := server["redis_version"]; v != "" {
		if major, _ := strconv.Atoi(strings.SplitN(v, ".", 2)[0]); major < 7 {
			return fmt.Errorf("%w: it is Redis %s, and 7.0 or newer is needed", ErrServer, v)
		}
	}
	memory, err := info(ctx, node, "memory")
	if err != nil {
		return err
	}
	if policy := memory["maxmemory_policy"]; policy != "" && policy != "noeviction" {
		return fmt.Errorf("%w: its maxmemory-policy is %s, so it may throw documents away: set it to noeviction", ErrServer,
			policy)
	}
	return nil
}

// Memory is the memory of a server in bytes. Used is 0 if the server does not tell, as
// the embedded one, and Limit is 0 if it has no limit.
type Memory struct{ Used, Limit int64 }

// Memory reads the memory of the server; of a cluster, of the master that has the smallest
// share left.
func (p *Shard) Memory(ctx context.Context) (fullest Memory, err error) {
	var mu sync.Mutex // the masters of a cluster are asked at the same time
	err = p.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		memory, err := info(ctx, node, "memory")
		used, _ := strconv.ParseInt(memory["used_memory"], 10, 64)
		limit, _ := strconv.ParseInt(memory["maxmemory"], 10, 64)
		mu.Lock()
		defer mu.Unlock()
		if one := (Memory{used, limit}); one.Fuller(fullest) {
			fullest = one
		}
		return err
	})
	return fullest, err
}

// Fuller reports whether a server has a smaller share left than another one. One that has a
// limit counts as fuller than one that has none.
func (m Memory) Fuller(than Memory) bool {
	switch {
	case m.Limit == 0 || than.Limit == 0:
		return m.Limit > than.Limit || m.Limit == than.Limit && m.Used > than.Used
	default:
		return float64(m.Used)/float64(m.Limit) > float64(than.Used)/float64(than.Limit)
	}
}

// Reads counts the reads of lapse that the server has answered since some instant, by all
// processes; of a cluster, those of all masters. It returns an error if a server does not count.
func (p *Shard) Reads(ctx context.Context) (int64, error) {
	var reads atomic.Int64
	err := p.eachMaster(ctx, func(ctx context.Context, node redis.Cmdable) error {
		stats, err := info(ctx, node, "commandstats")
		if err == nil && len(stats) == 0 {
			err = errNoCounts
		}
		reads.Add(calls(stats["cmdstat_evalsha_ro"])) // readers alone use it
		return err
	})
	return reads.Load(), err
}

// calls is how often a command was called; 0 before the first call.
func calls(stat string) int64 {
	n, _, _ := strings.Cut(strings.TrimPrefix(stat, "calls="), ",")
	calls, _ := strconv.ParseInt(n, 10, 64)
	return calls
}

var errNoCounts = errors.New("this Redis does not count its calls")

// info reads a section of INFO. It is empty if the server does not have the section.
func info(ctx context.Context, node redis.Cmdable, section string) (map[string]string, error) {
	text, err := node.Info(ctx, section).Result()
	if err != nil {
		var answer redis.Error
		if errors.As(err, &answer) && strings.Contains(answer.Error(), "is not supported") {
			return nil, nil
		}
		return nil, fmt.Errorf("ask Redis for its %s: %w", section, err)
	}
	m := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			m[k] = v
		}
	}
	return m, nil
}

//go:embed permissions.lua
var permissionsSource string

var permissionsScript = redis.NewScript(permissionsSource)

// needed are the commands that lapse runs, in scripts or by itself. A script that lacks one
// fails half-way, and what it has changed by then stays. So lapse asks beforehand.
var needed = []any{
	"EVALSHA_RO", "EVAL_RO", "EXISTS", "HDEL", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "HSET", "INFO", "PING",
	"RENAME", "SCAN", "TIME", "TYPE", "UNLINK",
	"ZADD", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZREM", "ZREVRANGEBYLEX", "ZSCORE",
}

// checkPermissions refuses (with ErrDenied) a user who lacks a command.
func (p *Shard) checkPermissions(ctx context.Context, node redis.Cmdable) error {
	args := append([]any{p.keys.State()}, needed...)
	if _, cluster := p.client.(*redis.ClusterClient); cluster {
		args = append(args, "ASKING") // while a slot moves
	}
	denied, err := permissionsScript.Run(ctx, node.(redis.Scripter), nil, args...).StringSlice()
	if err != nil {
		return explainDenied(err)
	}
	if len(denied) > 0 {
		return fmt.Errorf("%w %s on the keys of lapse: allow it in the ACL of Redis (deploy/redis/users.acl lists all that "+
			"lapse needs)", ErrDenied, strings.ToLower(strings.Join(denied, ", ")))
	}
	return nil
}

// explainDenied makes an ErrDenied of the server's error for a command that the user may
// not run.
func explainDenied(err error) error {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return fmt.Errorf("%w a command: allow it in the ACL of Redis (deploy/redis/users.acl lists all that lapse needs): "+
			"%w", ErrDenied, err)
	}
	return err
}

//go:embed identity.lua
var identitySource string

var identityScript = redis.NewScript(identitySource)

// Identity is what tells a Redis from all others: a random text, which lasts as long as the data
// of that Redis. The first process that asks makes it, also after a wipe. On a cluster one master
// has it, so it is not known while that one does not answer.
func Identity(ctx context.Context, client redis.UniversalClient, prefix wire.Prefix) (string, error) {
	id, err := identityScript.Run(ctx, client, []string{fmt.Sprintf("%s:identity", prefix)}, rand.Text()).Text()
	return id, layout.Foreign(err)
}
