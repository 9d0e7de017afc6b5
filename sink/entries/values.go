package entries

import (
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
)

const (
	MaxElements = 32  // of an array
	MaxValue    = 255 // bytes of a string
)

// Value is a value of a document.
type Value struct {
	Kind   Kind
	Bool   bool
	Number float64
	Text   string
}

// Kind is the type of a value. Values of a lower kind come first.
type Kind byte

// The kinds. Of LeftOut is the one entry of a document whose value at the pointer is not indexed.
const (
	LeftOut Kind = iota
	Null
	Boolean
	Number
	String
)

// Compare compares two values by their kinds, then by what they are. It returns -1, 0 or 1, as cmp.Compare does.
func Compare(a, b Value) int {
	if a.Kind != b.Kind {
		return cmp.Compare(a.Kind, b.Kind)
	}
	switch a.Kind {
	case Boolean:
		switch {
		case a.Bool == b.Bool:
			return 0
		case b.Bool:
			return -1
		}
		return 1
	case Number:
		return cmp.Compare(a.Number, b.Number)
	case String:
		return strings.Compare(a.Text, b.Text)
	}
	return 0
}

// errBody is the error about a body that is not what lapse stores.
var errBody = errors.New("the body is not a JSON object")

// Of returns the values that a document has at each of some pointers (RFC 6901): each list is in order and has no value
// twice. It is nil if there is nothing at the pointer, and has one of LeftOut alone if what is there is not indexed.
//
// The body is a valid JSON object in UTF-8, as every stored one. Of does not find every fault of one that is not.
func Of(body []byte, pointers []string) ([][]Value, error) {
	of := make([][]Value, len(pointers))
	values := make([]Value, 0, len(pointers)) // of all pointers, one after the other
	for from := 0; from < len(pointers); from += atOnce {
		f := finder{body: body, pointers: pointers[from:min(len(pointers), from+atOnce)]}
		if !f.find() {
			return nil, errBody
		}
		for p := range f.pointers {
			if f.found[p] == 0 {
				continue
			}
			before, ok := len(values), false
			if values, ok = appendValues(values, body, f.found[p]); !ok {
				return nil, errBody
			}
			if len(values) > before {
				of[from+p] = values[before:len(values):len(values)]
			}
		}
	}
	return of, nil
}

// appendValues appends the values of what begins at i.
func appendValues(values []Value, b []byte, i int) (all []Value, ok bool) {
	before := len(values)
	switch b[i] {
	case '{':
		return append(values, Value{}), true
	case '[':
	default:
		v, end := readValue(b, i)
		return append(values, v), end != broken
	}
	i = skipSpace(b, i+1)
	for n := 1; i < len(b) && b[i] != ']'; n++ {
		v, end := readValue(b, i)
		if v.Kind == LeftOut || n > MaxElements {
			return append(values[:before], Value{}), end != broken
		}
		values = append(values, v)
		if i = skipSpace(b, end); i < len(b) && b[i] == ',' {
			i = skipSpace(b, i+1)
		}
	}
	elements := values[before:]
	if len(elements) > 1 {
		slices.SortFunc(elements, Compare)
		elements = slices.Compact(elements)
	}
	return values[:before+len(elements)], i < len(b)
}

// readValue reads the value that begins at i, and returns the index after it. The value is of LeftOut if an index does
// not have such values.
func readValue(b []byte, i int) (v Value, end int) {
	if end = skipValue(b, i); end == broken {
		return v, broken
	}
	switch text := b[i:end]; text[0] {
	case '{', '[':
	case '"':
		if s, ok := readString(text); ok && len(s) <= MaxValue {
			v = Value{Kind: String, Text: s}
		}
	case 'n':
		v.Kind = Null
	case 't', 'f':
		v = Value{Kind: Boolean, Bool: text[0] == 't'}
	default:
		n, err := strconv.ParseFloat(string(text), 64)
		switch {
		case errors.Is(err, strconv.ErrSyntax):
			return v, broken
		case err == nil && !math.IsInf(n, 0) && !math.IsNaN(n):
			v = Value{Kind: Number, Number: positive(n)}
		}
	}
	return v, end
}

// positive makes 0 of -0.
func positive(n float64) float64 {
	if n == 0 {
		return 0
	}
	return n
}

// longestEscape is the most bytes that JSON needs for a byte of a string: \u0000.
const longestEscape = 6

// readString reads a JSON string, unless it is certainly longer than MaxValue.
func readString(text []byte) (string, bool) {
	inner := text[1 : len(text)-1]
	if len(inner) > MaxValue*longestEscape {
		return "", false
	}
	if !escaped(inner) {
		if len(inner) > MaxValue {
			return "", false
		}
		return string(inner), true
	}
	var s string
	return s, json.Unmarshal(text, &s) == nil
}
