package embedded

import (
	"strings"
	"time"
)

// database is what the commands work on.
type database struct {
	keys  *dict[any] // each a string, a *hash or a *sortedSet, which is never empty
	clock time.Time  // stands still at this time if it is not zero
	runID string
}

type hash = dict[string]

// command is what a command does with its arguments.
type command struct {
	least int // number of arguments
	do    func(db *database, args []string) any
}

// commands are the commands that a script may run too.
var commands = map[string]command{
	"DBSIZE": {0, dbSize}, "DEL": {1, del}, "EXISTS": {1, exists}, "FLUSHALL": {0, flush}, "FLUSHDB": {0, flush}, "GET": {1, get},
	"INFO": {0, info}, "KEYS": {1, keys}, "PING": {0, ping}, "RENAME": {2, rename}, "SCAN": {1, scan}, "SET": {2, set}, "TIME": {0, now},
	"TYPE": {1, typeOf}, "UNLINK": {1, del},

	"HDEL": {2, hDel}, "HEXISTS": {2, hExists}, "HGET": {2, hGet}, "HGETALL": {1, hGetAll}, "HINCRBY": {3, hIncrBy}, "HKEYS": {1, hKeys},
	"HLEN": {1, hLen}, "HMGET": {2, hMGet}, "HSCAN": {2, hScan}, "HSET": {3, hSet},

	"ZADD": {3, zAdd}, "ZCARD": {1, zCard}, "ZCOUNT": {3, zCount}, "ZPOPMIN": {1, zPopMin}, "ZRANGE": {3, zRange}, "ZRANGEBYSCORE": {3, zRangeByScore}, "ZREM": {2, zRem}, "ZSCORE": {2, zScore},
}

// run runs a command that a script may run too.
func (db *database) run(name string, args []string) any {
	c, found := commands[strings.ToUpper(name)]
	switch {
	case !found:
		return unknown(name)
	case len(args) < c.least:
		return wrongNumber(name)
	}
	return c.do(db, args)
}

// value reads the value of a key that must hold a V. It is the zero V if there is no such
// key, and the failure is nil unless the key holds something else.
func value[V any](db *database, key string) (v V, fail any) {
	stored, there := db.keys.get(key)
	if !there {
		return v, nil
	}
	v, right := stored.(V)
	if !right {
		return v, wrongType
	}
	return v, nil
}
