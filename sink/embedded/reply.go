package embedded

import (
	"bufio"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A reply is a string, an int, a status, a failure, a []any of replies, or nil.

// status is a reply without content, such as OK.
type status string

const ok status = "OK"

// failure is an error reply. It begins with a code in capitals.
type failure string

const (
	wrongType  failure = "WRONGTYPE Operation against a key holding the wrong kind of value"
	syntax     failure = "ERR syntax error"
	notInteger failure = "ERR value is not an integer or out of range"
	notFloat   failure = "ERR value is not a valid float"
	noCursor   failure = "ERR invalid cursor"
	noKey      failure = "ERR no such key"
	noScript   failure = "NOSCRIPT No matching script. Please use EVAL."

	wrongPassword failure = "WRONGPASS invalid username-password pair or user is disabled."
)

func wrongNumber(command string) failure {
	return failure(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(command)))
}

func unknown(command string) failure {
	return failure(fmt.Sprintf("ERR unknown command '%.128s': the embedded Redis has only the commands that lapse uses, "+
		"and some more", command))
}

// write writes a reply.
func write(w *bufio.Writer, reply any) {
	// The errors of a bufio.Writer stay until it is flushed.
	switch r := reply.(type) {
	case nil:
		_, _ = w.WriteString("$-1\r\n")
	case string:
		writeNumber(w, '$', len(r))
		_, _ = w.WriteString(r)
		_, _ = w.WriteString("\r\n")
	case int:
		writeNumber(w, ':', r)
	case status:
		writeLine(w, '+', string(r))
	case failure:
		writeLine(w, '-', string(r))
	case []any:
		writeNumber(w, '*', len(r))
		for _, one := range r {
			write(w, one)
		}
	default:
		panic(fmt.Sprintf("a reply of type %T", reply))
	}
}

func writeNumber(w *bufio.Writer, mark byte, n int) {
	_ = w.WriteByte(mark)
	_, _ = w.Write(strconv.AppendInt(w.AvailableBuffer(), int64(n), 10))
	_, _ = w.WriteString("\r\n")
}

// writeLine writes a text that ends with its line. So it must not have line ends of its own, which a
// script can put there.
func writeLine(w *bufio.Writer, mark byte, text string) {
	_ = w.WriteByte(mark)
	_, _ = lines.WriteString(w, text)
	_, _ = w.WriteString("\r\n")
}

var lines = strings.NewReplacer("\r", " ", "\n", " ")

// formatScore writes a score as Redis does.
func formatScore(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case f == math.Trunc(f) && math.Abs(f) < 1<<53:
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', 17, 64)
}

// parseScore reads a score.
func parseScore(s string) (float64, bool) {
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil && !math.IsNaN(f)
}
