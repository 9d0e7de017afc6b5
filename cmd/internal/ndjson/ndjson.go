// Package ndjson reads documents from an input that has one on each line ([NewReader]), in the lines of an export or in
// those of another store ([Shape]). [Append] writes the lines of an export.
package ndjson

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/seed18712806/lapse/sink/wire"
)

const bufferSize = 64 << 10

// Line is one line of an input.
type Line struct {
	Number int    // from 1
	Text   []byte // without the line's end and the white space around it; a copy. nil if TooLong
	Size   int    // bytes of the line as it was read, without its end
	// TooLong means that the line has more bytes than the reader takes.
	TooLong bool
}

// Reader reads lines.
type Reader struct {
	in      *bufio.Reader
	longest int
	number  int
	ended   bool
}

// NewReader makes a reader. It keeps at most longest bytes of a line.
func NewReader(r io.Reader, longest int) *Reader {
	return &Reader{in: bufio.NewReaderSize(r, bufferSize), longest: longest}
}

// Next returns the next line that is not empty, and io.EOF after the last one. A byte order
// mark before the first line does not count.
func (r *Reader) Next() (Line, error) {
	for !r.ended {
		text, size, err := readLine(r.in, r.longest)
		if err != nil && !errors.Is(err, io.EOF) {
			return Line{}, err
		}
		r.ended = err != nil
		r.number++
		l := Line{Number: r.number, Size: size, TooLong: size > r.longest}
		if l.TooLong {
			return l, nil
		}
		if l.Number == 1 {
			text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		}
		if l.Text = bytes.TrimSpace(text); len(l.Text) > 0 {
			return l, nil
		}
	}
	return Line{}, io.EOF
}

// readLine reads a line without its end, and counts its bytes. It drops those of a line that is
// too long.
func readLine(in *bufio.Reader, longest int) (text []byte, size int, err error) {
	for {
		part, err := in.ReadSlice('\n')
		size += len(part)
		if size <= longest+len("\r\n") {
			text = append(text, part...)
		} else {
			text = nil
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case text == nil:
			return nil, size - len(part) + len(withoutEnd(part)), err
		default:
			text = withoutEnd(text)
			return text, len(text), err
		}
	}
}

func withoutEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
}

// DocumentID reads the id from a document.
func DocumentID(document []byte) (string, error) {
	var members map[string]json.RawMessage // not a struct, which would match names without regard to case
	if err := json.Unmarshal(document, &members); err != nil || members == nil {
		if err == nil || json.Valid(document) {
			err = errors.New("it is another JSON value")
		}
		return "", fmt.Errorf("the line is not a JSON object: %w", err)
	}
	value, ok := members["id"]
	if !ok {
		return "", errors.New(`the document has no id: add "id" with a string`)
	}
	var id *string
	if err := json.Unmarshal(value, &id); err != nil || id == nil {
		return "", fmt.Errorf("the id %s is not a string: use a string of 1 to %d bytes", shortened(value), wire.MaxID)
	}
	return *id, wire.CheckID(*id)
}

// shortened is a value of JSON for a message.
func shortened(value []byte) string {
	const longest = 60
	if len(value) <= longest {
		return string(value)
	}
	return string(bytes.ToValidUTF8(value[:longest], nil)) + "..."
}
