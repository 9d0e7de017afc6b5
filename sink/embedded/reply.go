package embedded

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tidwall/redcon"
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
	noExpiry   failure = "ERR keys do not expire in the embedded Redis"
	noScript   failure = "NOSCRIPT No matching script. Please use EVAL."
)

func wrongNumber(command string) failure {
	return failure(fmt.Sprintf("ERR wrong number of arguments for '%s' command", strings.ToLower(command)))
}

func unknown(command string) failure {
	return failure(fmt.Sprintf("ERR unknown command '%.128s': the embedded Redis has only the commands that lapse uses, and some more", command))
}

// write sends a reply.
func write(c redcon.Conn, reply any) {
	switch r := reply.(type) {
	case nil:
		c.WriteNull()
	case string:
		c.WriteBulkString(r)
	case int:
		c.WriteInt(r)
	case status:
		c.WriteString(string(r))
	case failure:
		c.WriteError(string(r))
	case []any:
		c.WriteArray(len(r))
		for _, one := range r {
			write(c, one)
		}
	default:
		panic(fmt.Sprintf("a reply of type %T", reply))
	}
}

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
