package processor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/document"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// kind is what a message of the log asks for.
type kind int

const (
	write kind = iota
	configure
	drop
	malformed // its subject names nothing; or it configures or drops, and is wrong by itself
)

// message is a message of the log, decoded as far as it says by itself.
type message struct {
	seq     uint64
	at      int64  // log time at it, Unix milliseconds
	subject string // on which it was published
	rest    string // of the subject, behind the kind and the operation

	kind       kind
	op         wire.Op
	collection string
	id         string
	body       []byte
	ttl        ttlrules.TTL // Inherit where ttlErr
	ttlErr     error        // what is wrong with the body's ttl, should it count
	config     requested

	ifMatch  ifMatch
	replyTo  string
	trace    string
	rejected *refusal // if the message alone decides that
}

// administers says whether the message is for all partitions, and applied by itself.
func (m *message) administers() bool { return m.kind == configure || m.kind == drop }

// requested is the configuration that a message asks for.
type requested struct {
	ttl     ttlrules.Default
	noIndex bool
}

// ifMatch is what a write demands of the live document.
type ifMatch struct {
	set  bool
	etag wire.Etag // 0: any
}

// refusal is why a message takes no effect.
type refusal struct {
	code int
	text string
}

func refuse(code int, format string, args ...any) *refusal {
	return &refusal{code, fmt.Sprintf(format, args...)}
}

// decoder knows what does not change from message to message.
type decoder struct {
	prefix     wire.Prefix
	partitions int
	maxBody    int
}

// route says which partition a subject goes to; all of them if global. What names no
// document goes to partition 0.
func (d decoder) route(subject string) (partition int, global bool) {
	what, rest := d.cut(subject)
	if what != "write" {
		return 0, what == "config" || what == "drop"
	}
	_, rest, _ = strings.Cut(rest, ".")
	collection, token, ok := strings.Cut(rest, ".")
	if !ok || strings.Contains(token, ".") {
		return 0, false
	}
	return wire.PartitionOfToken(d.partitions, collection, token), false
}

// cut cuts the kind of message off a subject.
func (d decoder) cut(subject string) (what, rest string) {
	s, _ := strings.CutPrefix(subject, string(d.prefix)+".")
	what, rest, _ = strings.Cut(s, ".")
	return what, rest
}

// headerOf is the header of a message. Where it cannot be read, the client library says
// that there is none; then it has an empty name, which no other has.
func headerOf(m *nats.Msg) nats.Header {
	if m.Header == nil && m.Size() > len(m.Subject)+len(m.Reply)+len(m.Data) {
		return nats.Header{"": nil}
	}
	return m.Header
}

// decode reads a message; see headerOf.
func (d decoder) decode(subject string, header nats.Header, data []byte, seq uint64, at int64) *message {
	m := &message{seq: seq, at: at, subject: subject, body: data, kind: malformed}
	what, rest := d.cut(subject)
	switch what {
	case "config", "drop":
		m.kind = configure
		if what == "drop" {
			m.kind = drop
		}
		m.collection = rest
		m.rest, _, _ = strings.Cut(rest, ".")
		if err := wire.CheckCollection(rest); err != nil {
			m.kind = malformed
			m.rejected = refuse(wire.StatusBadRequest, "%v: a subject is %s.%s.<collection>", err, d.prefix, what)
		}
	default:
		d.writeSubject(m, rest)
	}
	d.header(m, header)
	if m.kind != malformed && m.rejected == nil {
		m.rejected = d.content(m)
	}
	if m.rejected != nil && (m.kind == configure || m.kind == drop) {
		m.kind = malformed // it asks nothing of any partition: one rejects it, in a batch
	}
	return m
}

// writeSubject reads the operation, the collection and the id of a write.
func (d decoder) writeSubject(m *message, rest string) {
	op, rest, _ := strings.Cut(rest, ".")
	m.op, m.rest = wire.Op(op), rest
	collection, token, _ := strings.Cut(rest, ".")
	bad := func(format string, args ...any) {
		m.rejected = refuse(wire.StatusBadRequest, format+": a subject is %s.write.<operation>.<collection>.<id>", append(args, d.prefix)...)
	}
	if token == "" {
		bad("the subject has too few tokens")
		return
	}
	if err := wire.CheckCollection(collection); err != nil {
		bad("%v", err)
		return
	}
	id, err := wire.UnescapeID(token)
	if err != nil {
		bad("%v", err)
		return
	}
	m.kind, m.collection, m.id = write, collection, id
	for _, known := range wire.Ops {
		if m.op == known {
			return
		}
	}
	m.rejected = refuse(wire.StatusBadRequest, "unknown operation %q: allowed are %v", shorten(op), wire.Ops)
}

// header reads the headers. Those that begin with Lapse- are to be understood, in
// whatever case they are written: one that is passed over could be a condition.
func (d decoder) header(m *message, header nats.Header) {
	bad := func(format string, args ...any) {
		if m.rejected == nil {
			m.rejected = refuse(wire.StatusBadRequest, format, args...)
		}
	}
	if _, ok := header[""]; ok {
		bad("the headers cannot be read: allowed are lines of a name, a colon and a value")
	}
	names := make([]string, 0, 8)
	for name := range header {
		names = append(names, name)
	}
	slices.Sort(names) // the same message says the same each time
	for _, name := range names {
		values := header[name]
		if strings.EqualFold(name, wire.HeaderTrace) && len(values) == 1 && len(values[0]) <= sink.MaxTrace && isGraphic(values[0]) {
			m.trace = values[0]
		}
		if len(name) < len("Lapse-") || !strings.EqualFold(name[:len("Lapse-")], "Lapse-") {
			continue
		}
		if len(values) != 1 {
			bad("header %s is there %d times: allowed is once", shorten(name), len(values))
			continue
		}
		value := values[0]
		switch {
		case strings.EqualFold(name, wire.HeaderReplyTo):
			if m.replyTo != "" {
				bad("header %s is there twice: allowed is once", wire.HeaderReplyTo)
			}
			if !isInbox(value) {
				bad("header %s is %q: allowed is a subject without wildcards under %s", wire.HeaderReplyTo, shorten(value), wire.ReplyPrefix)
				continue
			}
			m.replyTo = value
		case strings.EqualFold(name, wire.HeaderIfMatch):
			if m.ifMatch.set {
				bad("header %s is there twice: allowed is once", wire.HeaderIfMatch)
			}
			if m.kind == configure || m.kind == drop {
				bad("header %s has no meaning on a %s: allowed is it on a write", wire.HeaderIfMatch, m.subject)
			}
			m.ifMatch.set = true
			if value == "*" {
				continue
			}
			etag, err := wire.ParseEtag(value)
			if err != nil {
				bad("header %s: %v, or *", wire.HeaderIfMatch, err)
			}
			m.ifMatch.etag = etag
		default:
			bad("unknown header %s: allowed are %s and %s", shorten(name), wire.HeaderIfMatch, wire.HeaderReplyTo)
		}
	}
}

// content checks the body, and reads of it what lapse goes by.
func (d decoder) content(m *message) *refusal {
	hasBody := m.kind == configure || m.kind == write && m.op.HasBody()
	what := string(m.op)
	if m.kind == drop {
		what = "drop"
	}
	switch {
	case len(m.body) > d.maxBody:
		return refuse(wire.StatusTooLarge, "the body has %d bytes: allowed are %d", len(m.body), d.maxBody)
	case !hasBody && len(m.body) > 0:
		return refuse(wire.StatusBadRequest, "a %s has no body: this one has %d bytes", what, len(m.body))
	case !hasBody:
		return nil
	}
	if err := document.Check(m.body); err != nil {
		return refuse(wire.StatusBadRequest, "%v", oneLine(err))
	}
	if m.kind == configure {
		return m.readConfig()
	}
	var id, ttl []byte
	for name, value := range document.Members(m.body) {
		switch name {
		case "id":
			id = value
		case "ttl":
			ttl = value
		}
	}
	if id != nil && !(m.op == wire.Patch && string(id) == "null") {
		var s *string
		if err := json.Unmarshal(id, &s); err != nil || s == nil || *s != m.id {
			return refuse(wire.StatusBadRequest, "the body's id is %s: allowed is %q, as in the subject, or none", shorten(string(id)), m.id)
		}
	}
	m.ttl, m.ttlErr = ttlrules.ParseTTL(ttl)
	return nil
}

// readConfig reads the body of a configuration.
func (m *message) readConfig() *refusal {
	const allowed = `allowed are defaultTtl and indexingMode`
	for name, value := range document.Members(m.body) {
		switch name {
		case "defaultTtl":
			var err error
			if m.config.ttl, err = ttlrules.ParseDefault(value); err != nil {
				return refuse(wire.StatusBadRequest, "%v", err)
			}
		case "indexingMode":
			var mode string
			err := json.Unmarshal(value, &mode)
			if err != nil || mode != string(wire.Consistent) && mode != string(wire.NoIndex) {
				return refuse(wire.StatusBadRequest, "indexingMode is %s: allowed are %q and %q", shorten(string(value)), wire.Consistent, wire.NoIndex)
			}
			m.config.noIndex = mode == string(wire.NoIndex)
		default:
			return refuse(wire.StatusBadRequest, "unknown property %q: %s", shorten(name), allowed)
		}
	}
	if m.config.noIndex && m.config.ttl != ttlrules.Off {
		return refuse(wire.StatusBadRequest, "indexingMode is none and defaultTtl is set: allowed is one of them, as what expires is found by the index")
	}
	return nil
}

// isInbox says whether a subject is one to which outcomes may go.
func isInbox(subject string) bool {
	rest, ok := strings.CutPrefix(subject, wire.ReplyPrefix)
	if !ok || len(subject) > 1024 || !isGraphic(subject) {
		return false
	}
	for token := range strings.SplitSeq(rest, ".") {
		if token == "" || token == "*" || token == ">" {
			return false
		}
	}
	return true
}

// isGraphic says whether s has only the visible characters of ASCII.
func isGraphic(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

func shorten(s string) string {
	const longest = 60
	if len(s) > longest {
		s = s[:longest] + "..."
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// oneLine puts a joined error in one line, as a header needs it.
func oneLine(err error) error {
	return errors.New(string(bytes.ReplaceAll([]byte(err.Error()), []byte("\n"), []byte(": "))))
}
