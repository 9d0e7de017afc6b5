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

// value returns the first value of a header, spelled exactly so, or "".
func value(msg Message, header string) string {
	if v := msg.Header[header]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// faults returns the codes for faults of the headers, the size and the depth of an operation, or of a
// configuration or a drop. A header that begins with Lapse- must be known and have a meaning there, and
// must occur once. Case does not matter.
func (m *Model) faults(msg Message, op string) (codes []int) {
	if len(msg.Data) > m.set.MaxBody {
		codes = []int{wire.StatusTooLarge}
	}
	if deepest(msg.Data) > m.set.MaxLevels {
		codes = append(codes, badRequest...)
	}
	times := map[string]int{}
	match, reply := header(msg, wire.HeaderIfMatch), header(msg, wire.HeaderReplyTo)
	for header, values := range msg.Header {
		name := strings.ToLower(header)
		if !strings.HasPrefix(name, "lapse-") {
			continue
		}
		times[name] += len(values)
		if times[name] != 1 {
			return append(badRequest, codes...)
		}
		switch {
		case name == strings.ToLower(wire.HeaderReplyTo) && m.isInbox(values[0]):
		case name == strings.ToLower(wire.HeaderIfMatch) && isMatch(values[0]):
		case name == "lapse-clock" && values[0] == "keep" &&
			slices.Contains([]string{"upsert", "replace", "patch"}, op):
		case name == "lapse-clock" && slices.Contains([]string{"upsert", "create", "replace", "patch", "touch"}, op) &&
			m.askedOf(msg).begin != nil:
		case name == "lapse-target" && slices.Contains([]string{"upsert", "create", "replace"}, op) &&
			isTarget(values[0]):
		case name == "lapse-slide" && op == "touch" && match != "" && match != "*" && reply == "":
		case name == "lapse-not-after" && slices.Contains([]string{"upsert", "create", "replace"}, op) &&
			moment(values[0]) != nil:
		case name == "lapse-expires-at" && slices.Contains([]string{"upsert", "create", "replace", "patch", "touch"},
			op) && moment(values[0]) != nil:
		default:
			return append(badRequest, codes...)
		}
	}
	return codes
}

// deepest returns how many levels of objects and arrays a text of JSON has; of another text any
// number.
func deepest(text []byte) (most int) {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) < 100 {
		return 0 // mostly so, and no limit is so low
	}
	levels := 0
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err != nil {
			return most
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			levels++
			most = max(most, levels)
		case json.Delim('}'), json.Delim(']'):
			levels--
		}
	}
}

// header returns the first value of a header, in any case, or "".
func header(msg Message, name string) string {
	for n, values := range msg.Header {
		if strings.EqualFold(n, name) && len(values) > 0 {
			return values[0]
		}
	}
	return ""
}

var traceparent = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[!-~]+)?$`)

// trace returns the traceparent of a message if it has exactly one and that is valid, or "".
func trace(msg Message) string {
	var all []string
	for name, values := range msg.Header {
		if strings.EqualFold(name, "traceparent") {
			all = append(all, values...)
		}
	}
	if len(all) != 1 || len(all[0]) > 200 {
		return ""
	}
	parts := traceparent.FindStringSubmatch(all[0])
	if parts == nil || parts[1] == "ff" || parts[1] == "00" && parts[4] != "" ||
		parts[2] == strings.Repeat("0", 32) || parts[3] == strings.Repeat("0", 16) {
		return ""
	}
	return all[0]
}

func (m *Model) isInbox(subject string) bool {
	tokens := strings.Split(subject, ".")
	if len(subject) > 1024 || slices.Contains(tokens, "") || slices.Contains(tokens, "*") ||
		slices.Contains(tokens, ">") ||
		strings.ContainsFunc(subject, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return false
	}
	return slices.ContainsFunc(append([]string{"_INBOX"}, m.replyPrefixes...), func(prefix string) bool {
		return strings.HasPrefix(subject, prefix+".")
	})
}

func isMatch(s string) bool {
	if s == "*" {
		return true
	}
	n, err := strconv.ParseUint(s, 10, 64)
	return err == nil && n > 0 && s[0] != '0' && s[0] != '+'
}

// bodyFaults returns the codes for faults of a write's operation and body. on is whether
// TTL is on in its collection.
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

// object decodes a JSON object. Of members with the same name the last counts.
func object(body []byte) (map[string]json.RawMessage, bool) {
	var members map[string]json.RawMessage
	if !utf8.Valid(body) || json.Unmarshal(body, &members) != nil || members == nil {
		return nil, false
	}
	return members, true
}

var integer = regexp.MustCompile(`^-?[0-9]+$`)

// ttl decodes a TTL, of an item or a default: 0 if absent or null, otherwise -1 or 1 to
// 2147483647, written as a plain integer.
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

// configuration decodes a configuration that is to replace the current one.
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
			if raw[0] != '"' || json.Unmarshal(raw, &mode) != nil || mode != "consistent" && mode != "lazy" &&
				mode != "none" {
				return Collection{}, false
			}
			next.NoIndex, next.Lazy = mode == "none", mode == "lazy"
		case "minTtl":
			if next.Min, ok = ttl(raw); !ok || next.Min < 0 {
				return Collection{}, false
			}
		case "maxTtl":
			if next.Max, ok = ttl(raw); !ok || next.Max < 0 {
				return Collection{}, false
			}
		case "eventBody":
			if next.Bare = string(raw) == "false"; !next.Bare && string(raw) != "true" {
				return Collection{}, false
			}
		case "slideOnRead":
			if next.Slides, ok = slides(raw); !ok {
				return Collection{}, false
			}
		case "maxLife":
			if next.Life, ok = ttl(raw); !ok || next.Life < 0 {
				return Collection{}, false
			}
		case "changes":
			if next.Changes = string(raw) == "true"; !next.Changes && string(raw) != "false" {
				return Collection{}, false
			}
		case "paused":
			if next.Paused = string(raw) == "true"; !next.Paused && string(raw) != "false" {
				return Collection{}, false
			}
		case "warnBefore":
			if next.WarnBefore, ok = warnings(raw); !ok {
				return Collection{}, false
			}
		case "indexes":
			if next.Indexes, ok = pointers(raw); !ok {
				return Collection{}, false
			}
		default:
			return Collection{}, false
		}
	}
	if next.NoIndex && (next.Default != 0 || current.Default != 0) || current.NoIndex && next.Default != 0 {
		return Collection{}, false
	}
	if next.Life != 0 && (next.Default == 0 || next.Min > next.Life) {
		return Collection{}, false
	}
	limited := next.Min != 0 || next.Max != 0
	tooLow := next.Default > 0 && next.Default < next.Min
	tooHigh := next.Max != 0 && (next.Default == -1 || next.Default > next.Max || next.Min > next.Max)
	return next, !limited || next.Default != 0 && !tooLow && !tooHigh
}

var pointer = regexp.MustCompile(`^(/([^~/]|~[01])*){1,16}$`)

// pointers decodes the property indexes: up to 8 different JSON pointers.
func pointers(raw json.RawMessage) (all []string, ok bool) {
	if raw[0] != '[' || json.Unmarshal(raw, &all) != nil || len(all) > 8 {
		return nil, false
	}
	for i, p := range all {
		if !pointer.MatchString(p) || len(p) > 255 || slices.Contains(all[:i], p) {
			return nil, false
		}
	}
	return all, true
}

// slides decodes the property slideOnRead: true stands for a tenth.
func slides(raw json.RawMessage) (wire.Slide, bool) {
	if string(raw) == "true" || string(raw) == "false" {
		return map[string]wire.Slide{"true": 0.1}[string(raw)], true
	}
	part, err := strconv.ParseFloat(string(raw), 64)
	return wire.Slide(part), err == nil && part > 0 && part < 1
}
