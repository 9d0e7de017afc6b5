package embedded

import (
	"strconv"
	"strings"
)

func zAdd(db *database, args []string) any {
	key, pairs := args[0], args[1:]
	if len(pairs)%2 != 0 {
		return syntax
	}
	for i := 0; i < len(pairs); i += 2 {
		if _, right := parseScore(pairs[i]); !right {
			return notFloat
		}
	}
	s, fail := value[*sortedSet](db, key)
	if fail != nil {
		return fail
	}
	if s == nil {
		s = newSortedSet()
		db.keys.set(key, s)
	}
	n := 0
	for i := 0; i < len(pairs); i += 2 {
		score, _ := parseScore(pairs[i])
		if s.set(pairs[i+1], score) {
			n++
		}
	}
	return n
}

func zRem(db *database, args []string) any {
	key := args[0]
	s, fail := value[*sortedSet](db, key)
	if fail != nil {
		return fail
	}
	if s == nil {
		return 0
	}
	n := 0
	for _, name := range args[1:] {
		if s.remove(name) {
			n++
		}
	}
	if s.len() == 0 {
		db.keys.remove(key)
	}
	return n
}

func zCard(db *database, args []string) any {
	s, fail := value[*sortedSet](db, args[0])
	switch {
	case fail != nil:
		return fail
	case s == nil:
		return 0
	}
	return s.len()
}

func zScore(db *database, args []string) any {
	s, fail := value[*sortedSet](db, args[0])
	if s == nil {
		return fail
	}
	if score, there := s.scores[args[1]]; there {
		return formatScore(score)
	}
	return nil
}

// parseBound reads an end of a range: a score, or one after "(", which is then outside.
func parseBound(s string) (b bound, right bool) {
	s, b.open = strings.CutPrefix(s, "(")
	b.score, right = parseScore(s)
	return b, right
}

func parseBounds(from, to string) (low, high bound, fail any) {
	low, lowRight := parseBound(from)
	high, highRight := parseBound(to)
	if !lowRight || !highRight {
		return low, high, failure("ERR min or max is not a float")
	}
	return low, high, nil
}

func zCount(db *database, args []string) any {
	low, high, fail := parseBounds(args[1], args[2])
	if fail != nil {
		return fail
	}
	s, fail := value[*sortedSet](db, args[0])
	switch {
	case fail != nil:
		return fail
	case s == nil:
		return 0
	}
	return s.count(low, high)
}

// zRange replies with members by their ranks. It takes ranks and WITHSCORES alone.
func zRange(db *database, args []string) any {
	first, err := strconv.Atoi(args[1])
	last, err2 := strconv.Atoi(args[2])
	if err != nil || err2 != nil {
		return notInteger
	}
	scores := len(args) == 4 && strings.EqualFold(args[3], "WITHSCORES")
	if len(args) > 3 && !scores {
		return syntax
	}
	s, fail := value[*sortedSet](db, args[0])
	if fail != nil {
		return fail
	}
	found := []any{}
	if s == nil {
		return found
	}
	if first < 0 {
		first = max(0, first+s.len())
	}
	if last < 0 {
		last += s.len()
	}
	for rank := first; rank <= min(last, s.len()-1); rank++ {
		m, _ := s.tree.GetAt(rank)
		found = appendMember(found, m, scores)
	}
	return found
}

func zRangeByScore(db *database, args []string) any {
	low, high, fail := parseBounds(args[1], args[2])
	if fail != nil {
		return fail
	}
	scores, skip, limit := false, 0, -1
	for rest := args[3:]; len(rest) > 0; {
		switch {
		case strings.EqualFold(rest[0], "WITHSCORES"):
			scores, rest = true, rest[1:]
		case strings.EqualFold(rest[0], "LIMIT") && len(rest) >= 3:
			var err, err2 error
			skip, err = strconv.Atoi(rest[1])
			limit, err2 = strconv.Atoi(rest[2])
			if err != nil || err2 != nil {
				return notInteger
			}
			rest = rest[3:]
		default:
			return syntax
		}
	}
	s, fail := value[*sortedSet](db, args[0])
	if fail != nil {
		return fail
	}
	found := []any{}
	if s == nil || skip < 0 || limit == 0 {
		return found
	}
	n := 0
	s.between(low, high, func(m member) bool {
		if skip > 0 {
			skip--
			return true
		}
		found = appendMember(found, m, scores)
		n++
		return n != limit
	})
	return found
}

func appendMember(found []any, m member, score bool) []any {
	found = append(found, m.name)
	if score {
		found = append(found, formatScore(m.score))
	}
	return found
}
