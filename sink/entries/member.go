package entries

import (
	"encoding/binary"
	"errors"
	"math"
	"strings"
)

// A member is the byte of the kind, the value in the form of its kind, and the id. A boolean is the byte 0 or 1; a
// number 8 bytes; a string its bytes and endOfText, with an escape for the two bytes that would look like endOfText or
// an escape.
const (
	endOfText                     = 0
	escapeByte                    = 1 // before the byte that stands for an endOfText or an escapeByte of the string
	standsForEnd, standsForEscape = 1, 2
	numberBytes                   = 8
	signBit                       = 1 << 63
)

// Member is the entry of a document with a value in an index: a text that Redis orders by value, then by id.
func Member(v Value, id string) string {
	b := make([]byte, 0, 1+numberBytes+len(v.Text)+len(id))
	return string(append(appendValue(b, v), id...))
}

// appendValue appends what the members of a value begin with.
func appendValue(b []byte, v Value) []byte {
	b = append(b, byte(v.Kind))
	switch v.Kind {
	case Boolean:
		if v.Bool {
			return append(b, 1)
		}
		return append(b, 0)
	case Number:
		return binary.BigEndian.AppendUint64(b, sortable(v.Number))
	case String:
		return append(appendText(b, v.Text), endOfText)
	}
	return b
}

// appendText appends a string without its end.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		switch c := text[i]; c {
		case endOfText:
			b = append(b, escapeByte, standsForEnd)
		case escapeByte:
			b = append(b, escapeByte, standsForEscape)
		default:
			b = append(b, c)
		}
	}
	return b
}

// sortable returns a number whose bytes are in the order of the floating point numbers. -0 is 0.
func sortable(n float64) uint64 {
	bits := math.Float64bits(positive(n))
	if bits&signBit != 0 {
		return ^bits
	}
	return bits | signBit
}

var errMember = errors.New("the entry of an index is not one that lapse wrote")

// Parse reads a member.
func Parse(member string) (v Value, id string, err error) {
	if member == "" {
		return Value{}, "", errMember
	}
	v.Kind = Kind(member[0])
	rest := member[1:]
	ok := true
	switch v.Kind {
	case LeftOut, Null:
	case Boolean:
		if ok = rest != "" && rest[0] <= 1; ok {
			v.Bool, rest = rest[0] == 1, rest[1:]
		}
	case Number:
		v.Number, rest, ok = parseNumber(rest)
	case String:
		v.Text, rest, ok = parseText(rest)
	default:
		ok = false
	}
	if !ok {
		return Value{}, "", errMember
	}
	return v, rest, nil
}

func parseNumber(s string) (n float64, rest string, ok bool) {
	if len(s) < numberBytes {
		return 0, "", false
	}
	sorted := binary.BigEndian.Uint64([]byte(s[:numberBytes]))
	bits := ^sorted
	if sorted&signBit != 0 {
		bits = sorted &^ signBit
	}
	n = math.Float64frombits(bits)
	return n, s[numberBytes:], !math.IsNaN(n) && !math.IsInf(n, 0) && sortable(n) == sorted
}

func parseText(s string) (text, rest string, ok bool) {
	end := strings.IndexByte(s, endOfText)
	if end < 0 {
		return "", "", false
	}
	text, rest = s[:end], s[end+1:]
	if strings.IndexByte(text, escapeByte) < 0 {
		return text, rest, true
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == escapeByte {
			if i++; i == len(text) || text[i] != standsForEnd && text[i] != standsForEscape {
				return "", "", false
			}
			c = text[i] - 1 // endOfText or escapeByte
		}
		b.WriteByte(c)
	}
	return b.String(), rest, true
}
