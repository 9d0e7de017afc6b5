package console

import (
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/seed18712806/lapse/cmd/internal/console/view"
)

// badJSON is where a text stops being JSON.
type badJSON struct {
	Line, Column int    // from 1; the column counts characters
	At           int    // the same place, in UTF-16 units from the beginning: a script selects it
	Text         string // the line
}

// findBadJSON returns nil for JSON.
func findBadJSON(body string) *badJSON {
	var wrong *json.SyntaxError
	if err := json.Unmarshal([]byte(body), new(any)); !errors.As(err, &wrong) {
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
	b := &badJSON{Line: 1 + strings.Count(before, "\n"), Column: 1 + utf8.RuneCountInString(body[begin:at]), Text: view.Visible(line)}
	b.At = len(utf16.Encode([]rune(before)))
	return b
}
