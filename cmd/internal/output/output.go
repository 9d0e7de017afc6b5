// Package output prints what a command answers: its result on standard output, as text or
// as JSON, and its error as one line on standard error, with an exit code.
//
// [PrintJSON] prints JSON; [Name], [Expires] and the other functions in text.go write one
// value as text. Errors of this package carry the exit code ([Usagef], [StatusError]), and
// [Fail] reports any error.
package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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
