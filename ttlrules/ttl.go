package ttlrules

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSeconds is the longest TTL: 2147483647 seconds, a little over 68 years.
const MaxSeconds = 1<<31 - 1

// TTL is an item's own time to live: Inherit, Never, or a number of whole seconds from 1 to MaxSeconds.
type TTL int32

const (
	// Inherit means that the item has no TTL of its own: its collection's default counts.
	Inherit TTL = 0
	// Never means that the item does not expire, whatever the default is. A later write may give it another TTL.
	Never TTL = -1
)

// Default is a collection's default time to live: Off, NoDefault, or a number of whole seconds from 1 to MaxSeconds.
type Default int32

const (
	// Off means that nothing in the collection expires, items with a TTL of their own included.
	Off Default = 0
	// NoDefault means that TTL is on, and that only items with a TTL of their own expire (-1 on the wire).
	NoDefault Default = -1
)

// ErrInvalidTTL is wrapped by every error of ParseTTL and ParseDefault.
var ErrInvalidTTL = errors.New("invalid TTL")

// invalidTTL is the sentence that the client receives.
type invalidTTL string

func (e invalidTTL) Error() string { return string(e) }
func (invalidTTL) Unwrap() error   { return ErrInvalidTTL }

// ParseTTL parses the value of an item's "ttl" member: the bytes of one JSON value, or none if the member is absent. It
// ignores JSON's white space around the value. Absent and null are Inherit, -1 is Never, an integer from 1 to
// MaxSeconds is that many seconds. Every other value (0, 60.0 and "60" too) is an ErrInvalidTTL. The text of the error
// quotes the value, on one line, and says what to use.
//
// While TTL is off in a collection, nobody interprets its items' ttl: then an error
// of ParseTTL is no reason to reject the item, which counts as Inherit.
func ParseTTL(value []byte) (TTL, error) {
	n, ok := parseSeconds(value)
	if !ok {
		return 0, invalid("ttl", value, "or -1 for never.")
	}
	return TTL(n), nil
}

// ParseDefault parses the value of a configuration's "defaultTtl" member, as
// ParseTTL does. Absent and null are Off, -1 is NoDefault.
func ParseDefault(value []byte) (Default, error) {
	n, ok := parseSeconds(value)
	if !ok {
		return 0, invalid("defaultTtl", value, "-1 to turn TTL on without a default, or null to turn it off.")
	}
	return Default(n), nil
}

func parseSeconds(value []byte) (n int32, ok bool) {
	value = trim(value)
	if len(value) == 0 || string(value) == "null" {
		return 0, true
	}
	seconds, err := strconv.ParseInt(string(value), 10, 64)
	// Go parses +1 and 007 too, which JSON does not have. Each number has one spelling.
	if err != nil || !inRange(float64(seconds)) || strconv.FormatInt(seconds, 10) != string(value) {
		return 0, false
	}
	return int32(seconds), true
}

// trim cuts off JSON's white space. Unicode has more kinds of it.
func trim(value []byte) []byte { return bytes.Trim(value, " \t\r\n") }

func inRange(seconds float64) bool {
	return seconds == -1 || seconds >= 1 && seconds <= MaxSeconds && seconds == math.Trunc(seconds)
}

// invalid makes the error about a value. If the number is valid and only its spelling is wrong, the error says so.
func invalid(name string, value []byte, others string) error {
	value = trim(value)
	text := name + " " + abbreviate(value) + " is not valid: use a whole number of seconds from 1 to 2147483647, " +
		others
	if n, err := strconv.ParseFloat(string(bytes.Trim(value, `"`)), 64); err == nil && inRange(n) {
		text += " Write it without quotes, fraction or exponent."
	}
	return invalidTTL(text)
}

// abbreviate shows a value as the client sent it, so that the client can tell 60.0 from "60". It cuts long values and
// escapes line breaks, so that a hostile value cannot fill an error message or break it into lines.
func abbreviate(value []byte) string {
	const longest = 40
	var b strings.Builder
	for i := 0; i < len(value); {
		r, size := utf8.DecodeRune(value[i:])
		if i+size > longest {
			b.WriteString("...")
			break
		}
		if part := string(value[i : i+size]); r == utf8.RuneError || !unicode.IsPrint(r) {
			b.WriteString(strings.Trim(strconv.Quote(part), `"`))
		} else {
			b.WriteString(part)
		}
		i += size
	}
	return b.String()
}
