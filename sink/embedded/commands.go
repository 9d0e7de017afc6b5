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
	reads int // calls of EVALSHA_RO
}

type hash = dict[string]

// command is what a command does with its arguments.
type command struct {
	arity int // words, the name included, as Redis counts; -n is n or more
	do    func(db *database, args []string) any
}

// fits reports whether the command takes so many arguments.
func (c command) fits(args int) bool {
	if c.arity < 0 {
		return args+1 >= -c.arity
	}
	return args+1 == c.arity
}

// commands are the commands that a script may run too.
var commands = map[string]command{
	"COMMAND": {-1, describe}, "DBSIZE": {1, dbSize}, "DEL": {-2, del}, "EXISTS": {-2, exists},
	"FLUSHALL": {-1, flush}, "GET": {2, get}, "INFO": {-1, info}, "KEYS": {2, keys},
	"PING": {-1, ping}, "RENAME": {3, rename}, "SCAN": {-2, scan}, "SET": {-3, set}, "TIME": {1, now},
	"TTL": {2, ttl}, "TYPE": {2, typeOf}, "UNLINK": {-2, del},

	"HDEL": {-3, hDel}, "HGET": {3, hGet}, "HGETALL": {2, hGetAll}, "HKEYS": {2, hKeys}, "HLEN": {2, hLen},
	"HMGET": {-3, hMGet}, "HSCAN": {-3, hScan}, "HSET": {-4, hSet},

	"ZADD": {-4, zAdd}, "ZCARD": {2, zCard}, "ZCOUNT": {4, zCount}, "ZLEXCOUNT": {4, zLexCount},
	"ZRANGE": {-4, zRange}, "ZRANGEBYLEX": {-4, zRangeByLex},
	"ZRANGEBYSCORE": {-4, zRangeByScore}, "ZREM": {-3, zRem}, "ZREVRANGEBYLEX": {-4, zRevRangeByLex},
	"ZSCORE": {3, zScore},
}

// writes are the commands that change something.
var writes = map[string]bool{
	"DEL": true, "FLUSHALL": true, "RENAME": true, "SET": true, "UNLINK": true, "HDEL": true, "HSET": true, "ZADD": true,
	"ZREM": true,
}

// run runs a command that a script may run too.
func (db *database) run(name string, args []string) any {
	c, found := commands[strings.ToUpper(name)]
	switch {
	case !found:
		return unknown(name)
	case !c.fits(len(args)):
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
