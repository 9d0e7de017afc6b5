package oracle

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// asked is what a write says of the clock of its version.
type asked struct {
	keep  bool
	begin *wire.Time
	born  *wire.Time // when the document was created
	wrong bool       // that is no instant, or is after begin
	end   *wire.Time
	last  *wire.Time
	ttl   json.RawMessage // in the message's own body; nil if it names none
}

func (m *Model) askedOf(msg Message) asked {
	members, _ := object(msg.Data)
	from, born, names := strings.Cut(header(msg, "Lapse-Clock"), "; created=")
	a := asked{keep: from == "keep", begin: moment(from), born: moment(born),
		end: moment(header(msg, "Lapse-Expires-At")), last: moment(header(msg, "Lapse-Not-After")), ttl: members["ttl"]}
	a.wrong = names && (a.begin == nil || a.born == nil || *a.born < 1 || *a.born > *a.begin)
	return a
}

var instants = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`)

// moment reads an instant, and rounds it up to a millisecond; nil if it is none.
func moment(text string) *wire.Time {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || !instants.MatchString(text) {
		return nil
	}
	ms := wire.Time(at.UnixMilli())
	if at.Nanosecond()%1e6 != 0 {
		ms++
	}
	return &ms
}

// early and late are the first and the last deadline that a write may name.
func early(now wire.Time) wire.Time { return now + 1 }
func late(now wire.Time) wire.Time  { return now + 2147483647*1000 }

// inRange reports whether the instants that the write names may count, if it names any.
func (a asked) inRange(now wire.Time) bool {
	first, last := early(now), late(now)
	if a.begin != nil { // it brings over a version, which may be over
		first, last = 1, late(*a.begin)
	}
	for _, at := range []*wire.Time{a.end, a.last} {
		if at != nil && (*at < first || *at > last) {
			return false
		}
	}
	return true
}

// faults returns the codes with which lapse may reject the clock that a write at an instant asks for.
func (a asked) faults(c Collection, now wire.Time) []int {
	own, _ := ttl(a.ttl)
	if a.wrong || a.last != nil && (a.end != nil || own < 1 && a.begin == nil) {
		return badRequest
	}
	began := now
	if a.begin != nil {
		if began = *a.begin; began < 1 || began > now {
			return badRequest
		}
	}
	both := a.end != nil && a.ttl != nil && string(a.ttl) != "null" && a.begin == nil
	if both || c.Default != 0 && !a.inRange(now) {
		return badRequest
	}
	length, says := int64(own)*1000, own > 0
	if a.end != nil {
		length, says = int64(*a.end-began), true
	}
	tooShort := c.Min != 0 && says && length < int64(c.Min)*1000
	tooLong := c.Max != 0 && (own == -1 || says && length > int64(c.Max)*1000)
	if tooShort || tooLong {
		return badRequest
	}
	return nil
}

// clock is where the clock of a version begins, its absolute deadline, and the limit of its TTL. old is
// the live version, if one exists.
func (a asked) clock(op wire.Op, old Document, exists bool, now wire.Time) (begin wire.Time, end, last *wire.Time) {
	begin = now
	if a.keep && exists {
		begin = old.Begin
	}
	if a.begin != nil {
		begin = *a.begin
	}
	switch {
	case a.end != nil && a.inRange(now):
		end = a.end
	case a.end != nil: // TTL is off: it counts as absent
	case op == wire.Touch, op == wire.Patch && a.ttl == nil:
		end = old.End
	}
	switch {
	case a.last != nil && a.inRange(now):
		last = a.last
	case op == wire.Touch || op == wire.Patch:
		last = old.Last
	}
	return begin, end, last
}

// breaksLimit reports whether a patch or a touch names a deadline where there is a limit, or a patch
// takes the ttl away, so that the limit is the deadline, and that is too late. So may a write that brings over
// such a version.
func (a asked) breaksLimit(next Document, c Collection) bool {
	if next.Last == nil {
		return false
	}
	from := next.Ts
	if a.begin != nil {
		from = *a.begin
	}
	tooLate := next.TTL < 1 && c.Max != 0 && *next.Last > from+wire.Time(c.Max)*1000
	return a.end != nil || (a.ttl != nil || a.last != nil) && tooLate
}

// warnings decodes a list of at most four different numbers of seconds.
func warnings(raw json.RawMessage) (before []int32, ok bool) {
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil || len(list) > 4 {
		return nil, false
	}
	for _, one := range list {
		n, ok := ttl(one)
		if !ok || n < 1 || slices.Contains(before, n) {
			return nil, false
		}
		before = append(before, n)
	}
	return before, true
}
