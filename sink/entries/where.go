package entries

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/seed18712806/lapse/sink/wire"
)

const (
	MaxConditions = 8   // of a query
	MaxIn         = 100 // values of in
)

// Members of a condition that is an object.
const (
	memberEq     = "eq"
	memberIn     = "in"
	memberPrefix = "prefix"
	memberGt     = "gt"
	memberGte    = "gte"
	memberLt     = "lt"
	memberLte    = "lte"
)

const useCondition = "use a string, number, boolean or null, or an object of eq, of in, of prefix, or of the ends " +
	"of a range, of which gt or gte is the lower and lt or lte the upper one."

// sentence is an error for the client or person whose request it is about.
type sentence string

func (e sentence) Error() string { return string(e) }

func wrong(format string, args ...any) error { return sentence(fmt.Sprintf(format, args...)) }

// ParseWhere reads the conditions of a request, in the order of their pointers. Its error is a sentence for the client.
func ParseWhere(where map[string][]byte) ([]Condition, error) {
	if len(where) > MaxConditions {
		return nil, wrong("there are %d conditions: use at most %d.", len(where), MaxConditions)
	}
	conditions := make([]Condition, 0, len(where))
	for _, pointer := range slices.Sorted(maps.Keys(where)) {
		if err := CheckPointer(pointer); err != nil {
			return nil, err
		}
		p := parser{Condition{Pointer: pointer}}
		if err := p.parse(bytes.TrimSpace(where[pointer])); err != nil {
			return nil, err
		}
		conditions = append(conditions, p.Condition)
	}
	return conditions, nil
}

// parser reads a condition.
type parser struct{ Condition }

// wrong is an error that says of which condition something is wrong.
func (p *parser) wrong(format string, args ...any) error {
	return wrong("the condition on %s %s", wire.Quote(p.Pointer), fmt.Sprintf(format, args...))
}

func (p *parser) parse(text []byte) error {
	switch {
	case len(text) == 0:
		return p.wrong("is empty: %s", useCondition)
	case !utf8.Valid(text):
		return p.wrong("is not UTF-8: %s", useCondition)
	case !json.Valid(text):
		return p.wrong("is not valid JSON: %s", useCondition)
	case text[0] == '{':
		return p.object(text)
	case text[0] == '[':
		return p.wrong("is an array: for one of several values use an object, {%q: [...]}.", memberIn)
	}
	return p.equal(text)
}

func (p *parser) equal(text []byte) error {
	v, err := p.value(text)
	p.In = []Value{v}
	return err
}

// object reads a condition that is an object.
func (p *parser) object(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	_, _ = d.Token() // the {
	var names []string
	for d.More() {
		var value json.RawMessage
		token, _ := d.Token()
		if err := d.Decode(&value); err != nil {
			return p.wrong("is not valid JSON: %s", useCondition)
		}
		name, _ := token.(string)
		if slices.Contains(names, name) {
			return p.wrong("has %s twice: use it once.", name)
		}
		names = append(names, name)
		if err := p.member(name, value, names[0]); err != nil {
			return err
		}
	}
	if len(names) == 0 {
		return p.wrong("is an empty object: %s", useCondition)
	}
	if p.Over != nil && p.Under != nil && p.Over.Kind != p.Under.Kind {
		return p.wrong("has a number and a string as the ends of its range: use two numbers or two strings.")
	}
	return nil
}

// member reads a member of an object. first is the name of the first one.
func (p *parser) member(name string, value []byte, first string) (err error) {
	end := false
	switch name {
	case memberEq:
		err = p.equal(value)
	case memberIn:
		err = p.in(value)
	case memberPrefix:
		err = p.prefix(value)
	case memberGt, memberGte:
		end = true
		p.Over, p.OverEqual, err = p.end(name, value, p.Over)
	case memberLt, memberLte:
		end = true
		p.Under, p.UnderEqual, err = p.end(name, value, p.Under)
	default:
		return p.wrong("has the member %s: %s", wire.Quote(name), useCondition)
	}
	if err == nil && name != first && (!end || p.In != nil || p.Prefix != nil) {
		return p.wrong("has %s and %s: %s", first, name, useCondition)
	}
	return err
}

// end reads an end of a range. had is the one that the condition has already on this side.
func (p *parser) end(name string, value []byte, had *Value) (end *Value, equal bool, err error) {
	if had != nil {
		return nil, false, p.wrong("has two ends on one side of its range: " +
			"use one of gt and gte, and one of lt and lte.")
	}
	v, err := p.value(value)
	if err == nil && v.Kind != Number && v.Kind != String {
		err = p.wrong("has a %s that is %s: use a number or a string.", name, value)
	}
	return &v, name == memberGte || name == memberLte, err
}

func (p *parser) in(text []byte) error {
	var elements []json.RawMessage
	if text[0] != '[' || json.Unmarshal(text, &elements) != nil {
		return p.wrong("has an in that is no array: use an array of 1 to %d values.", MaxIn)
	}
	if len(elements) == 0 || len(elements) > MaxIn {
		return p.wrong("has an in with %d values: use 1 to %d.", len(elements), MaxIn)
	}
	p.In = make([]Value, len(elements))
	for i, element := range elements {
		var err error
		if p.In[i], err = p.value(element); err != nil {
			return err
		}
	}
	slices.SortFunc(p.In, Compare)
	p.In = slices.Compact(p.In)
	return nil
}

func (p *parser) prefix(text []byte) error {
	if text[0] != '"' {
		return p.wrong("has a prefix that is no string: use a string of at most %d bytes.", MaxValue)
	}
	v, err := p.value(text)
	p.Prefix = &v.Text
	return err
}

// value reads a value that documents can have.
func (p *parser) value(text []byte) (Value, error) {
	v, _ := readValue(text, 0)
	if v.Kind != LeftOut {
		return v, nil
	}
	switch text[0] {
	case '{', '[':
		return v, p.wrong("compares with an object or array: use a string, number, boolean or null.")
	case '"':
		return v, p.wrong("has a string that is too long: use at most %d bytes.", MaxValue)
	}
	return v, p.wrong("has the number %s: use one that a 64-bit floating point number can be.", text)
}

// Encode returns a condition as [ParseWhere] reads it, always in the same form. Of a condition that no request can
// have, such as the zero Condition, it returns what ParseWhere refuses.
func (c Condition) Encode() []byte {
	members := map[string]any{}
	end := func(v *Value, equal bool, name, nameEqual string) {
		if v == nil {
			return
		}
		if equal {
			name = nameEqual
		}
		members[name] = v.plain()
	}
	switch {
	case c.In != nil:
		values := make([]any, len(c.In))
		for i, v := range c.In {
			values[i] = v.plain()
		}
		members[memberIn] = values
	case c.Prefix != nil:
		members[memberPrefix] = *c.Prefix
	default:
		end(c.Over, c.OverEqual, memberGt, memberGte)
		end(c.Under, c.UnderEqual, memberLt, memberLte)
	}
	text, _ := json.Marshal(members) // fails for a number that JSON does not have; ParseWhere refuses an empty text
	return text
}

// plain is a value as encoding/json writes it.
func (v Value) plain() any {
	switch v.Kind {
	case Boolean:
		return v.Bool
	case Number:
		return v.Number
	case String:
		return v.Text
	}
	return nil
}

// String is the order as [ParseOrder] reads it.
func (o Order) String() string {
	switch {
	case o.ByDeadline:
		return string(wire.ByDeadline)
	case o.ByID:
		return string(wire.ByID)
	case o.Descending:
		return descending + o.Pointer
	}
	return o.Pointer
}
