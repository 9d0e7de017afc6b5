package ndjson

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/seed18712806/lapse/sink/wire"
)

// member is the name of the first member of a line that says what belongs to a document and is not in
// it. An import takes it out of the document.
const member = "$lapse"

// Record is a document of a line, and what belongs to it.
type Record struct {
	ID        string `json:"id,omitempty"`
	Target    string `json:"target,omitempty"`    // see wire.HeaderTarget
	ExpiresAt string `json:"expiresAt,omitempty"` // see wire.HeaderExpiresAt
	Document  []byte `json:"-"`
}

// Append appends a document as a line, which Parse reads. If it lacks its id, that comes first. If it has
// a target, the member $lapse comes first, without which the message would lose its target and its time.
// Its ttl counts again from the import on, as that of other documents.
func Append(b []byte, doc wire.Document) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(doc.Document, &members); err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, doc.Document); err != nil {
		return nil, err
	}
	r := Record{ID: doc.ID, Target: doc.Target}
	if ttl, ok := members["ttl"]; doc.Target != "" && doc.ExpiresAt != nil && (!ok || string(ttl) == "null") {
		r.ExpiresAt = doc.ExpiresAt.String()
	}
	_, hasID := members["id"]
	_, misread := begins(compact.Bytes())
	line := bytes.NewBuffer(b)
	enc := json.NewEncoder(line)
	enc.SetEscapeHTML(false)
	var err error
	switch {
	case doc.Target != "" || hasID && misread:
		line.WriteString(`{"` + member + `":`)
		err = enc.Encode(r)
	case hasID:
		return append(b, compact.Bytes()...), nil
	default:
		line.WriteString(`{"id":`)
		err = enc.Encode(doc.ID)
	}
	line.Truncate(line.Len() - 1) // the line's end
	rest := compact.Bytes()[1:]
	if rest[0] != '}' {
		line.WriteByte(',')
	}
	line.Write(rest)
	return line.Bytes(), err
}

// begins reports whether $lapse is the first member of an object, and returns what follows its name.
func begins(object []byte) (rest []byte, ok bool) {
	rest, ok = bytes.CutPrefix(bytes.TrimSpace(object), []byte("{"))
	if !ok {
		return nil, false
	}
	rest, ok = bytes.CutPrefix(bytes.TrimSpace(rest), []byte(`"`+member+`"`))
	rest, colon := bytes.CutPrefix(bytes.TrimSpace(rest), []byte(":"))
	return rest, ok && colon
}

// Parse reads a line: a document with its id, or one after the member $lapse, as an export writes it.
func Parse(text []byte) (r Record, err error) {
	r.Document = text
	if rest, ok := begins(text); ok {
		dec := json.NewDecoder(bytes.NewReader(rest))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&r); err != nil {
			return r, fmt.Errorf("the first member %s is not valid: use an object with id, target and expiresAt, as an export writes it: %w", member, err)
		}
		rest = bytes.TrimSpace(rest[dec.InputOffset():])
		r.Document = append([]byte("{"), bytes.TrimPrefix(rest, []byte(","))...)
	}
	if r.ID != "" {
		return r, wire.CheckID(r.ID)
	}
	r.ID, err = DocumentID(r.Document)
	return r, err
}
