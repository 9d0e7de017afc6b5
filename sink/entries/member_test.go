package entries_test

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/entries"
)

// The bytes are those of the store: another form needs other entries of every document.
func TestMember(t *testing.T) {
	for _, c := range []struct {
		v    entries.Value
		id   string
		want string
	}{
		{leftOut, "id", "\x00id"},
		{null, "id", "\x01id"},
		{boolean(false), "id", "\x02\x00id"},
		{boolean(true), "id", "\x02\x01id"},
		{number(0), "id", "\x03\x80\x00\x00\x00\x00\x00\x00\x00id"},
		{number(math.Copysign(0, -1)), "id", "\x03\x80\x00\x00\x00\x00\x00\x00\x00id"},
		{number(1), "id", "\x03\xbf\xf0\x00\x00\x00\x00\x00\x00id"},
		{number(-1), "id", "\x03\x40\x0f\xff\xff\xff\xff\xff\xffid"},
		{text(""), "id", "\x04\x00id"},
		{text("c1"), "\x00\x01", "\x04c1\x00\x00\x01"},
		{text("\x00\x01\x02é"), "é", "\x04\x01\x01\x01\x02\x02é\x00é"},
	} {
		if got := entries.Member(c.v, c.id); got != c.want {
			t.Errorf("Member(%+v, %q) is %q, want %q", c.v, c.id, got, c.want)
		}
		v, id, err := entries.Parse(c.want)
		if err != nil || entries.Compare(v, c.v) != 0 || math.Signbit(v.Number) != (c.v.Number < 0) || id != c.id {
			t.Errorf("Parse(%q) is %+v, %q, %v", c.want, v, id, err)
		}
	}
}

func TestParse_Foreign(t *testing.T) {
	for _, member := range []string{
		"", "\x05a", "\x02", "\x02\x02", "\x03", "\x031234567",
		"\x03\x7f\xff\xff\xff\xff\xff\xff\xffid", // -0
		"\x03\xff\xf0\x00\x00\x00\x00\x00\x00",   // infinite
		"\x03\x00\x0f\xff\xff\xff\xff\xff\xff",   // less than all
		"\x03\xff\xff\xff\xff\xff\xff\xff\xff",   // not a number
		"\x04", "\x04abc", "\x04a\x01\x00", "\x04a\x01\x03\x00",
	} {
		if v, id, err := entries.Parse(member); err == nil || v != (entries.Value{}) || id != "" {
			t.Errorf("Parse(%q) is %+v, %q, %v", member, v, id, err)
		}
	}
}

// valueOf makes a value of any kind from what a fuzz test has.
func valueOf(kind byte, n float64, s string) entries.Value {
	switch v := (entries.Value{Kind: entries.Kind(kind % 5)}); v.Kind {
	case entries.Boolean:
		return boolean(len(s)%2 == 0)
	case entries.Number:
		if math.IsNaN(n) || math.IsInf(n, 0) || n == 0 {
			n = 0
		}
		return number(n)
	case entries.String:
		return text(s)
	default:
		return v
	}
}

// FuzzMember: Parse reads what Member wrote, and nothing else; the order of the bytes is that of value and id.
func FuzzMember(f *testing.F) {
	f.Add(byte(4), byte(4), 1.5, -2.5, "a", "a\x00", "id", "\x01id")
	f.Add(byte(3), byte(3), 0.0, math.Copysign(0, -1), "", "\x01", "x", "")
	f.Add(byte(3), byte(4), math.MaxFloat64, 5e-324, "\x00\x01\x01", "\x00\x01", "\x00", "\x01\x01")
	f.Fuzz(func(t *testing.T, k1, k2 byte, n1, n2 float64, s1, s2, id1, id2 string) {
		a, b := valueOf(k1, n1, s1), valueOf(k2, n2, s2)
		m1, m2 := entries.Member(a, id1), entries.Member(b, id2)
		for _, c := range []struct {
			v      entries.Value
			id, of string
		}{{a, id1, m1}, {b, id2, m2}} {
			if v, id, err := entries.Parse(c.of); err != nil || v != c.v || id != c.id {
				t.Errorf("Parse(%q) is %+v, %q, %v, want %+v, %q", c.of, v, id, err, c.v, c.id)
			}
		}
		if got, want := strings.Compare(m1, m2), cmp.Or(entries.Compare(a, b), strings.Compare(id1, id2)); got != want {
			t.Errorf("%q and %q compare as %d, want %d", m1, m2, got, want)
		}
		if v, id, err := entries.Parse(s1); err == nil && entries.Member(v, id) != s1 {
			t.Errorf("Parse(%q) is %+v, %q, which is written %q", s1, v, id, entries.Member(v, id))
		}
	})
}

// checkRanges checks that a value is held if and only if its entries lie in one of the ranges, whatever their ids.
func checkRanges(t *testing.T, c entries.Condition, values []entries.Value) {
	t.Helper()
	ranges := c.Ranges()
	for i, r := range ranges {
		if r.From >= r.To || i > 0 && r.From < ranges[i-1].To {
			t.Fatalf("%+v has the ranges %q", c, ranges)
		}
	}
	for _, v := range values {
		for _, id := range []string{"", "\x00", "a", "\x01\x01", "\xff\xff\xff"} {
			m := entries.Member(v, id)
			in := slices.ContainsFunc(ranges, func(r entries.Range) bool { return r.From <= m && m < r.To })
			if in != c.Holds(v) {
				t.Fatalf("%+v holds for %+v: %t, but its entry %q is in the ranges %q: %t",
					c, v, c.Holds(v), m, ranges, in)
			}
		}
	}
}

// FuzzRanges compares Holds with Ranges.
func FuzzRanges(f *testing.F) {
	f.Add(byte(4), byte(4), 1.5, -2.5, "a", "a\x00", byte(3), 1.0, "a\x00b")
	f.Add(byte(3), byte(3), 1.5, 2.5, "", "\x01", byte(4), 2.0, "\xff")
	f.Fuzz(func(t *testing.T, k1, k2 byte, n1, n2 float64, s1, s2 string, k byte, n float64, s string) {
		a, b := valueOf(k1, n1, s1), valueOf(k2, n2, s2)
		values := list(a, b, valueOf(k, n, s), valueOf(k+1, n, s), leftOut, null, boolean(true), number(0), text(""),
			text(s1+s2), text(s1+"\x00"), text(s1+"\x01"), text("\x00"), number(math.MaxFloat64),
			number(-math.MaxFloat64), number(math.Nextafter(a.Number, 1)), number(math.Nextafter(b.Number, -1)))
		conditions := []entries.Condition{{}, {Prefix: &s1}}
		if a.Kind != entries.LeftOut && b.Kind != entries.LeftOut {
			in := slices.Compact(slices.SortedFunc(slices.Values(list(a, b)), entries.Compare))
			conditions = append(conditions, entries.Condition{In: in}, entries.Condition{In: in[:1]})
		}
		isEnd := func(v entries.Value) bool { return v.Kind == entries.Number || v.Kind == entries.String }
		for _, equal := range []bool{false, true} {
			if isEnd(a) {
				conditions = append(conditions, entries.Condition{Over: &a, OverEqual: equal},
					entries.Condition{Under: &a, UnderEqual: equal})
			}
			if isEnd(a) && isEnd(b) {
				conditions = append(conditions, entries.Condition{Over: &a, OverEqual: equal, Under: &b},
					entries.Condition{Over: &a, OverEqual: equal, Under: &b, UnderEqual: true})
			}
		}
		for _, c := range conditions {
			checkRanges(t, c, values)
		}
	})
}
