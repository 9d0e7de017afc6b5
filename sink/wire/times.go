package wire

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// clockCreated is between the instants of HeaderClock.
const clockCreated = "; created="

// ParseClock reads a HeaderClock that is an instant, "2026-01-31T18:00:00Z", or has behind it when the document was
// created, "2026-01-31T18:00:00Z; created=2026-01-31T09:00:00Z": then its maxLife counts from there. That is not after
// the beginning of the clock, and 0 if it is not named.
func ParseClock(s string) (begin, created Time, err error) {
	from, first, names := strings.Cut(s, clockCreated)
	if begin, err = ParseInstant(from); err != nil || !names {
		return begin, 0, err
	}
	if created, err = ParseInstant(first); err == nil && (created < 1 || created > begin) {
		err = fmt.Errorf("a document that was created at %s has no clock that began at %s: use an instant that is not "+
			"after that, and after 1970", created, begin)
	}
	return begin, created, err
}

// FormatClock writes what ParseClock reads. Each instant is as in RFC 3339; created is empty if it is not known.
func FormatClock(begin, created string) string {
	if begin == "" || created == "" {
		return begin
	}
	return begin + clockCreated + created
}

// ParseDuration reads a duration as Go writes it, such as 90s or 1h30m, or a whole
// number of days, such as 7d. It may be 0, but not negative.
func ParseDuration(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 64); err == nil && n <= uint64(math.MaxInt64/day) {
			return time.Duration(n) * day, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a valid duration: use one such as 90s, 12h or 7d", abbreviate(s))
	}
	return d, nil
}

// Time is an instant in Unix milliseconds, written as RFC 3339 in UTC with
// milliseconds. Any RFC 3339 can be read; the fraction of a millisecond is dropped. Where
// JSON leaves a Time out, the zero Time, 1970, means that there is none.
type Time int64

func (t Time) String() string { return string(t.append(nil)) }

// append appends the time. Package time is quick with its own layout alone, which lacks the milliseconds.
func (t Time) append(b []byte) []byte {
	at := time.UnixMilli(int64(t)).UTC()
	b = at.AppendFormat(b, time.RFC3339)
	ms := at.Nanosecond() / 1e6
	return append(b[:len(b)-1], '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), 'Z')
}

// MarshalText implements [encoding.TextMarshaler].
func (t Time) MarshalText() ([]byte, error) { return t.append(nil), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Time) UnmarshalText(b []byte) error {
	at, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil {
		return err
	}
	*t = Time(at.UnixMilli())
	return nil
}

// rfc3339 is the form of an instant. Package time is less strict: it takes 8:00 for 08:00, and a comma
// for the point.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)

// ParseInstant reads an instant as in RFC 3339. It rounds a fraction of a millisecond up, because
// nothing may expire before its deadline.
func ParseInstant(s string) (Time, error) {
	at, err := time.Parse(time.RFC3339Nano, s)
	if err == nil && !rfc3339.MatchString(s) {
		err = errors.New("not as in RFC 3339")
	}
	if err != nil {
		return 0, err
	}
	return Time(at.Add(time.Millisecond - 1).UnixMilli()), nil
}
