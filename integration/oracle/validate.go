package oracle

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/seed18712806/lapse/sink/wire"
)

var badRequest = []int{wire.StatusBadRequest}

// value is the first value of a header of a message, or none.
func value(msg Message, header string) string {
	if v := msg.Header[header]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// headerFaults are the codes for what is wrong with the headers: those that
// begin with Lapse- must be known, belong there, and stand once. Names are
// compared without regard to case.
func headerFaults(msg Message, isWrite bool) []int {
	times := map[string]int{}
	for header, values := range msg.Header {
		name := strings.ToLower(header)
		if !strings.HasPrefix(name, "lapse-") {
			continue
		}
		times[name] += len(values)
		if times[name] != 1 {
			return badRequest
		}
		switch {
		case name == strings.ToLower(wire.HeaderReplyTo) && isInbox(values[0]):
		case name == strings.ToLower(wire.HeaderIfMatch) && isWrite && isMatch(values[0]):
		default:
			return badRequest
		}
	}
	return nil
}

// header is the value of a header of lapse's, or none.
func header(msg Message, name string) string {
	for n, values := range msg.Header {
		if strings.EqualFold(n, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

func isInbox(subject string) bool {
	tokens := strings.Split(subject, ".")
	return strings.HasPrefix(subject, wire.ReplyPrefix) && !slices.Contains(tokens, "") &&
		!slices.Contains(tokens, "*") && !slices.Contains(tokens, ">") &&
		!strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r > '~' })
}

func isMatch(s string) bool {
	if s == "*" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && n > 0 && s[0] != '0' && s[0] != '+'
}

func sizeFaults(msg Message, most int) []int {
	if len(msg.Data) > most {
		return []int{wire.StatusTooLarge}
	}
	return nil
}

// bodyFaults are the codes for what is wrong with a write's operation and body;
// on says whether TTL is on in its collection.
func bodyFaults(op wire.Op, id string, body []byte, on bool) []int {
	switch op {
	case wire.Touch, wire.Delete:
		if len(body) > 0 {
			return badRequest
		}
		return nil
	case wire.Upsert, wire.Create, wire.Replace, wire.Patch:
	default:
		return badRequest
	}
	members, ok := object(body)
	if !ok {
		return badRequest
	}
	if raw, there := members["id"]; there && (op != wire.Patch || string(raw) != "null") {
		var s string
		if raw[0] != '"' || json.Unmarshal(raw, &s) != nil || s != id {
			return badRequest
		}
	}
	if _, ok := ttl(members["ttl"]); on && !ok {
		return badRequest
	}
	return nil
}

// object reads a JSON object: the last of members of one name counts.
func object(body []byte) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &members) != nil || members == nil {
		return nil, false
	}
	return members, true
}

var integer = regexp.MustCompile(`^-?[0-9]+$`)

// ttl reads a TTL, of an item or a default: 0 if absent or null, else -1 or
// 1 to 2147483647, written as a plain integer.
func ttl(raw json.RawMessage) (seconds int32, ok bool) {
	if len(raw) == 0 || string(raw) == "null" {
		return 0, true
	}
	if !integer.Match(raw) {
		return 0, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 32)
	if err != nil || n == 0 || n < -1 {
		return 0, false
	}
	return int32(n), true
}

// storedTTL is the TTL of a stored document: one that is not valid, from a time
// when TTL was off, counts as none.
func storedTTL(body []byte) int32 {
	members, _ := object(body)
	seconds, _ := ttl(members["ttl"])
	return seconds
}

// configuration reads a configuration that is to take the place of the current one.
func configuration(body []byte, current Collection) (next Collection, ok bool) {
	members, ok := object(body)
	if !ok {
		return Collection{}, false
	}
	for member, raw := range members {
		switch member {
		case "defaultTtl":
			if next.Default, ok = ttl(raw); !ok {
				return Collection{}, false
			}
		case "indexingMode":
			var mode string
			if raw[0] != '"' || json.Unmarshal(raw, &mode) != nil || mode != "consistent" && mode != "none" {
				return Collection{}, false
			}
			next.NoIndex = mode == "none"
		default:
			return Collection{}, false
		}
	}
	if next.NoIndex && (next.Default != 0 || current.Default != 0) || current.NoIndex && next.Default != 0 {
		return Collection{}, false
	}
	return next, true
}

// merge is a merge patch (RFC 7396) of one object by another.
func merge(target, patch []byte) []byte {
	merged := mergeValues(decode(target), decode(patch))
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(merged); err != nil {
		panic(err) // it was decoded from JSON
	}
	return bytes.TrimSpace(b.Bytes())
}

func mergeValues(target, patch any) any {
	changes, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	object, ok := target.(map[string]any)
	if !ok {
		object = map[string]any{}
	}
	for member, change := range changes {
		if change == nil {
			delete(object, member)
		} else {
			object[member] = mergeValues(object[member], change)
		}
	}
	return object
}

// decode reads JSON, numbers as they are written.
func decode(b []byte) any {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(err) // it was validated
	}
	return v
}

// sameValue says whether two texts are the same JSON, however written.
func sameValue(a, b []byte) bool {
	if !json.Valid(a) || !json.Valid(b) {
		return false
	}
	x, errX := json.Marshal(decode(a))
	y, errY := json.Marshal(decode(b))
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
