package entries

import (
	"slices"
	"strings"
)

// Condition is a condition on the values at a pointer. It holds for a document if it holds for one of them. The zero
// Condition of a pointer holds for every value.
type Condition struct {
	Pointer string
	// In has the values of which one is to be equal, in order and each once; nil if the condition is not of this kind.
	In []Value
	// Over and Under are the ends of a range, nil if it has none. Values of another type are in no range.
	Over, Under           *Value
	OverEqual, UnderEqual bool
	// Prefix is what a string is to begin with; nil if the condition is not of this kind.
	Prefix *string
}

// Holds reports whether the condition holds for one value.
func (c Condition) Holds(v Value) bool {
	if v.Kind == LeftOut {
		return false
	}
	if c.In != nil {
		_, found := slices.BinarySearchFunc(c.In, v, Compare)
		return found
	}
	if c.Prefix != nil {
		return v.Kind == String && strings.HasPrefix(v.Text, *c.Prefix)
	}
	return (c.Over == nil || within(v, *c.Over, 1, c.OverEqual)) &&
		(c.Under == nil || within(v, *c.Under, -1, c.UnderEqual))
}

// within reports whether a value is on one side of an end of a range: side is 1 above it, and -1 below it.
func within(v, end Value, side int, equal bool) bool {
	if v.Kind != end.Kind {
		return false
	}
	is := Compare(v, end)
	return is == side || is == 0 && equal
}

// HoldsFor reports whether the condition holds for one of the values at its pointer.
func (c Condition) HoldsFor(values []Value) bool { return slices.ContainsFunc(values, c.Holds) }

// Range is a part of an index: the members m with From <= m < To, by their bytes. Before every id of a value v comes
// Member(v, "").
type Range struct{ From, To string }

// Ranges are the parts of an index of the pointer for whose values the condition holds, in the order of the index. They
// do not overlap.
func (c Condition) Ranges() []Range {
	switch {
	case c.In != nil:
		ranges := make([]Range, len(c.In))
		for i, v := range c.In {
			ranges[i] = Range{From: Member(v, ""), To: behind(appendValue(nil, v))}
		}
		return ranges
	case c.Prefix != nil:
		b := appendText([]byte{byte(String)}, *c.Prefix)
		return []Range{{From: string(b), To: behind(b)}}
	}
	if c.Over != nil && c.Under != nil && c.Over.Kind != c.Under.Kind {
		return nil
	}
	r := Range{From: string([]byte{byte(Null)}), To: behind([]byte{byte(String)})}
	switch {
	case c.Over != nil:
		r.To = behind([]byte{byte(c.Over.Kind)})
	case c.Under != nil:
		r.From = string([]byte{byte(c.Under.Kind)})
	}
	if c.Over != nil {
		if b := appendValue(nil, *c.Over); c.OverEqual {
			r.From = string(b)
		} else {
			r.From = behind(b)
		}
	}
	if c.Under != nil {
		if b := appendValue(nil, *c.Under); c.UnderEqual {
			r.To = behind(b)
		} else {
			r.To = string(b)
		}
	}
	if r.From >= r.To {
		return nil
	}
	return []Range{r}
}

// behind is the least text that comes after every text with a prefix. The prefix begins with a kind, so that there is
// such a text.
func behind(prefix []byte) string {
	last := len(prefix) - 1
	for prefix[last] == 0xff {
		last--
	}
	return string(prefix[:last]) + string([]byte{prefix[last] + 1})
}
