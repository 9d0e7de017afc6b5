package wire

import (
	"encoding/json"
	"strings"
)

// Due is what clients get of a message that the expiry of a document with a target delivers: see
// [HeaderTarget] and [ParseEvent]. Write it with [Due.Encode], as an [Event].
type Due struct {
	ID         string `json:"id"`
	Collection string `json:"collection"`
	Target     string `json:"target"`
	// Document is the last version, its bytes unchanged; absent if Omitted.
	Document json.RawMessage `json:"document,omitempty"`
	Omitted  bool            `json:"documentOmitted,omitempty"` // too large for the server's limits
	Etag     Etag            `json:"etag"`
	DueAt    Time            `json:"dueAt"` // the instant from which the document was expired
}

// Encode writes the message as JSON, and does not change the bytes of the document. They must be
// valid JSON; Encode does not check that.
func (d Due) Encode() []byte {
	b := make([]byte, 0, len(d.Document)+len(d.ID)+len(d.Collection)+len(d.Target)+160)
	b = appendString(append(b, `{"id":`...), d.ID)
	b = appendString(append(b, `,"collection":`...), d.Collection)
	b = appendString(append(b, `,"target":`...), d.Target)
	if len(d.Document) > 0 {
		b = append(append(b, `,"document":`...), d.Document...)
	}
	if d.Omitted {
		b = append(b, `,"documentOmitted":true`...)
	}
	b = append(append(append(b, `,"etag":"`...), d.Etag.String()...), `","dueAt":"`...)
	return append(d.DueAt.append(b), `"}`...)
}

// newDue is the due message of a header and a body, whose name was read.
func newDue(a About, header map[string][]string, body []byte) *Due {
	get := valuesOf(header)
	d := &Due{ID: a.ID, Collection: a.Collection, Target: get(HeaderTarget), Document: body, Etag: Etag(a.Seq),
		DueAt: a.At}
	if d.Omitted = get(HeaderTruncated) != ""; d.Omitted {
		d.Document = nil
	}
	return d
}

// CheckTargetFilter returns an ErrInvalidName unless a text selects targets: it is a target, or has
// the wildcards of NATS, * for one token and > for all that follow.
func CheckTargetFilter(filter string) error {
	plain := strings.ReplaceAll(filter, "*", "x")
	for _, token := range strings.Split(filter, ".") {
		if strings.Contains(token, "*") && token != "*" {
			plain = filter
		}
	}
	if plain == ">" || strings.HasSuffix(plain, ".>") {
		plain = plain[:len(plain)-1] + "x"
	}
	if err := CheckTarget(plain); err != nil {
		return invalid("filter %s of targets is not valid: use a target such as mail.send, or one with * for a token, or > "+
			"for all that follow, such as mail.>", Quote(filter))
	}
	return nil
}

// MatchTarget reports whether a filter that [CheckTargetFilter] allows selects a target.
func MatchTarget(filter, target string) bool {
	tokens := strings.Split(target, ".")
	wanted := strings.Split(filter, ".")
	for i, want := range wanted {
		switch {
		case i == len(tokens):
			return false
		case want == ">":
			return true
		case want != "*" && want != tokens[i]:
			return false
		}
	}
	return len(tokens) == len(wanted)
}

// StoredDue is the subject under which the stream of events stores the due messages whose targets a
// filter selects. Others may be there too: pick by [MatchTarget]. See [Prefix.EventTransform].
func (p Prefix) StoredDue(filter string) string {
	subject := p.Due(filter)
	if strings.HasSuffix(filter, ">") || strings.HasSuffix(filter, "*") {
		return subject
	}
	return p.Stored(subject)
}
