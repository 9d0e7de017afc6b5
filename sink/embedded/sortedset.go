package embedded

import (
	"math"
	"sort"

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

// bound is an end of a range of scores.
type bound struct {
	score float64
	open  bool // the score itself is outside
}

// rank is the number of members with lower scores, and with equalToo also of those with the
// same score.
func (s *sortedSet) rank(score float64, equalToo bool) int {
	switch {
	case math.IsInf(score, -1) && !equalToo:
		return 0
	case math.IsInf(score, 1) && equalToo:
		return s.len()
	}
	return sort.Search(s.len(), func(i int) bool {
		m, _ := s.tree.GetAt(i)
		return m.score > score || !equalToo && m.score == score
	})
}

// count is the number of members between two bounds.
func (s *sortedSet) count(low, high bound) int {
	return max(0, s.rank(high.score, !high.open)-s.rank(low.score, low.open))
}

// between visits members between two bounds, in order, until visit returns false.
func (s *sortedSet) between(low, high bound, visit func(m member) bool) {
	s.tree.Ascend(member{score: low.score}, func(m member) bool {
		switch {
		case low.open && m.score == low.score:
			return true
		case m.score > high.score || high.open && m.score == high.score:
			return false
		}
		return visit(m)
	})
}
