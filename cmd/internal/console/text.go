package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// A page shows a document up to mostShown bytes, and indents it if that has no more, and no more than
// mostDepth levels: indented, 20 KB of brackets are 200 MB. A form has a document of mostEdited
// bytes at most, because it must have all of it.
const (
	mostShown  = 1 << 20
	mostDepth  = 100
	mostEdited = 1 << 20
)

// text is a document as a page shows it.
type text struct {
	Shown string
	Whole int  // the bytes of all of it, if only its beginning is shown; otherwise 0
	Flat  bool // it would be too large indented, and is shown as it is stored
	Lossy bool // it shows marks for bytes that are not UTF-8
}

// newText makes the text of a document.
func newText(document []byte, indent bool) text {
	t := text{Lossy: !utf8.Valid(document)}
	if indent {
		size, depth := indented(document)
		if t.Flat = size > mostShown || depth > mostDepth; !t.Flat {
			document = pretty(document)
		}
	}
	if len(document) > mostShown {
		t.Whole = len(document)
		end := mostShown
		for end > mostShown-utf8.UTFMax && !utf8.RuneStart(document[end]) {
			end--
		}
		document = document[:end]
	}
	t.Shown = strings.ToValidUTF8(string(document), "�")
	return t
}

// pretty indents a document.
func pretty(document []byte) []byte {
	var b bytes.Buffer
	if err := json.Indent(&b, document, "", "  "); err != nil {
		return document
	}
	return b.Bytes()
}

// indented is the most bytes that a document has when it is indented, and its depth.
func indented(document []byte) (size, depth int) {
	level, quoted := 0, false
	for i := 0; i < len(document); i++ {
		size++
		switch c := document[i]; {
		case quoted && c == '\\':
			i++
			size++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == ':':
			size++ // a space
		case c == '{' || c == '[':
			level++
			depth = max(depth, level)
			size += 1 + 2*level
		case c == ',':
			size += 1 + 2*level
		case c == '}' || c == ']':
			level = max(level-1, 0)
			size += 1 + 2*level
		}
	}
	return size, depth
}

// badJSON is where a text stops being JSON.
type badJSON struct {
	Line, Column int    // from 1; the column counts characters
	At           int    // the same place, in UTF-16 units from the beginning: a script selects it
	Text         string // the line
}

// findBadJSON returns nil for JSON.
func findBadJSON(body string) *badJSON {
	wrong, ok := errors.AsType[*json.SyntaxError](json.Unmarshal([]byte(body), new(any)))
	if !ok {
		return nil
	}
	// The offset is behind the character that is wrong, or at the end where that is too early.
	at := int(wrong.Offset)
	if !strings.HasPrefix(wrong.Error(), "unexpected end") {
		at--
	}
	at = min(max(at, 0), len(body))
	for at > 0 && at < len(body) && !utf8.RuneStart(body[at]) {
		at--
	}
	before := body[:at]
	begin := strings.LastIndexByte(before, '\n') + 1
	line, _, _ := strings.Cut(body[begin:], "\n")
	if runes := []rune(line); len(runes) > 2*snippetRunes { // what is before the place matters
		from := max(0, utf8.RuneCountInString(body[begin:at])-snippetRunes)
		line = "…" + string(runes[from:min(len(runes), from+2*snippetRunes)])
	}
	b := &badJSON{Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(body[begin:at]),
		Text: visible(line)}
	b.At = len(utf16.Encode([]rune(before)))
	return b
}
