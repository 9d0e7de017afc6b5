package wire

import (
	"fmt"
	"strings"
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
		err = fmt.Errorf("a document that was created at %s has no clock that began at %s: use an instant that is not after that, and after 1970", created, begin)
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
