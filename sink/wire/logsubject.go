package wire

import (
	"strconv"
	"strings"
)

// SubjectKind is what the message on a subject of a log is.
type SubjectKind int

const (
	// SubjectStray is a subject on which neither a client nor lapse publishes.
	SubjectStray SubjectKind = iota
	// SubjectWrite is that of a write to a document of this shard.
	SubjectWrite
	// SubjectShort is that of a write with too few tokens to name a document.
	SubjectShort
	// SubjectUnmapped is that of a write which the mapping of NATS has not brought to this log, of several.
	SubjectUnmapped
	SubjectConfig
	SubjectDrop
	// SubjectLost is the copy of a message that [Prefix.ConfigStream] has lost.
	SubjectLost
	SubjectTick
	// SubjectPause is that of a message which pauses all collections. A restore puts it at the end of a log.
	SubjectPause
)

// LogSubject is what the subject of a message of a log says. See [Log.ParseSubject].
type LogSubject struct {
	Kind SubjectKind
	// Own tells whether the subject is one of the shard's own. With several shards, NATS maps the subjects of writes
	// to such subjects.
	Own bool
	// Sourced tells whether the log has the message from [Prefix.ConfigStream], of several shards.
	Sourced bool
	// Copied is the sequence there if the subject has it: see [Log.Copy].
	Copied uint64

	// None of these is checked: the operation may be one that lapse does not know, the names may be invalid.
	Op         Op     // of any write
	Rest       string // behind the operation of a write, or the kind of a configuration; of a stray subject, most of it
	Collection string // of a write, an unmapped one too, and of a configuration or a drop
	Token      string // the id of a write, an unmapped one too, as it is in the subject

	prefix  Prefix
	subject string
	tail    string // of the published subject, behind the prefix; "" if that is the subject
}

// ParseSubject reads the subject of a message of the log. It allocates nothing. Whoever needs to know what a message
// is asks for this value, and does not cut the subject.
func (l Log) ParseSubject(subject string) LogSubject {
	s := LogSubject{prefix: l.Prefix, subject: subject, Rest: subject}
	rest, ok := afterToken(subject, string(l.Prefix))
	if !ok {
		return s
	}
	several := l.Shards > 1
	if s.Own = !several; several {
		if tail, ok := l.afterShard(rest); ok {
			rest, s.Own = tail, true
		}
	}
	s.Rest = rest
	kind, behind, _ := strings.Cut(rest, ".")
	// NATS maps writes alone. A configuration comes from its stream, under its own subject or as a copy.
	unmapped := !several || !s.Own
	switch {
	case kind == "write":
		s.tail = rest
		l.parseWrite(&s, behind)
	case rest == "tick" && s.Own:
		s.Kind, s.tail = SubjectTick, rest
	case rest == "pause" && s.Own:
		s.Kind, s.tail = SubjectPause, rest
	case kind == "config" && unmapped:
		s.Kind, s.Sourced, s.Rest, s.Collection = SubjectConfig, several, behind, behind
	case kind == "drop" && unmapped:
		s.Kind, s.Sourced, s.Rest, s.Collection = SubjectDrop, several, behind, behind
	case kind == "copy":
		s.Rest = behind
		if several && s.Own {
			s.parseCopy(behind)
		}
	}
	return s
}

// parseWrite reads what comes behind ".write.".
func (l Log) parseWrite(s *LogSubject, rest string) {
	op, rest, _ := strings.Cut(rest, ".")
	s.Op, s.Rest = Op(op), rest
	collection, token, ok := strings.Cut(rest, ".")
	if ok {
		s.Collection, s.Token = collection, token
	}
	switch {
	case l.Shards > 1 && !(s.Own && ok && l.has(collection, token)):
		s.Kind = SubjectUnmapped
	case ok:
		s.Kind = SubjectWrite
	default:
		s.Kind = SubjectShort
	}
}

// has reports whether NATS maps a write of a document to this log.
func (l Log) has(collection, token string) bool {
	return !strings.Contains(token, ".") && ShardOf(l.Shards, collection, token) == l.Shard
}

// parseCopy reads what comes behind ".copy.". It leaves a stray subject unless that is a copy of a configuration or a
// drop, or of a lost message.
func (s *LogSubject) parseCopy(rest string) {
	number, original, more := strings.Cut(rest, ".")
	kind, collection, _ := strings.Cut(original, ".")
	as := SubjectLost
	switch {
	case !more:
	case kind == "config":
		as = SubjectConfig
	case kind == "drop":
		as = SubjectDrop
	default:
		return
	}
	if seq, _ := strconv.ParseUint(number, 10, 64); seq > 0 {
		s.Kind, s.Sourced, s.Copied, s.Rest, s.Collection, s.tail = as, true, seq, collection, collection, original
	}
}

// Source is the sequence that the message has in [Prefix.ConfigStream]; 0 if the log does not have it from there, or
// the headers do not tell.
func (s LogSubject) Source(header map[string][]string) uint64 {
	switch {
	case !s.Sourced:
		return 0
	case s.Copied > 0:
		return s.Copied
	}
	return SourceSequence(header)
}

// Published is the subject on which a client has published the message; of a stray one that in the log.
func (s LogSubject) Published() string {
	if s.tail == "" || len(s.prefix)+len(".")+len(s.tail) == len(s.subject) {
		return s.subject
	}
	return string(s.prefix) + "." + s.tail
}

// afterToken returns what comes behind the first token of a subject; ok = false if that is another one, or the last.
func afterToken(subject, token string) (rest string, ok bool) {
	if len(subject) <= len(token) || subject[len(token)] != '.' || subject[:len(token)] != token {
		return "", false
	}
	return subject[len(token)+1:], true
}

// afterShard returns what comes behind "shard." and the number of this shard.
func (l Log) afterShard(rest string) (tail string, ok bool) {
	if rest, ok = afterToken(rest, "shard"); !ok {
		return "", false
	}
	return afterToken(rest, strconv.Itoa(l.Shard))
}
