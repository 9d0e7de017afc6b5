package entries

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/seed18712806/lapse/sink/wire"
)

// operators of the text form of a condition, each with the member of a condition that it stands for. Those that begin
// with others come first.
var operators = []struct{ text, member string }{
	{"^=", memberPrefix},
	{">=", memberGte},
	{"<=", memberLte},
	{">", memberGt},
	{"<", memberLt},
	{"=", memberEq},
}

const useText = "write a name, one of = >= <= > < ^= and a value, such as customer=c1, price>=10 or seat.row^=A."

// typed is a condition as a person typed it.
type typed struct {
	text    string
	pointer string
	member  string
	values  []json.RawMessage // one, or several of in
}

// ParseText reads a condition as people type it: customer=c1, price>=10, seat.row^=A, status=new,paid, open=true,
// note=null or /seat/row="1" (a JSON string, where the text would be another type). It returns the pointer and the
// condition as the property where of a request has them. Its error is a sentence for the person.
//
// The name is that of [PointerOf]. A value is JSON if it is a number, true, false, null or a string in quotes;
// otherwise it is the string itself. That of a prefix is always a string.
func ParseText(text string) (pointer string, condition []byte, err error) {
	t, err := readTyped(text)
	if err != nil {
		return "", nil, err
	}
	condition = encode(t)
	_, err = ParseWhere(map[string][]byte{t.pointer: condition})
	return t.pointer, condition, err
}

// Merge joins the conditions of several texts into the property where of a request: two ends of one range become one
// condition. Its error is a sentence for the person.
func Merge(texts []string) (where map[string][]byte, err error) {
	all := map[string][]typed{}
	for _, text := range texts {
		t, err := readTyped(text)
		if err != nil {
			return nil, err
		}
		of := append(all[t.pointer], t)
		if len(of) > 1 && (len(of) > 2 || side(of[0].member)*side(of[1].member) >= 0) {
			return nil, wrong("%s and %s are about the same value: give one condition, or the two ends of a range "+
				"such as price>=10 and price<20.", wire.Quote(of[0].text), wire.Quote(t.text))
		}
		all[t.pointer] = of
	}
	where = map[string][]byte{}
	for pointer, of := range all {
		where[pointer] = encode(of...)
	}
	_, err = ParseWhere(where)
	return where, err
}

// side is the side of a range that the value of a member is the end of: -1 or 1, or 0 for one that is no end.
func side(member string) int {
	switch member {
	case memberGt, memberGte:
		return -1
	case memberLt, memberLte:
		return 1
	}
	return 0
}

// encode writes one condition, or the two ends of a range, as JSON.
func encode(of ...typed) []byte {
	if t := of[0]; t.member == memberEq {
		if len(t.values) == 1 {
			return t.values[0]
		}
		return quoteJSON(map[string][]json.RawMessage{memberIn: t.values})
	}
	members := map[string]json.RawMessage{}
	for _, t := range of {
		members[t.member] = t.values[0]
	}
	return quoteJSON(members)
}

// quoteJSON writes a value as JSON, without the escapes for HTML.
func quoteJSON(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings and JSON cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// readTyped reads one text.
func readTyped(text string) (t typed, err error) {
	quoted := wire.Quote(text)
	if !utf8.ValidString(text) {
		return t, wrong("the condition %s is not UTF-8: %s", quoted, useText)
	}
	name, member, value, found := cut(text)
	name, value = trim(name), trim(value)
	t = typed{text: text, member: member}
	switch {
	case !found:
		return t, wrong("the condition %s has no operator: %s", quoted, useText)
	case strings.HasSuffix(name, "!"):
		return t, wrong("the condition %s has the operator !=: %s", quoted, useText)
	case value == "":
		return t, wrong(`the condition %s has no value: write "" for the empty text.`, quoted)
	case strings.IndexByte("=<>", value[0]) >= 0:
		return t, wrong("the condition %s has an operator after the operator: %s Put a value that begins so in quotes.",
			quoted, useText)
	}
	if t.pointer, err = PointerOf(name); err != nil {
		return t, wrong("the condition %s: %v", quoted, err)
	}
	if t.values, err = parseValues(value, member); err != nil {
		return t, wrong("the condition %s %v", quoted, err)
	}
	return t, nil
}

// cut cuts a text at its first operator.
func cut(text string) (name, member, value string, found bool) {
	for i := range len(text) {
		for _, op := range operators {
			if value, found = strings.CutPrefix(text[i:], op.text); found {
				return text[:i], op.member, value, true
			}
		}
	}
	return text, "", "", false
}

// parseValues reads the value behind an operator, or the values with commas between them.
func parseValues(text, member string) (values []json.RawMessage, err error) {
	if member == memberPrefix && text[0] != '"' {
		return []json.RawMessage{quoteJSON(text)}, nil
	}
	for more := true; more; {
		var value string
		if strings.HasPrefix(text, `"`) {
			end := skipString([]byte(text), 0)
			if end == broken || !json.Valid([]byte(text[:end])) {
				return nil, wrong(`has a " without its end: write a JSON string, such as "a, b".`)
			}
			value, text = text[:end], trim(text[end:])
			if text, more = strings.CutPrefix(text, ","); !more && text != "" {
				return nil, wrong("has %s after the quotes: write a comma, or put the whole value in quotes.",
					wire.Quote(text))
			}
		} else {
			value, text, more = strings.Cut(text, ",")
			value = trim(value)
		}
		text = trim(text)
		if value == "" {
			return nil, wrong(`has an empty value beside a comma: write "" for the empty text, ` +
				"and put a value with a comma in quotes.")
		}
		values = append(values, literal(value))
	}
	if len(values) > 1 && member != memberEq {
		return nil, wrong("has %d values: only = takes several. Put a value with a comma in quotes.", len(values))
	}
	return values, nil
}

// trim removes the blanks around a text.
func trim(text string) string { return strings.Trim(text, " \t\r\n") }

// literal returns a value as JSON: the text if that is JSON of such a value, otherwise a string.
func literal(text string) json.RawMessage {
	if b := []byte(text); text[0] != '{' && text[0] != '[' && json.Valid(b) {
		return b
	}
	return quoteJSON(text)
}
