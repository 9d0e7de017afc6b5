package output

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

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
