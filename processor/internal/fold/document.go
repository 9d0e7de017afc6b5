package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// bodyError tells a client in a sentence what is wrong with a body.
type bodyError string

func (e bodyError) Error() string { return string(e) }

func bad(format string, args ...any) error { return bodyError(fmt.Sprintf(format, args...)) }

const byteOrderMark = "\ufeff"

// Check returns an error if a body is not one JSON object in UTF-8, or if it has more levels of
// objects and arrays within each other than levels. The error is a sentence for the client.
func Check(body []byte, levels int) error {
	trimmed := bytes.TrimLeft(body, " \t\r\n")
	switch {
	case len(trimmed) == 0:
		return bad("the body is empty: send a JSON object.")
	case bytes.HasPrefix(trimmed, []byte(byteOrderMark)):
		return bad("the body begins with a byte order mark (BOM): send the JSON object without it.")
	case !utf8.Valid(body):
		return notUTF8(body)
	}
	switch ok, tooDeep := valid(body, levels); {
	case tooDeep:
		return bad("the body has more than %d levels of objects and arrays within each other: use at most %d.", levels, levels)
	case !ok:
		return notJSON(body)
	case trimmed[0] != '{':
		return bad("the body is %s: send a JSON object.", kind(trimmed[0]))
	}
	return nil
}

func notUTF8(body []byte) error {
	for i := 0; ; {
		r, size := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && size == 1 {
			return bad("the body is not UTF-8 (byte %d is 0x%02x): send a JSON object in UTF-8.", i+1, body[i])
		}
		i += size
	}
}

// notJSON quotes the error of encoding/json. That package reads bytes, so it names the
// wrong character where one has several bytes.
func notJSON(body []byte) error {
	var v any
	err := json.Unmarshal(body, &v)
	var syntax *json.SyntaxError
	if !errors.As(err, &syntax) {
		return bad("the body is not valid JSON: send a JSON object.")
	}
	why := syntax.Error()
	if i := syntax.Offset - 1; i >= 0 && i < int64(len(body)) && body[i] >= utf8.RuneSelf {
		r, _ := utf8.DecodeRune(body[i:])
		why = strings.Replace(why, "'"+string(rune(body[i]))+"'", strconv.QuoteRune(r), 1)
	}
	return bad("the body is not valid JSON (%s, at byte %d): send a JSON object.", why, syntax.Offset)
}

// kind names the type of a JSON value that is not an object, by its first byte.
func kind(first byte) string {
	switch first {
	case '[':
		return "a JSON array"
	case '"':
		return "a JSON string"
	case 't', 'f':
		return "a JSON boolean"
	case 'n':
		return "JSON's null"
	default:
		return "a JSON number"
	}
}

// Members yields the members of an object that [Check] accepted: each name, without
// escapes, and the bytes of its value.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		i := skipSpace(object, 0) + 1 // after the {
		for {
			i = skipSpace(object, i)
			if object[i] == '}' {
				return
			}
			if object[i] == ',' {
				i = skipSpace(object, i+1)
			}
			end := skipString(object, i)
			name := unquote(object[i:end])
			i = skipSpace(object, end) + 1 // after the :
			i = skipSpace(object, i)
			end = skipValue(object, i)
			if !yield(name, object[i:end]) {
				return
			}
			i = end
		}
	}
}

// Merge applies an RFC 7396 merge patch to a document. [Check] has accepted both. Members
// that the patch does not name keep their bytes and their order, and new ones come at the
// end. If several members have the same name, the last one counts. The result has no more
// levels than the deeper of the two.
func Merge(object, patch []byte) []byte {
	target, _ := parse(object, skipSpace(object, 0))
	changes, _ := parse(patch, skipSpace(patch, 0))
	return merge(&target, changes).append(make([]byte, 0, len(object)+len(patch)))
}

// node is a JSON value. An object has its members, so that Merge reads a value once,
// however deep it is.
type node struct {
	raw     []byte // nil after a merge
	object  bool
	members []member
}

type member struct {
	name  string
	value node
}

// parse reads the value that begins at i, and returns the index after it.
func parse(b []byte, i int) (node, int) {
	if b[i] != '{' {
		end := skipValue(b, i)
		return node{raw: b[i:end]}, end
	}
	n := node{object: true}
	start := i
	at := make(map[string]int)
	for i++; ; {
		i = skipSpace(b, i)
		if b[i] == '}' {
			n.raw = b[start : i+1]
			return n, i + 1
		}
		if b[i] == ',' {
			i = skipSpace(b, i+1)
		}
		end := skipString(b, i)
		m := member{name: unquote(b[i:end])}
		m.value, i = parse(b, skipSpace(b, skipSpace(b, end)+1))
		if k, again := at[m.name]; again {
			n.members[k] = m
		} else {
			at[m.name] = len(n.members)
			n.members = append(n.members, m)
		}
	}
}

// merge is MergePatch of RFC 7396, section 2, for a patch that is an object.
func merge(target *node, patch node) *node {
	if !target.object {
		*target = node{object: true}
	}
	at := make(map[string]int, len(target.members))
	for i, m := range target.members {
		at[m.name] = i
	}
	gone := make(map[string]bool)
	for _, p := range patch.members {
		i, there := at[p.name]
		switch {
		case string(p.value.raw) == "null":
			gone[p.name] = there
			continue
		case !there:
			i = len(target.members)
			target.members = append(target.members, member{name: p.name})
		}
		if p.value.object {
			merge(&target.members[i].value, p.value)
		} else {
			target.members[i].value = p.value
		}
	}
	target.members = slices.DeleteFunc(target.members, func(m member) bool { return gone[m.name] })
	target.raw = nil
	return target
}

func (n *node) append(b []byte) []byte {
	if n.raw != nil {
		return append(b, n.raw...)
	}
	b = append(b, '{')
	for i := range n.members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(n.members[i].name)...)
		b = append(b, ':')
		b = n.members[i].value.append(b)
	}
	return append(b, '}')
}

// quote writes a name as JSON, without the escapes for HTML.
func quote(name string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(name) // a string cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func unquote(s []byte) string {
	if bytes.IndexByte(s, '\\') < 0 {
		return string(s[1 : len(s)-1])
	}
	var name string
	_ = json.Unmarshal(s, &name) // Check has accepted it
	return name
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; ; i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
}

// skipValue returns the index after the value that begins at i.
func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		for depth := 0; ; {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				depth--
			}
			i++
			if depth == 0 {
				return i
			}
		}
	default:
		for i < len(b) && bytes.IndexByte([]byte(",]} \t\r\n"), b[i]) < 0 {
			i++
		}
		return i
	}
}
