package fold

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
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
		return bad("the body has more than %d levels of objects and arrays within each other: use at most %d.", levels,
			levels)
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
			name := unquote(string(object[i:end]))
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

// quote writes a name as JSON, without the escapes for HTML.
func quote(name string) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(name) // a string cannot fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func unquote(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s[1 : len(s)-1]
	}
	var name string
	_ = json.Unmarshal([]byte(s), &name) // Check has accepted it
	return name
}

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\r' || b[i] == '\n') {
		i++
	}
	return i
}

// skipString returns the index after the string that begins at i, which is valid.
func skipString(b []byte, i int) int {
	i, _ = scanString(b, i)
	return i
}

// skipValue returns the index after the value that begins at i, which is valid.
func skipValue(b []byte, i int) int {
	i, _ = scanValue(b, i, math.MaxInt)
	return i
}

// valid returns what json.Valid returns, in about a fifth of its time: lapse validates every
// document that a client writes. A text with more levels of objects and arrays than levels is
// not valid: it is tooDeep, unless another fault comes first.
func valid(b []byte, levels int) (ok, tooDeep bool) {
	i, ok := scanValue(b, skipSpace(b, 0), levels)
	return ok && skipSpace(b, i) == len(b), i == deeper
}

// deeper is the index that a scan function returns for a value with too many levels.
const deeper = -1

// scanValue returns the index after the value that begins at i, and whether it is valid. So do the other scan
// functions, each for its kind of value. The value may have as many levels of objects and arrays as there is room.
func scanValue(b []byte, i, room int) (int, bool) {
	if i >= len(b) {
		return i, false
	}
	switch c := b[i]; c {
	case '"':
		return scanString(b, i)
	case '{', '[':
		return scanNested(b, i, room-1)
	case 't':
		return scanWord(b, i, "true")
	case 'f':
		return scanWord(b, i, "false")
	case 'n':
		return scanWord(b, i, "null")
	default:
		return scanNumber(b, i)
	}
}

// scanNested scans an object or an array.
func scanNested(b []byte, i, room int) (int, bool) {
	if room < 0 {
		return deeper, false
	}
	object, end := b[i] == '{', b[i]+2 // in ASCII, } is { + 2, and ] is [ + 2
	if i = skipSpace(b, i+1); i < len(b) && b[i] == end {
		return i + 1, true
	}
	for ok := true; ; i = skipSpace(b, i+1) {
		if object {
			if i >= len(b) || b[i] != '"' {
				return i, false
			}
			if i, ok = scanString(b, i); !ok {
				return i, false
			}
			if i = skipSpace(b, i); i >= len(b) || b[i] != ':' {
				return i, false
			}
			i = skipSpace(b, i+1)
		}
		if i, ok = scanValue(b, i, room); !ok {
			return i, false
		}
		if i = skipSpace(b, i); i >= len(b) {
			return i, false
		}
		if b[i] == end {
			return i + 1, true
		}
		if b[i] != ',' {
			return i, false
		}
	}
}

func scanString(b []byte, i int) (int, bool) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, true
		case c < ' ':
			return i, false
		case c == '\\':
			if i++; i >= len(b) {
				return i, false
			}
			switch b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				for range 4 {
					if i++; i >= len(b) || !isHex(b[i]) {
						return i, false
					}
				}
			default:
				return i, false
			}
		}
	}
	return i, false
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func scanWord(b []byte, i int, word string) (int, bool) {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return i, false
	}
	return i + len(word), true
}

func scanNumber(b []byte, i int) (int, bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i < len(b) && b[i] == '0':
		i++
	default:
		var ok bool
		if i, ok = scanDigits(b, i); !ok {
			return i, false
		}
	}
	ok := true
	if i < len(b) && b[i] == '.' {
		if i, ok = scanDigits(b, i+1); !ok {
			return i, false
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		i, ok = scanDigits(b, i)
	}
	return i, ok
}

// scanDigits scans at least one digit.
func scanDigits(b []byte, i int) (int, bool) {
	from := i
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i, i > from
}
