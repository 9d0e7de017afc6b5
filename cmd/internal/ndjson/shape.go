package ndjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// Shape says how a line becomes a document. With the zero Shape it is one of an export, or the document with a
// member id.
type Shape struct {
	ID        string        // the member that has the id, a text or a number
	ExpiresAt string        // the member that has the deadline
	After     string        // the member that has an instant from which
	AfterBy   time.Duration // it is so long until the deadline
	Unit      Unit          // of instants that are numbers
	Drop      []string      // members to leave out
	Unwrap    string        // the member that is the document
	DynamoDB  bool          // the member Item is the document, with the types of DynamoDB
	AsIs      bool          // the line is the document, whatever it looks like
}

// Record reads a line.
func (s Shape) Record(text []byte) (r Record, err error) {
	old, isFormer := begins(text, former)
	isFormer = isFormer && strings.HasPrefix(string(old), "{")
	var around map[string]json.RawMessage // the members beside the document, and of it
	switch {
	case !s.AsIs && IsExported(text):
		r, err = parseExported(text)
	case !s.AsIs && isFormer:
		r, err = parseFormer(old)
	case s.DynamoDB || s.Unwrap != "":
		r.Document, around, err = s.unwrap(text)
	default:
		r.Document = text
	}
	if err != nil {
		return r, err
	}
	if r.ID == "" && s.plain() {
		r.ID, err = DocumentID(r.Document)
		return r, err
	}
	if s.plain() {
		return r, nil
	}
	inner, err := Members(r.Document)
	if err != nil {
		return r, err
	}
	if around == nil {
		around = inner
	}
	maps.Copy(around, inner)
	if r.ID == "" || s.ID != "" {
		if r.ID, err = s.id(around); err != nil {
			return r, err
		}
	}
	if err := s.clock(&r, around); err != nil {
		return r, err
	}
	if drop := s.dropped(); len(drop) > 0 {
		r.Document, err = without(r.Document, drop)
	}
	return r, err
}

// plain reports whether a document is taken as it is.
func (s Shape) plain() bool {
	return s.ID == "" && s.ExpiresAt == "" && s.After == "" && len(s.Drop) == 0 && s.Unwrap == "" && !s.DynamoDB
}

// Members are the members of an object.
func Members(text []byte) (members map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		if err == nil || json.Valid(text) {
			err = errors.New("it is another JSON value")
		}
		return nil, fmt.Errorf("the line is not a JSON object: %w", err)
	}
	return members, nil
}

// unwrap takes the document out of its envelope, and returns the members of that too.
func (s Shape) unwrap(text []byte) (document []byte, around map[string]json.RawMessage, err error) {
	if around, err = Members(text); err != nil {
		return nil, nil, err
	}
	member := s.Unwrap
	if s.DynamoDB {
		member = "Item"
	}
	document, ok := around[member]
	if !ok || document[0] != '{' {
		return nil, nil, fmt.Errorf("the line has no member %s that is an object", member)
	}
	delete(around, member)
	if s.DynamoDB {
		document, err = untyped(document)
	}
	return document, around, err
}

// id reads the id among the members of a line.
func (s Shape) id(members map[string]json.RawMessage) (id string, err error) {
	name := s.ID
	if name == "" {
		name = "id"
	}
	raw, ok := members[name]
	if !ok {
		return "", fmt.Errorf("the line has no member %s, which would be the id", name)
	}
	var oid struct {
		OID string `json:"$oid"`
	}
	switch c := raw[0]; {
	case c == '"':
		_ = json.Unmarshal(raw, &id) // Members has accepted it
	case s.ID != "" && (c == '-' || c >= '0' && c <= '9'):
		id = string(raw)
	case s.ID != "" && json.Unmarshal(raw, &oid) == nil && oid.OID != "":
		id = oid.OID
	default:
		return "", fmt.Errorf("the id %s is not a string: use a string of 1 to %d bytes", shortened(raw), wire.MaxID)
	}
	return id, wire.CheckID(id)
}

// clock reads the deadline among the members of a line.
func (s Shape) clock(r *Record, members map[string]json.RawMessage) error {
	name := s.ExpiresAt + s.After // one of them
	raw, ok := members[name]
	if name == "" || !ok || string(raw) == "null" {
		return nil
	}
	at, err := instant(raw, s.Unit)
	if err != nil {
		return fmt.Errorf("member %s is %s: %w", name, shortened(raw), err)
	}
	r.Clock, r.Created, r.NotAfter = "", "", ""
	if s.After != "" {
		r.Clock = at.String()
		at += wire.Time(s.AfterBy.Milliseconds())
	}
	r.Deadline = at.String()
	return nil
}

// dropped are the members to leave out. A ttl that is an instant would count as a number of seconds.
func (s Shape) dropped() []string {
	if s.ExpiresAt == "ttl" || s.After == "ttl" {
		return append(slices.Clone(s.Drop), "ttl")
	}
	return s.Drop
}

// member is a member of an object, as it stands there.
type member struct {
	name  string
	value json.RawMessage
}

// ordered reads the members of an object in their order.
func ordered(object []byte) (all []member, err error) {
	dec := json.NewDecoder(bytes.NewReader(object))
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return nil, err
		}
		m := member{name: name.(string)} // nothing else is there
		if err := dec.Decode(&m.value); err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// without is an object without some members. It keeps the bytes of the values.
func without(object []byte, names []string) ([]byte, error) {
	all, err := ordered(object)
	if err != nil {
		return nil, err
	}
	return joined(slices.DeleteFunc(all, func(m member) bool { return slices.Contains(names, m.name) })), nil
}

// joined writes an object.
func joined(all []member) []byte {
	b := []byte{'{'}
	for i, m := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, quoted(m.name)...), ':'), m.value...)
	}
	return append(b, '}')
}

func quoted(text string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(text) // a string cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// untyped is an object of DynamoDB as plain JSON: {"n":{"N":"1"}} is {"n":1}.
func untyped(item []byte) ([]byte, error) {
	all, err := ordered(item)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].value, err = untypedValue(all[i].value); err != nil {
			return nil, fmt.Errorf("attribute %s: %w", all[i].name, err)
		}
	}
	return joined(all), nil
}

// untypedValue is a value of DynamoDB as plain JSON. What is binary stays as base64.
func untypedValue(value []byte) ([]byte, error) {
	types, err := Members(value)
	if err != nil || len(types) != 1 {
		return nil, fmt.Errorf(`%s has no type of DynamoDB: it would be as {"S":"text"}`, shortened(value))
	}
	for name, raw := range types {
		var text string
		var list []json.RawMessage
		switch name {
		case "S", "B", "BOOL", "SS", "BS":
			return raw, nil
		case "NULL":
			return []byte("null"), nil
		case "M":
			return untyped(raw)
		case "N":
			if json.Unmarshal(raw, &text) == nil && json.Valid([]byte(text)) {
				return []byte(text), nil
			}
		case "L", "NS":
			if json.Unmarshal(raw, &list) == nil {
				return untypedList(list, name == "NS")
			}
		}
	}
	return nil, fmt.Errorf("%s is not a value of DynamoDB", shortened(value))
}

// untypedList is a list of DynamoDB as plain JSON, or a set of numbers, whose elements have no type of their own.
func untypedList(list []json.RawMessage, numbers bool) (_ []byte, err error) {
	parts := make([][]byte, len(list))
	for i, one := range list {
		if numbers {
			one = fmt.Appendf(nil, `{"N":%s}`, one)
		}
		if parts[i], err = untypedValue(one); err != nil {
			return nil, err
		}
	}
	return append(append([]byte("["), bytes.Join(parts, []byte(","))...), ']'), nil
}

// envelopes are names of a member in which other programs put the document.
var envelopes = []string{"document", "doc", "value", "data", "body", "payload", "_source", "Item"}

// beside are names of members that other programs put beside the document.
var beside = []string{
	"id", "_id", "key", "collection", "etag", "_etag", "ts", "_ts", "ttl", "target", "type", "timestamp",
	"expiresAt", "expires_at", "expires", "expireAt", "expiry", "exp", "deadline", "expiredAt",
	"version", "_version", "rev", "_rev", "revision", "_index", "_type", "_score",
	"created", "createdAt", "created_at", "updated", "updatedAt", "updated_at",
}

// Envelope returns the member of a line that seems to be the document, in an envelope of another program: beside it
// there are only an id and the like. It returns "" if the line does not look so.
func Envelope(text []byte) string {
	if IsExported(text) {
		return ""
	}
	members, _ := Members(text) // none if the line is not an object
	found := ""
	for name, value := range members {
		switch nested := value[0] == '{' || value[0] == '['; {
		case value[0] == '{' && found == "" && slices.Contains(envelopes, name):
			found = name
		case nested && name != "_id" || !slices.Contains(beside, name):
			return ""
		}
	}
	for _, id := range []string{"id", "_id", "key"} {
		if _, ok := members[id]; ok {
			return found
		}
	}
	if len(members) > 1 {
		return ""
	}
	return found // it stands alone
}

// Unit is what a number counts that is an instant, since 1970.
type Unit string

// The units. Without one, a number is seconds or milliseconds if as such it is in the years 2001 to 2286, and it is
// refused otherwise.
const (
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
)

var (
	decimal = regexp.MustCompile(`^[0-9]{1,20}(\.[0-9]{1,20})?$`)
	zone    = regexp.MustCompile(`([+-][0-9]{2})([0-9]{2})$`)
)

// latest is the last instant that RFC 3339 can write.
const latest = 253402300799999

// instant reads an instant, of a member of a line. A fraction of a millisecond is rounded up.
func instant(raw []byte, unit Unit) (wire.Time, error) {
	text := string(raw)
	switch raw[0] {
	case '{':
		return instantOfMongo(raw, unit)
	case '"':
		_ = json.Unmarshal(raw, &text) // it is valid
		if decimal.MatchString(text) {
			break
		}
		at, err := wire.ParseInstant(zone.ReplaceAllString(text, "$1:$2"))
		if err != nil {
			return 0, errors.New("use an instant as in RFC 3339, such as 2030-01-31T18:00:00Z, or a number of seconds or " +
				"milliseconds since 1970")
		}
		return at, nil
	}
	if !decimal.MatchString(text) {
		return 0, errors.New("use an instant as in RFC 3339 in quotes, or a number of seconds or milliseconds since 1970")
	}
	n, _ := new(big.Rat).SetString(text)
	if unit == "" {
		switch whole, _, _ := strings.Cut(text, "."); len(strings.TrimLeft(whole, "0")) {
		case 10:
			unit = Seconds
		case 13:
			unit = Milliseconds
		default:
			return 0, fmt.Errorf("that may be seconds or milliseconds since 1970: say which with --time-unit %s or %s", Seconds,
				Milliseconds)
		}
	}
	if unit == Seconds {
		n.Mul(n, big.NewRat(1000, 1))
	}
	ms, rest := new(big.Int).QuoRem(n.Num(), n.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		ms.Add(ms, big.NewInt(1))
	}
	if !ms.IsInt64() || ms.Int64() > latest {
		return 0, fmt.Errorf("as %s since 1970 that is after the year 9999: use another --time-unit",
			map[Unit]string{Seconds: "seconds", Milliseconds: "milliseconds"}[unit])
	}
	return wire.Time(ms.Int64()), nil
}

// instantOfMongo reads an instant in the Extended JSON of MongoDB.
func instantOfMongo(raw []byte, unit Unit) (wire.Time, error) {
	var value map[string]json.RawMessage
	_ = json.Unmarshal(raw, &value) // it is valid
	if date, ok := value["$date"]; ok && len(value) == 1 {
		return instant(date, Milliseconds)
	}
	for _, name := range []string{"$numberLong", "$numberInt", "$numberDouble"} {
		if n, ok := value[name]; ok && len(value) == 1 && n[0] == '"' {
			return instant(n, unit)
		}
	}
	return 0, errors.New(`use an instant as in RFC 3339, a number of seconds or milliseconds since 1970, or ` +
		`{"$date":…} of MongoDB`)
}
