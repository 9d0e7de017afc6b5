package ttlrules

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
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
// value, or none if the member is absent. Absent and null are Inherit. Any
// other value than an integer that is -1 or from 1 to MaxSeconds is an
// ErrInvalidTTL that says what is allowed.
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
	value = bytes.TrimSpace(value)
	if len(value) == 0 || string(value) == "null" {
		return 0, nil
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil || value[0] == '+' || n < -1 || n == 0 || n > MaxSeconds {
		return 0, fmt.Errorf("%w: %s is %s: %s", ErrInvalidTTL, name, abbreviate(value), allowed)
	}
	return int32(n), nil
}

// abbreviate keeps a hostile value from filling an error message.
func abbreviate(value []byte) string {
	const longest = 40
	if len(value) <= longest {
		return strconv.QuoteToGraphic(string(value))
	}
	return strconv.QuoteToGraphic(string(value[:longest])) + "..."
}
