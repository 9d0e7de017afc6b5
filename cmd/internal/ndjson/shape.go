package ndjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
			if json.Unmarshal(raw, &list) != nil {
				break
			}
			parts := make([][]byte, len(list))
			for i, one := range list {
				if name == "NS" {
					one = fmt.Appendf(nil, `{"N":%s}`, one)
				}
				if parts[i], err = untypedValue(one); err != nil {
					return nil, err
				}
			}
			return append(append([]byte("["), bytes.Join(parts, []byte(","))...), ']'), nil
		}
	}
	return nil, fmt.Errorf("%s is not a value of DynamoDB", shortened(value))
}
