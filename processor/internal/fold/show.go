package fold

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// These functions show in a rejection what a client has sent: on one line, short, and with
// escapes for characters that cannot be seen. See also [wire.Quote].

// show shows a JSON value as it was written.
func show(raw []byte) string {
	const longest = 60
	var b strings.Builder
	for i := 0; i < len(raw); {
		r, size := utf8.DecodeRune(raw[i:])
		if i+size > longest {
			b.WriteString("...")
			break
		}
		part := string(raw[i : i+size])
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			part = strings.Trim(strconv.Quote(part), `"`)
		}
		b.WriteString(part)
		i += size
	}
	return b.String()
}

// apart shows two texts that differ, so that the difference can be seen: in ASCII, and of
// long texts the part where they differ.
func apart(a, b string) (string, string) {
	const longest, before = 60, 20
	differ := 0
	for differ < min(len(a), len(b)) && a[differ] == b[differ] {
		differ++
	}
	part := func(s string) string {
		from, to := 0, len(s)
		if len(a) > longest || len(b) > longest {
			from = max(0, differ-before)
			to = min(len(s), from+longest)
		}
		for from > 0 && !utf8.RuneStart(s[from]) {
			from--
		}
		for to < len(s) && !utf8.RuneStart(s[to]) {
			to++
		}
		text := s[from:to]
		if from > 0 {
			text = "..." + text
		}
		if to < len(s) {
			text += "..."
		}
		return strconv.QuoteToASCII(text)
	}
	return part(a), part(b)
}

// InBytes is a number of bytes in words.
func InBytes(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// oneOf lists the allowed values. It ends a sentence if the last of the list does.
func oneOf[T ~string](list []T) string { return enumerate(list, "or") }

// allOf lists values that are all meant.
func allOf[T ~string](list []T) string { return enumerate(list, "and") }

func enumerate[T ~string](list []T, last string) string {
	var b strings.Builder
	for i, s := range list {
		switch {
		case i == 0:
		case i == len(list)-1:
			b.WriteString(" " + last + " ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(string(s))
	}
	return b.String()
}
