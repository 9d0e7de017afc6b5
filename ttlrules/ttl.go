package ttlrules

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// MaxSeconds is the longest TTL: 2147483647 seconds, a little over 68 years.
const MaxSeconds = 1<<31 - 1

// TTL is an item's own time to live: Inherit, Never, or a number of whole
// seconds from 1 to MaxSeconds.
type TTL int32

const (
	// Inherit means that the item says nothing: its collection's default counts.
	Inherit TTL = 0
	// Never means that the item does not expire, whatever the default (unless
	// it is replaced).
	Never TTL = -1
)

// Default is a collection's default time to live: Off, NoDefault, or a number
// of whole seconds from 1 to MaxSeconds.
type Default int32

const (
	// Off means that nothing in the collection expires, items with a TTL of
	// their own included.
	Off Default = 0
	// NoDefault means that TTL is on, and that only items with a TTL of their
	// own expire (-1 on the wire).
	NoDefault Default = -1
)

// ErrInvalidTTL is wrapped by every error of ParseTTL and ParseDefault.
var ErrInvalidTTL = errors.New("invalid TTL")

const allowed = "allowed are -1, a whole number of seconds from 1 to 2147483647 (written without fraction or exponent), or null"

// ParseTTL reads the value of an item's "ttl" member: the bytes of one JSON
// value, or none if the member is absent. JSON's white space around it counts
// for nothing. Absent and null are Inherit. Any other value than an integer that
// is -1 or from 1 to MaxSeconds, 0 and 60.0 and "60" included, is an
// ErrInvalidTTL that quotes the value, on one line, and says what is allowed.
//
// While TTL is off in a collection, its items' ttl is not interpreted: then an
// error from here is no reason to reject the item, which counts as Inherit.
func ParseTTL(value []byte) (TTL, error) {
	n, err := parseSeconds("ttl", value)
	return TTL(n), err
}

// ParseDefault reads the value of a configuration's "defaultTtl" member, as
// ParseTTL does. Absent and null are Off.
func ParseDefault(value []byte) (Default, error) {
	n, err := parseSeconds("defaultTtl", value)
	return Default(n), err
}

func parseSeconds(name string, value []byte) (int32, error) {
	value = bytes.Trim(value, " \t\r\n") // what JSON takes for white space, which is less than Unicode does
	if len(value) == 0 || string(value) == "null" {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	// Go reads +1 and 007 too, which are no JSON: what is allowed has one spelling.
	if err != nil || n < -1 || n == 0 || n > MaxSeconds || strconv.FormatInt(n, 10) != string(value) {
		return 0, fmt.Errorf("%w: %s is %s: %s", ErrInvalidTTL, name, abbreviate(value), allowed)
	}
	return int32(n), nil
}

// abbreviate shows a value as it was sent, so that 60.0 and "60" can be told
// apart, but keeps a hostile one from filling an error message or breaking it
// into lines.
func abbreviate(value []byte) string {
	const longest = 40
	more := ""
	if len(value) > longest {
		value, more = value[:longest], "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return unicode.ReplacementChar
		}
		return r
	}, string(value)) + more
}
