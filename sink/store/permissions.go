package store

import (
	"context"
	_ "embed" // the script
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

//go:embed permissions.lua
var permissionsSource string

var permissionsScript = redis.NewScript(permissionsSource)

// needed are the commands that lapse runs, in scripts or by itself. A script that lacks one
// fails half-way, and what it has changed by then stays. So lapse asks beforehand.
var needed = []any{
	"EVALSHA_RO", "EVAL_RO", "EXISTS", "HDEL", "HGET", "HGETALL", "HLEN", "HMGET", "HSCAN", "HSET", "INFO", "PING", "RENAME", "SCAN", "TIME", "TYPE", "UNLINK",
	"ZADD", "ZCARD", "ZCOUNT", "ZLEXCOUNT", "ZRANGE", "ZRANGEBYLEX", "ZRANGEBYSCORE", "ZREM", "ZREVRANGEBYLEX", "ZSCORE",
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
		return fmt.Errorf("%w %s on the keys of lapse: allow it in the ACL of Redis (deploy/redis/users.acl lists all that lapse needs)", ErrDenied, strings.ToLower(strings.Join(denied, ", ")))
	}
	return nil
}

// explainDenied makes an ErrDenied of the server's error for a command that the user may
// not run.
func explainDenied(err error) error {
	if redis.HasErrorPrefix(err, "NOPERM") {
		return fmt.Errorf("%w a command: allow it in the ACL of Redis (deploy/redis/users.acl lists all that lapse needs): %w", ErrDenied, err)
	}
	return err
}
