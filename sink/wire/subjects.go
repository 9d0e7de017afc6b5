package wire

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Prefix begins every subject and every key, and the names of the streams, in upper case. So
// two prefixes on one server must differ in more than case. See [ParsePrefix].
//
// Its methods do not check names: check a collection with [CheckCollection] and an id with
// [CheckID] first. They escape ids; collections need no escape.
type Prefix string

// DefaultPrefix is the prefix if no other is set.
const DefaultPrefix Prefix = "lapse"

// OrDefault checks the prefix of options whose zero value is documented to be [DefaultPrefix].
// Everything else that takes a prefix checks it with [ParsePrefix], which refuses an empty one:
// parts of a process that took different prefixes for it would not find each other's subjects.
func (p Prefix) OrDefault() (Prefix, error) {
	if p == "" {
		return DefaultPrefix, nil
	}
	return ParsePrefix(string(p))
}

// ParsePrefix checks that a prefix is 1 to 32 of A-Z a-z 0-9 _ -.
func ParsePrefix(s string) (Prefix, error) {
	ok := s != "" && len(s) <= 32
	for i := 0; ok && i < len(s); i++ {
		ok = isWord(s[i])
	}
	if !ok {
		return "", invalid("prefix %s is not valid: use 1 to 32 of A-Z a-z 0-9 _ -.", Quote(s))
	}
	return Prefix(s), nil
}

// CheckReplyPrefix returns an error unless the operator may allow outcomes on subjects that
// begin with s, such as _INBOX_acme. It must be whole tokens without wildcards, and neither
// lapse's own prefix nor one of the server's.
func (p Prefix) CheckReplyPrefix(s string) error {
	const longest = 255
	ok := s != "" && len(s) <= longest && s[0] != '$'
	for i := 0; ok && i < len(s); i++ {
		ok = s[i] > ' ' && s[i] <= '~' && s[i] != '*' && s[i] != '>'
	}
	tokens := strings.Split(s, ".")
	for _, token := range tokens {
		ok = ok && token != ""
	}
	if !ok || tokens[0] == string(p) {
		return invalid("reply prefix %s is not valid: use the beginning of a subject, in whole tokens without wildcards, "+
			"such as _INBOX_acme; it may not begin with $ or be %s itself.", Quote(s), p)
	}
	return nil
}

// Inboxes are the beginnings of the subjects to which outcomes may go: [ReplyPrefix], and the prefixes that the
// operator allows.
func Inboxes(replyPrefixes []string) []string {
	all := []string{ReplyPrefix}
	for _, prefix := range replyPrefixes {
		all = append(all, prefix+".")
	}
	return all
}

// IsInbox reports whether a subject is one without wildcards that begins with one of some inboxes.
func IsInbox(subject string, inboxes []string) bool {
	const longest = 1024
	if len(subject) > longest || !isGraphic(subject) {
		return false
	}
	for _, inbox := range inboxes {
		rest, ok := strings.CutPrefix(subject, inbox)
		for token := range strings.SplitSeq(rest, ".") {
			ok = ok && token != "" && token != "*" && token != ">"
		}
		if ok {
			return true
		}
	}
	return false
}

// isGraphic reports whether s has only the visible characters of ASCII.
func isGraphic(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}

// Op is the operation of a write.
type Op string

// The operations of a write.
const (
	Upsert  Op = "upsert"
	Create  Op = "create"
	Replace Op = "replace"
	Patch   Op = "patch"
	Touch   Op = "touch"
	Delete  Op = "delete"
)

// Ops lists every operation.
var Ops = []Op{Upsert, Create, Replace, Patch, Touch, Delete}

// HasBody reports whether the operation needs a JSON object as its body. The others must have
// an empty body.
func (o Op) HasBody() bool { return o != Touch && o != Delete }

// Write is the subject of a write.
func (p Prefix) Write(op Op, collection, id string) string {
	return string(p) + ".write." + string(op) + "." + collection + "." + EscapeID(id)
}

// Config is the subject on which clients configure a collection.
func (p Prefix) Config(collection string) string { return string(p) + ".config." + collection }

// Drop is the subject on which clients drop a collection.
func (p Prefix) Drop(collection string) string { return string(p) + ".drop." + collection }

// Expired is the subject of a document's expiry events.
func (p Prefix) Expired(collection, id string) string {
	return string(p) + ".expired." + collection + "." + EscapeID(id)
}

// Expiring is the subject of a document's warnings.
func (p Prefix) Expiring(collection, id string) string {
	return string(p) + ".expiring." + collection + "." + EscapeID(id)
}

// Due is the subject of the message that the expiry of a document with a target delivers. The target
// may have the wildcards of NATS, for those who subscribe.
func (p Prefix) Due(target string) string { return string(p) + ".due." + target }

// Changed is the subject of a document's changes.
func (p Prefix) Changed(collection, id string) string {
	return p.Dropped(collection) + "." + EscapeID(id)
}

// Dropped is the subject of the message about the drop of a collection, whose changes are published.
func (p Prefix) Dropped(collection string) string { return string(p) + ".changed." + collection }

// Rejected is the subject of a rejection. rest is the subject of the rejected message without
// the kind and the operation. Whatever rest is, the result is a valid subject, and
// different from that of any other rest: see [EscapeToken]. If rest is very long, the subject
// has its beginning and a hash. The original subject is in the rejection's Lapse-Subject.
func (p Prefix) Rejected(rest string) string {
	const longest = 2048
	escaped := EscapeToken(rest)
	if len(escaped) > longest {
		h := fnv.New64a()
		_, _ = h.Write([]byte(rest))
		escaped = fmt.Sprintf("%s!%016X", strings.TrimSuffix(escaped[:longest-17], "."), h.Sum64())
	}
	return string(p) + ".rejected." + escaped
}

// Fence is the subject of a shard's fences in the stream of events. The owner of the
// shard publishes an event on the condition that the last fence is its own. A fence has no
// body.
func (p Prefix) Fence(shard int) string {
	return string(p) + ".fence." + strconv.Itoa(shard)
}

// Barrier is the subject of messages in the stream of events whose sequence shows where that ends.
func (p Prefix) Barrier() string { return string(p) + ".fence.barrier" }

// Probe is a subject of the stream of events on which nothing is ever stored. lapse uses it to
// test whether the stream accepts messages.
func (p Prefix) Probe() string { return string(p) + ".fence.probe" }

// Snapshot is the subject on which the owner of a shard takes orders of snapshots ([SnapshotOrder]).
func (p Prefix) Snapshot(shard int) string { return string(p) + ".snapshot." + strconv.Itoa(shard) }

// Region is the subject on which the processes of lapse in a JetStream domain answer those of other regions
// ([RegionRequest]).
func (p Prefix) Region(domain string) string { return string(p) + ".region." + domain }

// Filling is a subject of the stream of events for messages that fill a file of the server, and are
// removed at once.
func (p Prefix) Filling() string { return string(p) + ".fence.filling" }

// Read is the subject of a read: verb is get, list, count, forecast, config or settled.
func (p Prefix) Read(verb, collection string) string {
	return string(p) + ".read." + verb + "." + collection
}

// ReadCollections is the subject of a list of the collections.
func (p Prefix) ReadCollections() string { return string(p) + ".read.collections" }

// ReadGet is the subject of a read of one document.
func (p Prefix) ReadGet(collection, id string) string {
	return p.Read("get", collection) + "." + EscapeID(id)
}

// Readers is the subject on which JetStream delivers the events to the mirror in an account of readers.
func (p Prefix) Readers(account string) string { return string(p) + ".readers." + account }

// LogStream is the name of the log, if the prefix has one shard. See [Prefix.Log].
func (p Prefix) LogStream() string { return p.Log(0, 1).Stream() }

// ConfigStream is the name of the stream of configurations and drops, if the prefix has
// several shards: the log of each shard sources it.
func (p Prefix) ConfigStream() string { return strings.ToUpper(string(p)) + "_CONFIG" }

// EventsStream is the name of the stream of expiry events, due messages, changes, warnings and rejections.
func (p Prefix) EventsStream() string { return strings.ToUpper(string(p)) + "_EVENTS" }

// CheckpointBucket is the name of the key-value bucket of the checkpoints.
func (p Prefix) CheckpointBucket() string { return strings.ToUpper(string(p)) + "_CHECKPOINTS" }

// SnapshotBucket is the name of the object store of the snapshots, and SnapshotStream that of its
// stream.
func (p Prefix) SnapshotBucket() string { return strings.ToUpper(string(p)) + "_SNAPSHOTS" }

// SnapshotStream is the name of the stream of [Prefix.SnapshotBucket].
func (p Prefix) SnapshotStream() string { return "OBJ_" + p.SnapshotBucket() }

// DeadStream is the name of the stream of what consumers have given up: see [Prefix.Dead].
func (p Prefix) DeadStream() string { return strings.ToUpper(string(p)) + "_DEAD" }

// Dead is the subject of what a consumer has given up about a document, which a token names.
func (p Prefix) Dead(durable, document string) string {
	return string(p) + ".dead." + durable + "." + document
}

// Resend is the subject on which a process that forwards under a durable name is asked to post its dead letters again.
func (p Prefix) Resend(durable string) string { return string(p) + ".resend." + durable }

// MembersBucket is the name of the key-value bucket of the processes that serve
// this prefix, and of the lease of each shard.
func (p Prefix) MembersBucket() string { return strings.ToUpper(string(p)) + "_MEMBERS" }

// Beat is the subject on which the owner of a shard shows that it is alive.
func (p Prefix) Beat(shard int) string { return string(p) + ".beat." + strconv.Itoa(shard) }

// ConfigSubjects are the subjects of configurations and drops.
func (p Prefix) ConfigSubjects() []string {
	return []string{string(p) + ".config.>", string(p) + ".drop.>"}
}

// EventSubjects are the subjects that the stream of events stores.
func (p Prefix) EventSubjects() []string {
	s := string(p)
	return []string{s + ".expired.>", s + ".expiring.>", s + ".due.>", s + ".changed.>", s + ".rejected.>", s + ".fence.*"}
}

// Buckets is the number of subjects that the stream of events has for each kind and collection. All
// messages about one document are in the same bucket, whatever their kind.
const Buckets = 16

// Bucket is the subject under which the stream of events stores the messages of a kind, such as expired,
// about the documents of one bucket.
func (p Prefix) Bucket(kind Kind, collection string, bucket int) string {
	return string(p) + "." + string(kind) + "." + collection + "." + strconv.Itoa(bucket)
}

// EventTransform is how the stream of events changes the subjects of the messages that it stores: it
// puts a small number in place of the id, because nats-server keeps every subject of a stream in
// memory. Live subscribers get the original subject.
//
// A stream has one transform, and that cannot leave out a kind. So it also puts a number in place of the
// second token of a target that has two: a consumer tells such targets apart by [HeaderTarget].
func (p Prefix) EventTransform() (from, to string) {
	return string(p) + ".*.*.*", string(p) + ".{{wildcard(1)}}.{{wildcard(2)}}.{{partition(" + strconv.Itoa(Buckets) +
		",3)}}"
}

// Stored is the subject under which the stream of events stores what is published on a subject of an
// event, a due message, a change, a warning or a rejection: see [Prefix.EventTransform].
func (p Prefix) Stored(subject string) string {
	tokens := strings.Split(strings.TrimPrefix(subject, string(p)+"."), ".")
	if len(tokens) != 3 || tokens[2] == ">" {
		return subject
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(tokens[2]))
	return string(p) + "." + tokens[0] + "." + tokens[1] + "." + strconv.Itoa(int(h.Sum32()%Buckets))
}
