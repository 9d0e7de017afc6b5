package fold

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// Kind is what a message of the log asks for.
type Kind int

const (
	Write Kind = iota
	Configure
	Drop
	// PauseAll pauses all collections. A restore puts it at the end of a log.
	PauseAll
	// Malformed: its subject names no document or collection, or it is a configuration or drop
	// that is not valid by itself. If it has no Rejected, there is nothing to apply or to reject.
	Malformed
)

// Message is a message of the log, decoded as far as that depends on itself alone.
type Message struct {
	Position        // of the message in the log
	Subject  string // on which it was published
	Rest     string // of the subject, behind the kind and the operation

	Kind       Kind
	Op         wire.Op
	Collection string
	ID         string
	Body       []byte
	TTL        ttlrules.TTL // Inherit if there is TTLErr
	TTLErr     error        // why the body's ttl is not valid: an error only while TTL is on
	Clock      Asked
	Target     string // of the version, "" if none
	Config     Requested

	IfMatch  IfMatch
	ReplyTo  string // as the client sent it, until CheckReply
	Trace    string
	Slide    bool     // lapse itself has appended it, for a read
	Rejected *Refusal // if that depends on the message alone
}

// IsControl reports whether the message is applied by itself: it is a configuration or a drop, or whatever
// else the stream of configurations has, or pauses all collections.
func (m *Message) IsControl() bool {
	return m.Kind == Configure || m.Kind == Drop || m.Kind == PauseAll || m.Source > 0
}

// Requested is the configuration that a message asks for.
type Requested struct {
	TTL            ttlrules.Default
	NoIndex        bool
	Lazy           bool
	MinTTL, MaxTTL int32 // 0: no limit
	MaxLife        int32 // 0: no limit
	WarnBefore     []int32
	SlideOnRead    wire.Slide
	NoEventBody    bool
	Changes        bool
	Paused         bool
	Indexes        []string
	Rules          wire.LogRulesBody // of [wire.LogRules] alone
}

// IfMatch is the etag that a message demands: a write that of the live document, a
// configuration or a drop that of the collection's configuration.
type IfMatch struct {
	Set  bool
	Etag wire.Etag // 0: any
}

// Refusal is why a message takes no effect.
type Refusal struct {
	Code   int
	Text   string
	Reason string // for programs, as in [wire.Outcome]
}

// badRequest is Refuse with the code of a message that is not valid.
func badRequest(format string, args ...any) *Refusal {
	return Refuse(wire.StatusBadRequest, format, args...)
}

// Refuse makes a refusal with a code.
func Refuse(code int, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Text: fmt.Sprintf(format, args...)}
}

// Etag is the etag of the configuration that the message asks for.
func (m *Message) Etag() uint64 { return cmp.Or(m.Source, m.Seq) }

// Decoder decodes messages. It holds what is the same for all of them.
type Decoder struct {
	Log       wire.Log
	MaxBody   int
	MaxLevels int // of objects and arrays within each other, in a body
}

// Decode is DecodeAs for a caller that has not parsed the subject.
func (d Decoder) Decode(subject string, header map[string][]string, data []byte, at Position) *Message {
	return d.DecodeAs(d.Log.ParseSubject(subject), header, data, at)
}

// DecodeAs decodes the message at a position, by its subject. A header with an empty name stands for one that cannot
// be read.
func (d Decoder) DecodeAs(s wire.LogSubject, header map[string][]string, data []byte, at Position) *Message {
	m := &Message{Position: at, Body: data, Kind: Malformed}
	m.Source = s.Source(header)
	if s.Kind == wire.SubjectLost || s.Sourced && m.Source == 0 && d.Log.Shard > 0 {
		return m // nothing is left to apply; or it is shard 0 that rejects it
	}
	m.Subject = s.Published()
	switch s.Kind {
	case wire.SubjectPause:
		m.Kind = PauseAll
		return m
	case wire.SubjectConfig, wire.SubjectDrop:
		d.control(m, s)
	case wire.SubjectWrite:
		d.write(m, s)
	case wire.SubjectShort:
		m.Op, m.Rest = s.Op, s.Rest
		m.Rejected = badRequest("the subject has too few tokens: use %s.write.<operation>.<collection>.<id>.",
			d.Log.Prefix)
	case wire.SubjectUnmapped:
		m.Op, m.Rest = s.Op, d.stray(s.Rest)
		m.Rejected = badRequest("the write came to the log of shard %d of %d without the mapping of NATS, and was "+
			"not applied: publish to %s.write.<operation>.<collection>.<id>, where the id is one token; if you did, "+
			"tell the operator that the account does not map it.", d.Log.Shard, d.Log.Shards, d.Log.Prefix)
	default:
		m.Rest = d.stray(s.Rest)
		m.Rejected = badRequest("subject %s is not for clients: publish writes to %s.write.>, and configurations to "+
			"%s.config.>.", wire.Quote(m.Subject), d.Log.Prefix, d.Log.Prefix)
	}
	m.readHeaders(header)
	if m.Kind != Malformed && m.Rejected == nil {
		m.Rejected = d.content(m)
	}
	if m.Rejected != nil && (m.Kind == Configure || m.Kind == Drop) {
		m.Kind = Malformed // it is rejected in a batch
	}
	return m
}

// control checks the collection of a configuration or a drop.
func (d Decoder) control(m *Message, s wire.LogSubject) {
	name, what := "configuration", "config"
	m.Kind = Configure
	if s.Kind == wire.SubjectDrop {
		name, what = "drop", "drop"
		m.Kind = Drop
	}
	m.Collection = s.Collection
	m.Rest, _, _ = strings.Cut(s.Rest, ".")
	if m.Kind == Configure && s.Collection == wire.LogRules {
		return
	}
	if err := wire.CheckCollection(s.Collection); err != nil {
		m.Kind = Malformed
		m.Rejected = badRequest("%v The subject of a %s is %s.%s.<collection>.", err, name, d.Log.Prefix, what)
	}
}

// write checks the operation, the collection and the id of a write.
func (d Decoder) write(m *Message, s wire.LogSubject) {
	m.Op, m.Rest = s.Op, s.Rest
	err := wire.CheckCollection(s.Collection)
	var id string
	if err == nil {
		id, err = wire.UnescapeID(s.Token)
	}
	if err != nil {
		m.Rejected = badRequest("%v The subject of a write is %s.write.<operation>.<collection>.<id>.", err,
			d.Log.Prefix)
		return
	}
	m.Kind, m.Collection, m.ID = Write, s.Collection, id
	if !slices.Contains(wire.Ops, m.Op) {
		m.Rejected = badRequest("operation %s is not known: use %s.", wire.Quote(string(m.Op)), oneOf(wire.Ops))
	}
}

// stray is the rest of the subject of a message that names no document of this shard. Its
// rejection has a subject of its own, which that of no other shard has: in the stream of events
// the messages of a subject are in the order of one log.
func (d Decoder) stray(rest string) string { return fmt.Sprintf("shard.%d.%s", d.Log.Shard, rest) }

// readHeaders reads the headers. It refuses an unknown one that begins with Lapse-, in any case
// of letters: that could be a condition.
func (m *Message) readHeaders(header map[string][]string) {
	bad := func(format string, args ...any) {
		if m.Rejected == nil {
			m.Rejected = badRequest(format, args...)
		}
	}
	if _, ok := header[""]; ok {
		bad("the headers cannot be read: write each on a line of its own, as a name, a colon and a value.")
	}
	values, others := make(map[string][]string, len(header)), []string(nil)
	for name, list := range header {
		if i := slices.IndexFunc(headersRead, func(h string) bool { return strings.EqualFold(h, name) }); i >= 0 {
			values[headersRead[i]] = append(values[headersRead[i]], list...)
		} else if len(name) >= len(ownHeaders) && strings.EqualFold(name[:len(ownHeaders)], ownHeaders) {
			others = append(others, name)
		}
	}
	traces, matches, replies := values[wire.HeaderTrace], values[wire.HeaderIfMatch], values[wire.HeaderReplyTo]
	slides := values[wire.HeaderSlide]
	if len(traces) == 1 && wire.ValidTraceparent(traces[0]) {
		m.Trace = traces[0]
	}
	if len(others) > 0 {
		bad("header %s is not known: the headers of lapse are %s.", wire.Quote(slices.Min(others)), allOf(headers))
	}
	if m.Rejected == nil {
		m.Rejected = cmp.Or(m.readClock(values), m.readTarget(values[wire.HeaderTarget]), m.takes(wire.HeaderSlide,
			slides, []wire.Op{wire.Touch}))
	}
	m.Slide = len(slides) > 0
	switch len(matches) {
	case 0:
	case 1:
		m.IfMatch.Set = true
		if matches[0] == "*" {
			break
		}
		etag, err := wire.ParseEtag(matches[0])
		if err != nil {
			bad("header %s is %s: use an etag, which is a positive whole number in decimal, or * for any.",
				wire.HeaderIfMatch, wire.Quote(matches[0]))
		}
		m.IfMatch.Etag = etag
	default:
		bad(severalTimes, wire.HeaderIfMatch, len(matches))
	}
	switch len(replies) {
	case 0:
	case 1:
		m.ReplyTo = replies[0]
		if m.ReplyTo == "" {
			bad("header %s is empty: use the subject of an inbox, or leave it out.", wire.HeaderReplyTo)
		}
	default:
		bad(severalTimes, wire.HeaderReplyTo, len(replies))
	}
	if m.Slide && (m.IfMatch.Etag == 0 || len(replies) > 0) {
		bad("header %s is not for clients: lapse puts it on its own touches, which have an etag in %s and no %s. "+
			"Leave it out.", wire.HeaderSlide, wire.HeaderIfMatch, wire.HeaderReplyTo)
	}
}

// ownHeaders is the beginning of the names of lapse's headers.
const ownHeaders = "Lapse-"

// headers are those that a client may send.
var headers = []string{wire.HeaderIfMatch, wire.HeaderReplyTo, wire.HeaderExpiresAt, wire.HeaderNotAfter,
	wire.HeaderClock, wire.HeaderTarget}

// headersRead are those and the ones of tracing and of lapse itself.
var headersRead = append(slices.Clip(headers), wire.HeaderTrace, wire.HeaderSlide)

const severalTimes = "header %s is there %d times: send it once."

// content checks the body, and reads its id and ttl, or its configuration.
func (d Decoder) content(m *Message) *Refusal {
	hasBody := m.Kind == Configure || m.Kind == Write && m.Op.HasBody()
	what := string(m.Op)
	if m.Kind == Drop {
		what = "drop"
	}
	switch {
	case len(m.Body) > d.MaxBody:
		return Refuse(wire.StatusTooLarge, "the body is %s long: use at most %s.", InBytes(len(m.Body)),
			InBytes(d.MaxBody))
	case !hasBody && len(m.Body) > 0:
		return badRequest("a %s takes no body, and this one has %s: send it without one.", what, InBytes(len(m.Body)))
	case !hasBody:
		return nil
	}
	if err := Check(m.Body, d.MaxLevels); err != nil {
		return badRequest("%v", err)
	}
	if m.Kind == Configure && m.Collection == wire.LogRules {
		return d.readRules(m)
	}
	if m.Kind == Configure {
		return m.readConfig()
	}
	var id, ttl []byte
	for name, value := range Members(m.Body) {
		switch name {
		case "id":
			id = value
		case "ttl":
			ttl = value
		}
	}
	if id != nil && !(m.Op == wire.Patch && string(id) == "null") {
		if r := otherID(id, m.ID); r != nil {
			return r
		}
	}
	m.TTL, m.TTLErr = ttlrules.ParseTTL(ttl)
	m.Clock.NamesTTL = ttl != nil
	if m.Clock.Begin != nil {
		return nil // touches and patches can have left both in the version that is brought over
	}
	if m.Clock.NotAfter != nil && m.TTL <= 0 { // Inherit too if it is not valid
		return badRequest("header %s limits a ttl, and that of the body is %s: give it one of 1 to %d s, or use %s.",
			wire.HeaderNotAfter, cmp.Or(show(ttl), "absent"), ttlrules.MaxSeconds, wire.HeaderExpiresAt)
	}
	if m.Clock.ExpiresAt != nil && (m.TTL != ttlrules.Inherit || m.TTLErr != nil) {
		return badRequest("the body has ttl %s, and header %s is there too: send one of them.", show(ttl),
			wire.HeaderExpiresAt)
	}
	return nil
}

// otherID refuses a body whose id is not the one in the subject.
func otherID(raw []byte, want string) *Refusal {
	var s *string
	if err := json.Unmarshal(raw, &s); err != nil || s == nil {
		return badRequest("the body's id is %s, which is not a string: use %s, as in the subject, or leave it out "+
			"of the body.", show(raw), wire.Quote(want))
	}
	if *s == want {
		return nil
	}
	got, want := apart(*s, want)
	return badRequest("the body's id is %s, and the subject's is %s: use the same id, or leave it out of the body.",
		got, want)
}

// readConfig reads the body of a configuration.
func (m *Message) readConfig() *Refusal {
	for name, value := range Members(m.Body) {
		switch name {
		case "defaultTtl":
			var err error
			if m.Config.TTL, err = ttlrules.ParseDefault(value); err != nil {
				return badRequest("%v", err)
			}
		case "indexingMode":
			var mode wire.Indexing
			err := json.Unmarshal(value, &mode)
			if err != nil || mode != wire.Consistent && mode != wire.Lazy && mode != wire.NoIndex {
				return badRequest("indexingMode %s is not valid: use %q, %q or %q.", show(value), wire.Consistent,
					wire.Lazy, wire.NoIndex)
			}
			m.Config.NoIndex, m.Config.Lazy = mode == wire.NoIndex, mode == wire.Lazy
		default:
			if r := m.Config.readMore(name, value); r != nil {
				return r
			}
		}
	}
	if m.Config.NoIndex && m.Config.TTL != ttlrules.Off {
		return badRequest("indexingMode %q and a defaultTtl exclude each other, because documents expire by the "+
			"index: set one of them only.", wire.NoIndex)
	}
	return m.Config.checkLimits()
}

// CheckReply refuses a message that asks for its outcome elsewhere than the log allows: that is for the rules of the
// log to say, so a message is checked when it is applied, in every region and rebuild alike.
func (m *Message) CheckReply(c Catalog) {
	if m.ReplyTo == "" || wire.IsInbox(m.ReplyTo, []string{wire.ReplyPrefix}) {
		return
	}
	inboxes, known := c.Inboxes()
	if wire.IsInbox(m.ReplyTo, inboxes) || !known && wire.IsInbox(m.ReplyTo, []string{""}) {
		return
	}
	if m.Rejected == nil {
		m.Rejected = badRequest("header %s is %s: use a subject without wildcards that begins with %s",
			wire.HeaderReplyTo, wire.Quote(m.ReplyTo), oneOf(inboxes))
	}
	m.ReplyTo = ""
	if m.Kind == Configure || m.Kind == Drop {
		m.Kind = Malformed
	}
}
