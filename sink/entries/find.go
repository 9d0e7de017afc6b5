package entries

import (
	"bytes"
	"encoding/json"
	"math/bits"
	"strconv"
	"strings"
)

// atOnce is how many pointers a finder follows at once.
const atOnce = 16

// finder finds what is at some pointers, in one walk over a body. It reads only the names on the way of a pointer.
type finder struct {
	body     []byte
	pointers []string    // up to atOnce
	found    [atOnce]int // where the value of each begins; 0 if there is none
	rest     [atOnce]int // where in each pointer the tokens begin that are below the value where the walk is
	tilde    set         // those that have an escape
}

// set is a set of pointers, by their places in a finder.
type set uint16

func (s set) first() int { return bits.TrailingZeros16(uint16(s)) }

// find walks over the body. It reports whether that is an object.
func (f *finder) find() bool {
	all := set(0)
	for p, pointer := range f.pointers {
		all |= 1 << p
		if strings.IndexByte(pointer, '~') >= 0 {
			f.tilde |= 1 << p
		}
	}
	i := skipSpace(f.body, 0)
	return i < len(f.body) && f.body[i] == '{' && f.value(i, all) != broken
}

// value walks over the value that begins at i, to which some pointers lead. It returns the index after it.
func (f *finder) value(i int, to set) int {
	if i >= len(f.body) {
		return broken
	}
	deeper := to
	for s := to; s != 0; s &= s - 1 {
		if p := s.first(); f.rest[p] == len(f.pointers[p]) {
			f.found[p] = i
			deeper &^= 1 << p
		}
	}
	switch {
	case deeper != 0 && f.body[i] == '{':
		return f.object(i, deeper)
	case deeper != 0 && f.body[i] == '[':
		return f.array(i, deeper)
	}
	return skipValue(f.body, i)
}

// tokenEnds returns where the next token of each pointer ends.
func (f *finder) tokenEnds(to set) (ends [atOnce]int) {
	for s := to; s != 0; s &= s - 1 {
		p := s.first()
		from := f.rest[p] + 1 // after the /
		ends[p] = len(f.pointers[p])
		if n := strings.IndexByte(f.pointers[p][from:], '/'); n >= 0 {
			ends[p] = from + n
		}
	}
	return ends
}

// object walks over an object into which some pointers lead.
func (f *finder) object(i int, into set) int {
	b, rest, ends := f.body, f.rest, f.tokenEnds(into)
	for i = skipSpace(b, i+1); i < len(b) && b[i] != '}'; {
		end := skipString(b, i)
		if b[i] != '"' || end == broken {
			return broken
		}
		name := b[i+1 : end-1]
		if escaped(name) {
			var text string
			if json.Unmarshal(b[i:end], &text) != nil {
				return broken
			}
			name = []byte(text)
		}
		var to set
		for s := into; s != 0; s &= s - 1 {
			p := s.first()
			if token := f.pointers[p][rest[p]+1 : ends[p]]; f.names(p, token, name) {
				to |= 1 << p
				f.found[p], f.rest[p] = 0, ends[p] // of two members with the name, the last counts
			}
		}
		if i = skipSpace(b, end); i >= len(b) || b[i] != ':' {
			return broken
		}
		if i = skipSpace(b, i+1); to == 0 {
			i = skipValue(b, i)
		} else {
			i = f.value(i, to)
		}
		if i = next(b, i); i == broken {
			return broken
		}
	}
	return after(b, i)
}

// array walks over an array into which some pointers lead.
func (f *finder) array(i int, into set) int {
	b, rest, ends := f.body, f.rest, f.tokenEnds(into)
	var index [atOnce]int
	for s := into; s != 0; s &= s - 1 {
		p := s.first()
		index[p] = arrayIndex(f.pointers[p][rest[p]+1 : ends[p]])
	}
	i = skipSpace(b, i+1)
	for n := 0; i < len(b) && b[i] != ']'; n++ {
		var to set
		for s := into; s != 0; s &= s - 1 {
			if p := s.first(); index[p] == n {
				to |= 1 << p
				f.rest[p] = ends[p]
			}
		}
		if to == 0 {
			i = skipValue(b, i)
		} else {
			i = f.value(i, to)
		}
		if i = next(b, i); i == broken {
			return broken
		}
	}
	return after(b, i)
}

// next returns where the next member or element begins, or the end of the object or array.
func next(b []byte, i int) int {
	if i == broken {
		return broken
	}
	if i = skipSpace(b, i); i < len(b) && b[i] == ',' {
		return skipSpace(b, i+1)
	}
	if i < len(b) && b[i] != '}' && b[i] != ']' {
		return broken
	}
	return i
}

// after returns the index after the end of an object or array.
func after(b []byte, i int) int {
	if i >= len(b) {
		return broken
	}
	return i + 1
}

// names reports whether a token of a pointer is the name of a member.
func (f *finder) names(p int, token string, name []byte) bool {
	if f.tilde&(1<<p) == 0 {
		return string(name) == token
	}
	return string(name) == unescape(token)
}

// arrayIndex returns the index of the element that a token of a pointer means, or -1.
func arrayIndex(token string) int {
	if token == "" || len(token) > 1 && token[0] == '0' {
		return -1
	}
	n, err := strconv.ParseUint(token, 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// broken is the index that a function of this file returns if the text ends too early.
const broken = -1

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i.
func skipString(b []byte, i int) int {
	for i++; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return broken
}

// escaped reports whether the inside of a JSON string has an escape.
func escaped(inner []byte) bool { return bytes.IndexByte(inner, '\\') >= 0 }

// skipValue returns the index after the value that begins at i.
func skipValue(b []byte, i int) int {
	if i >= len(b) {
		return broken
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipNested(b, i)
	}
	from := i
	for i < len(b) && !endsWord(b[i]) {
		i++
	}
	if i == from {
		return broken
	}
	return i
}

func endsWord(c byte) bool {
	return c == ',' || c == ']' || c == '}' || c <= ' '
}

// skipNested returns the index after the object or array that begins at i.
func skipNested(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			if i = skipString(b, i); i == broken {
				return broken
			}
			i--
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return broken
}
