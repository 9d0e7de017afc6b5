package embedded

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/match"
)

func ping(db *database, args []string) any {
	if len(args) > 0 {
		return args[0]
	}
	return status("PONG")
}

func now(db *database, _ []string) any {
	t := db.clock
	if t.IsZero() {
		t = time.Now()
	}
	return []any{strconv.FormatInt(t.Unix(), 10), strconv.Itoa(t.Nanosecond() / 1000)}
}

// info answers what lapse asks. A section that it does not have is empty.
func info(db *database, args []string) any {
	if len(args) > 0 && strings.EqualFold(args[0], "commandstats") {
		return fmt.Sprintf("# Commandstats\r\ncmdstat_evalsha_ro:calls=%d\r\n", db.reads)
	}
	if len(args) > 0 && !strings.EqualFold(args[0], "server") {
		return ""
	}
	return fmt.Sprintf("# Server\r\nrun_id:%s\r\n", db.runID)
}

// describe answers COMMAND and COMMAND DOCS, which redis-cli asks for hints: there are none.
func describe(_ *database, args []string) any {
	if len(args) > 0 && !strings.EqualFold(args[0], "DOCS") {
		return unknown("COMMAND " + args[0])
	}
	return []any{}
}

func dbSize(db *database, _ []string) any { return db.keys.len() }

func flush(db *database, _ []string) any {
	db.keys = newDict[any]()
	return ok
}

func get(db *database, args []string) any {
	v, there := db.keys.get(args[0])
	if !there {
		return nil
	}
	if _, text := v.(string); !text {
		return wrongType
	}
	return v
}

func set(db *database, args []string) any {
	if len(args) > 2 {
		return failure("ERR syntax error: SET takes no options in the embedded Redis, and keys do not expire there")
	}
	db.keys.set(args[0], args[1])
	return ok
}

// ttl answers TTL: no key expires.
func ttl(db *database, args []string) any {
	if _, there := db.keys.get(args[0]); there {
		return -1
	}
	return -2
}

func del(db *database, args []string) any {
	n := 0
	for _, key := range args {
		if db.keys.remove(key) {
			n++
		}
	}
	return n
}

func exists(db *database, args []string) any {
	n := 0
	for _, key := range args {
		if _, there := db.keys.get(key); there {
			n++
		}
	}
	return n
}

func rename(db *database, args []string) any {
	v, there := db.keys.get(args[0])
	if !there {
		return noKey
	}
	db.keys.remove(args[0])
	db.keys.set(args[1], v)
	return ok
}

func typeOf(db *database, args []string) any {
	v, _ := db.keys.get(args[0])
	switch v.(type) {
	case *hash:
		return status("hash")
	case *sortedSet:
		return status("zset")
	case string:
		return status("string")
	}
	return status("none")
}

func keys(db *database, args []string) any {
	var found []string
	db.keys.all(func(name string, _ any) {
		if match.Match(name, args[0]) {
			found = append(found, name)
		}
	})
	sort.Strings(found)
	reply := make([]any, len(found))
	for i, name := range found {
		reply[i] = name
	}
	return reply
}

// page is the arguments of a scan.
type page struct {
	cursor uint64
	match  string
	count  int
}

func parsePage(args []string) (p page, fail any) {
	p = page{match: "*", count: 10}
	var err error
	if p.cursor, err = strconv.ParseUint(args[0], 10, 64); err != nil {
		return p, noCursor
	}
	args = args[1:]
	for ; len(args) >= 2; args = args[2:] {
		switch strings.ToUpper(args[0]) {
		case "MATCH":
			p.match = args[1]
		case "COUNT":
			if p.count, err = strconv.Atoi(args[1]); err != nil {
				return p, notInteger
			}
			if p.count < 1 {
				return p, syntax
			}
		default:
			return p, syntax
		}
	}
	if len(args) > 0 {
		return p, syntax
	}
	return p, nil
}

func scan(db *database, args []string) any {
	p, fail := parsePage(args)
	if fail != nil {
		return fail
	}
	found := []any{}
	next := db.keys.scan(p.cursor, p.count, func(name string, _ any) {
		if match.Match(name, p.match) {
			found = append(found, name)
		}
	})
	return []any{strconv.FormatUint(next, 10), found}
}
