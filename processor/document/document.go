// Package document reads and changes JSON documents as little as is needed: what
// is not touched keeps its bytes.
package document

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"slices"
	"unicode/utf8"
)

// ErrNotObject is wrapped by the errors of Check.
var ErrNotObject = errors.New("not a JSON object")

// Check says why a body is not one JSON object in UTF-8, if it is not.
func Check(body []byte) error {
	switch trimmed := bytes.TrimLeft(body, " \t\r\n"); {
	case len(trimmed) == 0:
		return errors.New("the body is empty: a JSON object belongs there")
	case !utf8.Valid(body):
		return errors.New("the body is not UTF-8: a JSON object in UTF-8 belongs there")
	case !valid(body):
		var v any
		err := json.Unmarshal(body, &v) // for its words
		return errors.Join(ErrNotObject, err)
	case trimmed[0] != '{':
		return errors.New("the body is JSON, but not an object: a JSON object belongs there")
	}
	return nil
}

// Members yields the members of an object that Check found valid: each name, as
// it reads, and the bytes of its value.
func Members(object []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		i := skipSpace(object, 0) + 1 // behind the {
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
			i = skipSpace(object, end) + 1 // behind the :
			i = skipSpace(object, i)
			end = skipValue(object, i)
			if !yield(name, object[i:end]) {
				return
			}
			i = end
		}
	}
}

// Merge applies an RFC 7396 merge patch to a document; both are objects that Check
// found valid. Members that the patch does not name keep their bytes and their
// order; new ones come at the end. Of members with the same name the last counts.
func Merge(object, patch []byte) []byte {
	target, _ := parse(object, skipSpace(object, 0))
	changes, _ := parse(patch, skipSpace(patch, 0))
	return merge(&target, changes).append(make([]byte, 0, len(object)+len(patch)))
}

// node is a JSON value; of an object it has the members, so that a value is gone
// through once, however deep it is.
type node struct {
	raw     []byte // nil if it was merged
	object  bool
	members []member
}

type member struct {
	name  string
	value node
}

// parse reads the value that begins at i, and returns where it ends.
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

// quote writes a name without the escapes that are for HTML.
func quote(name string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(name) // text: cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func unquote(s []byte) string {
	if bytes.IndexByte(s, '\\') < 0 {
		return string(s[1 : len(s)-1])
	}
	var name string
	_ = json.Unmarshal(s, &name) // valid already
	return name
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipString returns where the string that begins at i ends.
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

// skipValue returns where the value that begins at i ends.
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
