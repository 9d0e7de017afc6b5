package store

import (
	"strconv"
	"strings"
)

// Stamp is the instant at which the log stored one of its messages. If a log lost its end
// and has grown again since, it has another stamp at the same sequence.
type Stamp struct {
	Seq uint64 // of the message; 0 if no stamp is known
	At  int64  // Unix nanoseconds
}

// String writes a stamp as ParseStamp reads it; "" if none is known.
func (s Stamp) String() string {
	if s.Seq == 0 {
		return ""
	}
	return strconv.FormatUint(s.Seq, 10) + ":" + strconv.FormatInt(s.At, 10)
}

// ParseStamp reads what String wrote.
func ParseStamp(text string) (s Stamp, err error) {
	if text == "" {
		return s, nil
	}
	seq, at, _ := strings.Cut(text, ":")
	if s.Seq, err = parseUint("stamp", seq); err != nil {
		return s, err
	}
	n, err := parseUint("stamp", at)
	s.At = int64(n)
	return s, err
}
