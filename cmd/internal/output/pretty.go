package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// mostIndented is the largest document that a terminal shows indented: nested brackets grow to a
// thousand times their size.
const mostIndented = 64 << 10

// PrintDocument prints a document: its bytes unchanged, or, to a terminal, indented and in colours.
// A terminal would obey control characters, so they are escaped there.
func (s Streams) PrintDocument(document []byte) error {
	var b bytes.Buffer
	if s.OutIsTerminal() && len(document) <= mostIndented && json.Indent(&b, document, "", "  ") == nil {
		document = []byte(s.pretty(b.Bytes()))
	}
	_, err := fmt.Fprintf(s.Out, "%s\n", document)
	return err
}

// pretty paints the strings, names and other scalars of a valid JSON text.
func (s Streams) pretty(text []byte) string {
	var b strings.Builder
	for len(text) > 0 {
		n, how := 1, style("")
		switch c := text[0]; {
		case c == '"':
			n, how = quoted(text), green
			if n < len(text) && text[n] == ':' {
				how = blue
			}
		case strings.IndexByte("{}[],: \n", c) < 0:
			if n = bytes.IndexAny(text, ",]} \n"); n < 0 {
				n = len(text)
			}
			how = yellow
		}
		part := visible(text[:n])
		if how != "" {
			part = s.painted(s.Out, how, part)
		}
		b.WriteString(part)
		text = text[n:]
	}
	return b.String()
}

// quoted is the length of the JSON string with which a text begins.
func quoted(text []byte) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// visible escapes, as JSON does, what changes how a terminal shows the text around it. A screen does too, but streams may
// have none.
func visible(text []byte) string {
	var b []byte
	for _, r := range string(text) {
		if hidden(r) && r != utf8.RuneError {
			b = appendHidden(b, r, 0)
		} else if r == utf8.RuneError {
			b = append(b, `\ufffd`...)
		} else {
			b = utf8.AppendRune(b, r)
		}
	}
	return string(b)
}
