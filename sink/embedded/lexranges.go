package embedded

import (
	"sort"
	"strconv"
	"strings"
)

// nameBound is an end of a range of names, in a sorted set whose members all have the same score.
type nameBound struct {
	name  string
	open  bool // the name itself is outside
	least bool // before all names
	most  bool // after all names
}

// parseNameBound reads an end as Redis takes it: - or +, or a name behind [ or (.
func parseNameBound(s string) (b nameBound, right bool) {
	switch {
	case s == "-":
		return nameBound{least: true}, true
	case s == "+":
		return nameBound{most: true}, true
	case s == "" || s[0] != '(' && s[0] != '[':
		return b, false
	}
	return nameBound{name: s[1:], open: s[0] == '('}, true
}

func parseNameBounds(from, to string) (low, high nameBound, fail any) {
	low, lowRight := parseNameBound(from)
	high, highRight := parseNameBound(to)
	if !lowRight || !highRight {
		return low, high, failure("ERR min or max not valid string range item")
	}
	return low, high, nil
}

// below is the number of members whose names come before a bound, and with equalToo also of the one at it.
func (s *sortedSet) below(b nameBound, equalToo bool) int {
	switch {
	case b.least:
		return 0
	case b.most:
		return s.len()
	}
	return sort.Search(s.len(), func(i int) bool {
		m, _ := s.tree.GetAt(i)
		return m.name > b.name || !equalToo && m.name == b.name
	})
}

// ranks are the ranks from the first member between two bounds up to the last one, which is not among them.
func (s *sortedSet) ranks(low, high nameBound) (from, to int) {
	from, to = s.below(low, low.open), s.below(high, !high.open)
	return from, max(from, to)
}

func zLexCount(db *database, args []string) any {
	low, high, fail := parseNameBounds(args[1], args[2])
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
	from, to := s.ranks(low, high)
	return to - from
}

func zRangeByLex(db *database, args []string) any {
	return rangeByLex(db, args, args[1], args[2], false)
}

func zRevRangeByLex(db *database, args []string) any {
	return rangeByLex(db, args, args[2], args[1], true)
}

func rangeByLex(db *database, args []string, lowest, highest string, reverse bool) any {
	skip, limit := 0, -1
	for rest := args[3:]; len(rest) > 0; rest = rest[3:] {
		if !strings.EqualFold(rest[0], "LIMIT") || len(rest) < 3 {
			return syntax
		}
		var err, err2 error
		skip, err = strconv.Atoi(rest[1])
		limit, err2 = strconv.Atoi(rest[2])
		if err != nil || err2 != nil {
			return notInteger
		}
	}
	low, high, fail := parseNameBounds(lowest, highest)
	if fail != nil {
		return fail
	}
	s, fail := value[*sortedSet](db, args[0])
	if fail != nil {
		return fail
	}
	found := []any{}
	if s == nil || skip < 0 {
		return found
	}
	from, to := s.ranks(low, high)
	for n := skip; n < to-from && len(found) != limit; n++ {
		rank := from + n
		if reverse {
			rank = to - 1 - n
		}
		m, _ := s.tree.GetAt(rank)
		found = append(found, m.name)
	}
	return found
}
