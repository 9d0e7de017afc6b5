// Package output prints what a command answers: its result on standard output, as text or
// as JSON, and its error as one line on standard error, with an exit code.
//
// [PrintJSON] prints JSON; [Name], [Expires] and the other functions in text.go write one
// value as text. Errors of this package carry the exit code ([Usagef], [StatusError]), and
// [Fail] reports any error.
package output

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// Streams are the standard streams of the process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
	// Terminal reports whether one of them is a terminal; nil is for those of the system.
	Terminal func(stream any) bool
}

// NoticeTerminal tells the user that the command reads from the terminal, if it does. Nothing
// else would show that it waits.
func (s Streams) NoticeTerminal(what string) {
	if s.isTerminal(s.In) {
		_, _ = fmt.Fprintf(s.Err, "lapse: type %s and end with ctrl-D\n", what)
	}
}

// Notice tells the user something on standard error.
func (s Streams) Notice(text string) { _, _ = fmt.Fprintln(s.Err, "lapse: "+text) }

// Warn prints a warning on standard error.
func (s Streams) Warn(text string) {
	_, _ = fmt.Fprintln(s.Err, s.painted(s.Err, yellow, "lapse: warning:"), text)
}

// PrintJSON prints a value as JSON on one line. Of the documents in it, it changes only
// the white space.
func PrintJSON(w io.Writer, value any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// Compact puts a document on one line.
func Compact(document []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, document) != nil {
		return string(document)
	}
	return b.String()
}

// A style is how a terminal shows a text (SGR, ECMA-48).
type style string

const (
	bold   style = "1"
	faint  style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	blue   style = "34"
)

// isTerminal reports whether a stream is a terminal.
func (s Streams) isTerminal(stream any) bool {
	if _, ok := stream.(*screen); ok {
		return true
	}
	if s.Terminal != nil {
		return s.Terminal(stream)
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// OutIsTerminal reports whether a person reads the result, and not a program.
func (s Streams) OutIsTerminal() bool { return s.isTerminal(s.Out) }

// ErrIsTerminal reports whether a person reads the errors and the progress.
func (s Streams) ErrIsTerminal() bool { return s.isTerminal(s.Err) }

// colours reports whether a stream shows colours: a terminal, unless the user does not want them
// (https://no-color.org).
func (s Streams) colours(stream any) bool {
	return s.isTerminal(stream) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// painted is a text as a stream shows it.
func (s Streams) painted(stream any, how style, text string) string {
	if text == "" || !s.colours(stream) {
		return text
	}
	return command(stream, "\x1b["+string(how)+"m") + text + command(stream, "\x1b[0m")
}

// Headed returns standard output for a table. A terminal shows the first line, the heading, in bold.
func (s Streams) Headed() io.Writer {
	if !s.colours(s.Out) {
		return s.Out
	}
	return &headed{streams: s}
}

type headed struct {
	streams Streams
	line    bytes.Buffer // what there is of the heading
	done    bool
}

func (h *headed) Write(b []byte) (int, error) {
	if h.done {
		return h.streams.Out.Write(b)
	}
	line, rest, whole := bytes.Cut(b, []byte("\n"))
	h.line.Write(line)
	if !whole {
		return len(b), nil
	}
	h.done = true
	_, err := fmt.Fprintf(h.streams.Out, "%s\n%s", h.streams.painted(h.streams.Out, bold, h.line.String()), rest)
	return len(b), err
}

// Interactive reports whether somebody can answer a question: nothing goes to or comes from a file,
// a pipe or a script.
func (s Streams) Interactive() bool {
	return s.isTerminal(s.In) && s.isTerminal(s.Out) && s.isTerminal(s.Err)
}

// Confirm asks a question, and reports whether the answer is yes.
func (s Streams) Confirm(ctx context.Context, question string) (bool, error) {
	_, _ = fmt.Fprintf(s.Err, "%s [y/N] ", question)
	answered := make(chan string, 1)
	go func() { // the read of a terminal cannot be interrupted: it ends with the process
		line, _ := bufio.NewReader(s.In).ReadString('\n')
		answered <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case answer := <-answered:
		return answer == "y" || answer == "yes", nil
	case <-ctx.Done():
		_, _ = fmt.Fprintln(s.Err)
		return false, ctx.Err()
	}
}

// width is how many characters a line of a stream has.
func width(stream any) int {
	if s, ok := stream.(*screen); ok {
		stream = s.w
	}
	if f, ok := stream.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
}

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

// mark begins what lapse tells a terminal, and markEnd ends it.
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
