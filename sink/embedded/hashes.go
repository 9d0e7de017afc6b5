package embedded

import (
	"strconv"

	"github.com/tidwall/match"
)

func hSet(db *database, args []string) any {
	key, pairs := args[0], args[1:]
	if len(pairs)%2 != 0 {
		return wrongNumber("hset")
	}
	h, fail := value[*hash](db, key)
	if fail != nil {
		return fail
	}
	if h == nil {
		h = newDict[string]()
		db.keys.set(key, h)
	}
	n := 0
	for i := 0; i < len(pairs); i += 2 {
		if h.set(pairs[i], pairs[i+1]) {
			n++
		}
	}
	return n
}

func hDel(db *database, args []string) any {
	key := args[0]
	h, fail := value[*hash](db, key)
	if fail != nil {
		return fail
	}
	if h == nil {
		return 0
	}
	n := 0
	for _, field := range args[1:] {
		if h.remove(field) {
			n++
		}
	}
	if h.len() == 0 {
		db.keys.remove(key)
	}
	return n
}

func hGet(db *database, args []string) any {
	h, fail := value[*hash](db, args[0])
	if h == nil {
		return fail
	}
	if v, there := h.get(args[1]); there {
		return v
	}
	return nil
}

func hMGet(db *database, args []string) any {
	h, fail := value[*hash](db, args[0])
	if fail != nil {
		return fail
	}
	reply := make([]any, len(args)-1)
	if h == nil {
		return reply
	}
	for i, field := range args[1:] {
		if v, there := h.get(field); there {
			reply[i] = v
		}
	}
	return reply
}

func hLen(db *database, args []string) any {
	h, fail := value[*hash](db, args[0])
	switch {
	case fail != nil:
		return fail
	case h == nil:
		return 0
	}
	return h.len()
}

func hGetAll(db *database, args []string) any {
	return eachField(db, args[0], func(name, v string) []any { return []any{name, v} })
}

func hKeys(db *database, args []string) any {
	return eachField(db, args[0], func(name, _ string) []any { return []any{name} })
}

// eachField replies with something of each field of a hash.
func eachField(db *database, key string, of func(name, v string) []any) any {
	h, fail := value[*hash](db, key)
	if fail != nil {
		return fail
	}
	reply := []any{}
	if h != nil {
		h.all(func(name, v string) { reply = append(reply, of(name, v)...) })
	}
	return reply
}

func hScan(db *database, args []string) any {
	p, fail := parsePage(args[1:])
	if fail != nil {
		return fail
	}
	h, fail := value[*hash](db, args[0])
	if fail != nil {
		return fail
	}
	found, next := []any{}, uint64(0)
	if h != nil {
		next = h.scan(p.cursor, p.count, func(name, v string) {
			if match.Match(name, p.match) {
				found = append(found, name, v)
			}
		})
	}
	return []any{strconv.FormatUint(next, 10), found}
}
