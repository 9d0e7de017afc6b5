package output

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf8"
)

// screen writes to a terminal. A terminal obeys what it shows: so a screen escapes the control characters and
// those that change the direction of the text (as JSON does, so that JSON stays what it is), whoever has sent them. New
// lines and tabs stay. What lapse itself tells the terminal is marked, with a text that nobody else knows.
type screen struct {
	w io.Writer

	mu   sync.Mutex
	part []byte // of a character whose rest has not come yet
}

// Screens returns the streams with a screen in place of each that is a terminal. Files and pipes get the bytes as they
// are.
func (s Streams) Screens() Streams {
	out, err := s.isTerminal(s.Out), s.isTerminal(s.Err)
	if out {
		s.Out = &screen{w: s.Out}
	}
	if err {
		s.Err = &screen{w: s.Err}
	}
	return s
}

// What lapse tells a terminal begins with mark, and ends with markEnd.
var mark = []byte("\x1b_" + rand.Text() + ";")

const markEnd = ';'

// command is what lapse tells the terminal behind a stream, such as an escape sequence.
func command(stream any, sequence string) string {
	if _, ok := stream.(*screen); ok {
		return string(mark) + sequence + string(markEnd)
	}
	return sequence
}

// Write implements [io.Writer].
func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := append(s.part, b...)
	s.part = nil
	var shown []byte
	for len(text) > 0 {
		if rest, ok := bytes.CutPrefix(text, mark); ok {
			if sequence, rest, ok := bytes.Cut(rest, []byte{markEnd}); ok {
				shown, text = append(shown, sequence...), rest
				continue
			}
		}
		if !utf8.FullRune(text) {
			s.part = bytes.Clone(text)
			break
		}
		r, size := utf8.DecodeRune(text)
		if hidden(r) && (r != utf8.RuneError || size == 1) {
			shown = appendHidden(shown, r, text[0])
		} else {
			shown = append(shown, text[:size]...)
		}
		text = text[size:]
	}
	if _, err := s.w.Write(shown); err != nil {
		return 0, err
	}
	return len(b), nil
}

// hidden reports whether a character changes how a terminal shows the text around it.
func hidden(r rune) bool {
	return r != '\n' && r != '\t' && unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError
}

// appendHidden writes an escape in place of a character; first is its first byte.
func appendHidden(b []byte, r rune, first byte) []byte {
	if r == utf8.RuneError {
		return fmt.Appendf(b, `\x%02x`, first)
	}
	return fmt.Appendf(b, `\u%04x`, r) // all of them are in the basic plane
}
