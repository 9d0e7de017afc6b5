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
	"regexp"

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
	members, err := Members(document) // not a struct, which would match names without regard to case
	if err != nil {
		return "", err
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

// version is the version of the lines that an export writes.
const version = 1

// former is the first member of a message's line in the exports of earlier versions.
const former = "$lapse"

// Record is a document of a line, and what belongs to it. What a write names in a header is as it stands there, and
// empty if there is none.
type Record struct {
	ID          string
	Document    []byte
	Clock       string // from where the TTL counts
	Created     string // when the document was created, if that is before Clock and maxLife counts from there
	Deadline    string // see wire.HeaderExpiresAt
	NotAfter    string // see wire.HeaderNotAfter
	Target      string // see wire.HeaderTarget
	Traceparent string // see wire.HeaderTrace
	// Whole means that an export has written the line, so it has all that belongs to the document.
	Whole bool
}

// HeaderClock is the [wire.HeaderClock] of the write.
func (r Record) HeaderClock() string { return wire.FormatClock(r.Clock, r.Created) }

// exported is a line of an export. It has the document itself, or as a text where that is not a line by itself.
type exported struct {
	Lapse       int             `json:"lapse"`
	ID          string          `json:"id"`
	Clock       *wire.Time      `json:"clock,omitempty"`
	Created     wire.Time       `json:"created,omitzero"`
	Deadline    *wire.Time      `json:"deadline,omitempty"`
	NotAfter    *wire.Time      `json:"notAfter,omitempty"`
	Target      string          `json:"target,omitempty"`
	Traceparent string          `json:"traceparent,omitempty"`
	Document    json.RawMessage `json:"document,omitempty"`
	Text        *string         `json:"text,omitempty"`
}

// Append appends a document as a line of an export, from which Parse reads its bytes and all that belongs to it.
func Append(b []byte, doc wire.Document) ([]byte, error) {
	e := exported{Lapse: version, ID: doc.ID, Clock: &doc.Clock, Created: doc.Created, Deadline: doc.Deadline,
		NotAfter: doc.NotAfter, Target: doc.Target, Traceparent: doc.Traceparent}
	if doc.Clock == 0 {
		e.Clock = &doc.Ts
	}
	raw := doc.Document
	if len(raw) == 0 || raw[0] != '{' || raw[len(raw)-1] != '}' || bytes.ContainsAny(raw, "\r\n") {
		text := string(raw)
		e.Text, raw = &text, nil
	}
	line := bytes.NewBuffer(b)
	enc := json.NewEncoder(line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, err
	}
	if raw == nil {
		return bytes.TrimSuffix(line.Bytes(), []byte("\n")), nil
	}
	// The document goes there by hand: an encoder removes its white space.
	line.Truncate(line.Len() - len("}\n"))
	line.WriteString(`,"document":`)
	line.Write(raw)
	line.WriteByte('}')
	return line.Bytes(), nil
}

// begins reports whether an object begins with a member of a name, and returns what follows the name.
func begins(object []byte, name string) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(bytes.TrimSpace(object), []byte("{"))
	if !ok {
		return nil, false
	}
	rest, ok = bytes.CutPrefix(bytes.TrimSpace(rest), []byte(`"`+name+`"`))
	rest, colon := bytes.CutPrefix(bytes.TrimSpace(rest), []byte(":"))
	return bytes.TrimSpace(rest), ok && colon
}

var number = regexp.MustCompile(`^[0-9]+`)

// IsExported reports whether a line is one of an export: its first member is lapse, with a number.
func IsExported(text []byte) bool {
	rest, ok := begins(text, "lapse")
	return ok && number.Match(rest)
}

// parseExported reads a line of an export.
func parseExported(text []byte) (r Record, err error) {
	if rest, _ := begins(text, "lapse"); string(number.Find(rest)) != fmt.Sprint(version) {
		return r, fmt.Errorf("the line is of version %s of the lines of an export, and this lapse reads version %d: import "+
			"it with the lapse that has exported it, or a newer one", number.Find(rest), version)
	}
	var e exported
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return r, fmt.Errorf("the line begins as one of an export, and is none: %w", err)
	}
	if rest := bytes.TrimSpace(text[dec.InputOffset():]); len(rest) > 0 {
		return r, fmt.Errorf("there is more behind the object of the line: %s", shortened(rest))
	}
	r = Record{ID: e.ID, Document: e.Document, Target: e.Target, Traceparent: e.Traceparent, Whole: true}
	switch {
	case (e.Text == nil) == (e.Document == nil):
		return r, errors.New("the line begins as one of an export, and has no document: it has either document or text")
	case e.Text != nil:
		r.Document = []byte(*e.Text)
	}
	if e.Created != 0 {
		r.Created = e.Created.String()
	}
	for to, at := range map[*string]*wire.Time{&r.Clock: e.Clock, &r.Deadline: e.Deadline, &r.NotAfter: e.NotAfter} {
		if at != nil {
			*to = at.String()
		}
	}
	return r, wire.CheckID(r.ID)
}

// parseFormer reads a message's line of an export of an earlier version: rest is what follows the name of its first
// member.
func parseFormer(rest []byte) (r Record, err error) {
	var e struct {
		ID        string `json:"id"`
		Target    string `json:"target"`
		ExpiresAt string `json:"expiresAt"`
	}
	dec := json.NewDecoder(bytes.NewReader(rest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return r, fmt.Errorf("the first member %s is not valid: use an object with id, target and expiresAt, as an export "+
			"of an earlier lapse has it: %w", former, err)
	}
	rest = bytes.TrimSpace(rest[dec.InputOffset():])
	r = Record{ID: e.ID, Target: e.Target, Deadline: e.ExpiresAt}
	r.Document = append([]byte("{"), bytes.TrimPrefix(rest, []byte(","))...)
	if r.ID != "" {
		err = wire.CheckID(r.ID)
	}
	return r, err
}

// Parse reads a line: a document with its id, or one of an export.
func Parse(text []byte) (Record, error) { return Shape{}.Record(text) }
