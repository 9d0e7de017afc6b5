package embedded

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
)

// limits are the most that one command may have. They are checked before memory is taken for
// what a client has announced.
type limits struct {
	words int // the name of the command and its arguments
	word  int // bytes of one of them
	all   int // bytes of all of them

	over protocolError // begins the error about what is over words or word
}

// Those of Redis, except that it has no limit for all words of a command together.
var (
	unknownClient = limits{words: 10, word: 16 << 10, all: 10 * 16 << 10, over: "unauthenticated"}
	knownClient   = limits{words: 1 << 20, word: 512 << 20, all: 512 << 20, over: "invalid"}
)

const (
	longestLine = 64 << 10 // bytes of an inline command, or of a length, with its end
	readBuffer  = 16 << 10
	firstWords  = 1 << 10 // for which there is memory before they have come
	firstBytes  = 1 << 20
)

// protocolError is what is wrong with what a client sends. The connection ends with it, because it
// is unknown where the next command begins.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// readCommand reads the next command that is not empty.
func readCommand(in *bufio.Reader, most limits) ([]string, error) {
	for {
		first, err := in.Peek(1)
		if err != nil {
			return nil, err
		}
		var words []string
		if first[0] == '*' {
			words, err = readWords(in, most)
		} else {
			words, err = readInline(in)
		}
		if err != nil || len(words) > 0 {
			return words, err
		}
	}
}

// readInline reads a line that somebody has typed.
func readInline(in *bufio.Reader) ([]string, error) {
	line, err := readLine(in, "too big inline request")
	if err != nil {
		return nil, err
	}
	if bytes.ContainsAny(line, `"'`) {
		return nil, protocolError("an inline command has no quotes here: use redis-cli")
	}
	return strings.Fields(string(line)), nil
}

// readWords reads *<count>, and then each word as $<length> and its bytes.
func readWords(in *bufio.Reader, most limits) ([]string, error) {
	count, err := readLength(in, '*', "too big mbulk count string", "invalid multibulk length")
	switch {
	case err != nil:
		return nil, err
	case count > math.MaxInt32:
		return nil, protocolError("invalid multibulk length")
	case count > most.words:
		return nil, most.over + " multibulk length"
	case count <= 0:
		return nil, nil
	}
	words, left := make([]string, 0, min(count, firstWords)), most.all
	for range count {
		size, err := readLength(in, '$', "too big bulk count string", "invalid bulk length")
		switch {
		case err != nil:
			return nil, err
		case size < 0 || size > knownClient.word:
			return nil, protocolError("invalid bulk length")
		case size > most.word:
			return nil, most.over + " bulk length"
		case size > left:
			return nil, protocolError("the arguments of a command are too large together")
		}
		left -= size
		word, err := readWord(in, size)
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	return words, nil
}

// readWord reads so many bytes, and the end of the line.
func readWord(in *bufio.Reader, size int) (string, error) {
	const end = 2
	if size+end <= in.Size() {
		b, err := in.Peek(size + end)
		if err != nil {
			return "", err
		}
		word := string(b[:size])
		_, err = in.Discard(len(b))
		return word, err
	}
	var b strings.Builder
	b.Grow(min(size, firstBytes))
	if _, err := io.CopyN(&b, in, int64(size)); err != nil {
		return "", err
	}
	_, err := in.Discard(end)
	return b.String(), err
}

// readLength reads a line of a mark and a number, which may be negative.
func readLength(in *bufio.Reader, mark byte, tooLong, invalid protocolError) (int, error) {
	first, err := in.Peek(1)
	if err != nil {
		return 0, err
	}
	if first[0] != mark {
		return 0, protocolError("expected '" + string(mark) + "', got '" + string(rune(first[0])) + "'")
	}
	line, err := readLine(in, tooLong)
	if err != nil {
		return 0, err
	}
	digits, whole := bytes.CutSuffix(line[1:], []byte{'\r'})
	n, err := strconv.Atoi(string(digits))
	if err != nil || !whole || strconv.Itoa(n) != string(digits) { // "+1" and "01" are no lengths in Redis
		return 0, invalid
	}
	return n, nil
}

// readLine reads a line without its last byte. It is valid until the next read.
func readLine(in *bufio.Reader, tooLong protocolError) ([]byte, error) {
	line, err := in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		whole := bytes.Clone(line)
		for errors.Is(err, bufio.ErrBufferFull) && len(whole) < longestLine {
			line, err = in.ReadSlice('\n')
			whole = append(whole, line...)
		}
		line = whole
	}
	switch {
	case len(line) >= longestLine:
		return nil, tooLong
	case err != nil:
		return nil, err
	}
	return line[:len(line)-1], nil
}
