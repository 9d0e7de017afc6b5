// Package conditions says which values a document has for an index, and for which of them a condition of a query
// holds. It
// shares no code with package entries of lapse: it goes by encoding/json, one value at a time.
package conditions

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Value is a value of a document as an index has it: its member of the sorted set, without the id.
type Value string

// The first byte of a Value.
const (
	leftOut = iota
	null
	boolean
	number
	text
)

// LeftOut is the value of a document whose value at the pointer is not indexed.
const LeftOut = Value("\x00")

const (
	maxText     = 255
	maxElements = 32
)

// At are the values that a document has at a JSON pointer, in order and each once.
func At(body []byte, pointer string) []Value {
	var at any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if err := d.Decode(&at); err != nil {
		return nil
	}
	for _, token := range strings.Split(pointer, "/")[1:] {
		var there bool
		if at, there = child(at, strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")); !there {
			return nil
		}
	}
	elements, isArray := at.([]any)
	if !isArray {
		elements = []any{at}
	}
	if len(elements) > maxElements {
		return []Value{LeftOut}
	}
	var all []Value
	for _, element := range elements {
		v, ok := of(element)
		if !ok {
			return []Value{LeftOut}
		}
		all = append(all, v)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// child is what an object or an array has at a token of a pointer.
func child(of any, token string) (any, bool) {
	switch of := of.(type) {
	case map[string]any:
		at, there := of[token]
		return at, there
	case []any:
		i, err := strconv.Atoi(token)
		if err != nil || strconv.Itoa(i) != token || i < 0 || i >= len(of) {
			return nil, false
		}
		return of[i], true
	}
	return nil, false
}

// of is the value of what JSON has; ok is false if it is not indexed.
func of(element any) (v Value, ok bool) {
	switch e := element.(type) {
	case nil:
		return Value([]byte{null}), true
	case bool:
		if e {
			return Value([]byte{boolean, 1}), true
		}
		return Value([]byte{boolean, 0}), true
	case json.Number:
		f, err := strconv.ParseFloat(e.String(), 64)
		if err != nil {
			return LeftOut, false
		}
		bits := math.Float64bits(f + 0) // -0 becomes 0
		if bits>>63 == 0 {
			bits |= 1 << 63
		} else {
			bits = ^bits
		}
		return Value(binary.BigEndian.AppendUint64([]byte{number}, bits)), true
	case string:
		if len(e) > maxText {
			return LeftOut, false
		}
		e = strings.ReplaceAll(strings.ReplaceAll(e, "\x01", "\x01\x02"), "\x00", "\x01\x01")
		return Value(append([]byte{text}, e...)) + "\x00", true
	}
	return LeftOut, false
}

// Condition is a condition on one value.
type Condition func(Value) bool

// errUnknown is of a condition that only lapse may know.
var errUnknown = errors.New("the condition is not known")

// Parse reads a condition as a query has it.
func Parse(raw json.RawMessage) (Condition, error) {
	var asked any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&asked); err != nil {
		return nil, err
	}
	members, ok := asked.(map[string]any)
	if !ok {
		members = map[string]any{"eq": asked}
	}
	var all []Condition
	for name, of := range members {
		c, err := parseMember(name, of)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, raw)
		}
		all = append(all, c)
	}
	return func(v Value) bool {
		return v != LeftOut && !slices.ContainsFunc(all, func(c Condition) bool { return !c(v) })
	}, nil
}

func parseMember(name string, asked any) (Condition, error) {
	if name == "in" {
		list, _ := asked.([]any)
		return func(v Value) bool {
			return slices.ContainsFunc(list, func(e any) bool { end, ok := of(e); return ok && v == end })
		}, nil
	}
	end, ok := of(asked)
	if !ok {
		return nil, errUnknown
	}
	sameType := func(v Value) bool { return v[0] == end[0] }
	switch name {
	case "eq":
		return func(v Value) bool { return v == end }, nil
	case "gt":
		return func(v Value) bool { return sameType(v) && v > end }, nil
	case "gte":
		return func(v Value) bool { return sameType(v) && v >= end }, nil
	case "lt":
		return func(v Value) bool { return sameType(v) && v < end }, nil
	case "lte":
		return func(v Value) bool { return sameType(v) && v <= end }, nil
	case "prefix":
		return func(v Value) bool { return strings.HasPrefix(string(v), strings.TrimSuffix(string(end), "\x00")) }, nil
	}
	return nil, errUnknown
}

// Where are the conditions of a query, by pointer.
type Where map[string]Condition

// ParseWhere reads the property where of a query.
func ParseWhere(raw string) (Where, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal([]byte(raw), &members); err != nil {
		return nil, err
	}
	where := Where{}
	for pointer, member := range members {
		c, err := Parse(member)
		if err != nil {
			return nil, err
		}
		where[pointer] = c
	}
	return where, nil
}

// Hold reports whether all conditions hold for a document.
func (w Where) Hold(body []byte) bool {
	for pointer, c := range w {
		if !slices.ContainsFunc(At(body, pointer), c) {
			return false
		}
	}
	return true
}

// Place is the value at which a document stands in the order of a pointer: the least one for which the condition on
// that
// pointer holds, or the greatest.
func (w Where) Place(body []byte, pointer string, greatest bool) (place Value, ok bool) {
	c := w[pointer]
	for _, v := range At(body, pointer) {
		if v == LeftOut || c != nil && !c(v) {
			continue
		}
		if !ok || greatest && v > place || !greatest && v < place {
			place, ok = v, true
		}
	}
	return place, ok
}

// Compare compares the places of two documents in an order by a pointer.
func Compare(a Value, id string, b Value, other string) int {
	return cmp.Or(cmp.Compare(a, b), cmp.Compare(id, other))
}
