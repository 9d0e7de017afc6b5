package entries

import "bytes"

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
