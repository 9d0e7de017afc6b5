package embedded

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/tidwall/btree"
)

// sortedSet is members in the order of their scores, then of their names.
type sortedSet struct {
	scores map[string]float64
	tree   *btree.BTreeG[member]
}

type member struct {
	score float64
	name  string
}

func newSortedSet() *sortedSet {
	return &sortedSet{map[string]float64{}, btree.NewBTreeGOptions(func(a, b member) bool {
		return a.score < b.score || a.score == b.score && a.name < b.name
	}, unlocked)}
}

func (s *sortedSet) len() int { return len(s.scores) }

// set reports whether the member is new.
func (s *sortedSet) set(name string, score float64) bool {
	old, there := s.scores[name]
	if there && old == score {
		return false
	}
	if there {
		s.tree.Delete(member{old, name})
	}
	s.scores[name] = score
	s.tree.Set(member{score, name})
	return !there
}

// remove reports whether the member was there.
func (s *sortedSet) remove(name string) bool {
	score, there := s.scores[name]
	if there {
		delete(s.scores, name)
		s.tree.Delete(member{score, name})
	}
	return there
}

// bound is an end of a range of members.
type bound struct {
	compare func(member) int // a member with the bound: as cmp.Compare
	open    bool             // what is at the bound is outside
}

// below is the number of members that come before a bound, and with equalToo also of those at it.
func (s *sortedSet) below(b bound, equalToo bool) int {
	outside := func(i int) bool {
		m, _ := s.tree.GetAt(i)
		c := b.compare(m)
		return c > 0 || !equalToo && c == 0
	}
	switch n := s.len(); {
	case n == 0 || outside(0):
		return 0
	case !outside(n - 1):
		return n
	default:
		return sort.Search(n, outside)
	}
}

// ranks are the ranks from the first member between two bounds up to the last one, which is not among them.
func (s *sortedSet) ranks(low, high bound) (from, to int) {
	from, to = s.below(low, low.open), s.below(high, !high.open)
	return from, max(from, to)
}

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

// parser reads an end of a range.
type parser func(end string) (b bound, right bool)

// byScore reads an end of a range of scores: a score, or one after "(", which is then outside.
func byScore(end string) (b bound, right bool) {
	end, b.open = strings.CutPrefix(end, "(")
	score, right := parseScore(end)
	b.compare = func(m member) int { return cmp.Compare(m.score, score) }
	return b, right
}

// byName reads an end of a range of names, in a sorted set whose members all have the same score: - or +, or a name
// behind [ or (.
func byName(end string) (b bound, right bool) {
	switch {
	case end == "-":
		return bound{compare: func(member) int { return 1 }}, true
	case end == "+":
		return bound{compare: func(member) int { return -1 }}, true
	case end == "" || end[0] != '(' && end[0] != '[':
		return b, false
	}
	return bound{func(m member) int { return strings.Compare(m.name, end[1:]) }, end[0] == '('}, true
}

// span finds a sorted set, and the ranks of its members between two ends. It has none if there is no such key.
func span(db *database, key, from, to string, parse parser, wrong failure) (s *sortedSet, first, after int, fail any) {
	low, lowRight := parse(from)
	high, highRight := parse(to)
	if !lowRight || !highRight {
		return nil, 0, 0, wrong
	}
	if s, fail = value[*sortedSet](db, key); s != nil {
		first, after = s.ranks(low, high)
	}
	return s, first, after, fail
}

const (
	noScores failure = "ERR min or max is not a float"
	noNames  failure = "ERR min or max not valid string range item"
)

func zCount(db *database, args []string) any { return count(db, args, byScore, noScores) }

func zLexCount(db *database, args []string) any { return count(db, args, byName, noNames) }

func count(db *database, args []string, parse parser, wrong failure) any {
	_, first, after, fail := span(db, args[0], args[1], args[2], parse, wrong)
	if fail != nil {
		return fail
	}
	return after - first
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
	return rangeBy(db, args, byScore, noScores, false)
}

func zRangeByLex(db *database, args []string) any {
	return rangeBy(db, args, byName, noNames, false)
}

// zRevRangeByLex takes the highest end first.
func zRevRangeByLex(db *database, args []string) any {
	args = slices.Clone(args)
	args[1], args[2] = args[2], args[1]
	return rangeBy(db, args, byName, noNames, true)
}

// rangeBy replies with the members between two ends. Scores go with a range of scores alone.
func rangeBy(db *database, args []string, parse parser, wrong failure, reverse bool) any {
	scores, skip, limit := false, 0, -1
	for rest := args[3:]; len(rest) > 0; {
		switch {
		case wrong == noScores && strings.EqualFold(rest[0], "WITHSCORES"):
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
	s, first, after, fail := span(db, args[0], args[1], args[2], parse, wrong)
	if fail != nil {
		return fail
	}
	found := []any{}
	if skip < 0 {
		return found
	}
	for n := skip; n < after-first && n-skip != limit; n++ {
		rank := first + n
		if reverse {
			rank = after - 1 - n
		}
		m, _ := s.tree.GetAt(rank)
		found = appendMember(found, m, scores)
	}
	return found
}

func appendMember(found []any, m member, score bool) []any {
	found = append(found, m.name)
	if score {
		found = append(found, formatScore(m.score))
	}
	return found
}
