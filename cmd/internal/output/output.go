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
	"os"
)

// Streams are the standard streams of the process.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// NoticeTerminal tells the user that the command reads from the terminal, if it does. Nothing
// else would show that it waits.
func (s Streams) NoticeTerminal(what string) {
	if isTerminal(s.In) {
		_, _ = fmt.Fprintf(s.Err, "lapse: type %s and end with ctrl-D\n", what)
	}
}

// Warn prints a warning on standard error.
func (s Streams) Warn(text string) { _, _ = fmt.Fprintln(s.Err, "lapse: warning: "+text) }

// isTerminal reports whether a stream is a terminal, as far as one can tell.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // also a character device
	return err != nil || !os.SameFile(info, null)
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
