package output

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Name is an id or another name as text. If the reader can see each of its characters and
// cannot take it for another, Name returns it as it is. Otherwise Name quotes it, and
// escapes what cannot be seen or looks like something else: combining characters, spaces
// other than the common one, characters without width, controls.
func Name(id string) string {
	odd := func(r rune) bool { return !isPlain(r) || r == ' ' || r == '"' }
	if utf8.ValidString(id) && !strings.ContainsFunc(id, odd) {
		return id
	}
	var b strings.Builder
	b.WriteByte('"')
	for len(id) > 0 {
		r, size := utf8.DecodeRuneInString(id)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, id[0])
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case isPlain(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < utf8.RuneSelf:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xFFFF:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		id = id[size:]
	}
	b.WriteByte('"')
	return b.String()
}

// isPlain reports whether a reader can see a character for what it is.
func isPlain(r rune) bool {
	const brailleBlank = 0x2800
	switch {
	case r == ' ':
		return true
	case r == brailleBlank, unicode.In(r, unicode.Other_Default_Ignorable_Code_Point):
		return false // these look like a space or like nothing, whatever their category
	}
	return unicode.IsPrint(r) && !unicode.IsMark(r)
}
