package wire

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

// Prefix starts every subject, and names the streams and keys. See [ParsePrefix].
// Streams are named in upper case, so two prefixes on one server must differ in
// more than case.
//
// Its methods take names as they are given: check a collection with
// [CheckCollection] and an id with [CheckID] first. Ids are escaped, collections
// need not be.
type Prefix string

// DefaultPrefix is the prefix that is used where none is said.
const DefaultPrefix Prefix = "lapse"

// ParsePrefix checks that a prefix is 1 to 32 of A-Z a-z 0-9 _ -.
func ParsePrefix(s string) (Prefix, error) {
	ok := s != "" && len(s) <= 32
	for i := 0; ok && i < len(s); i++ {
		ok = isWord(s[i])
	}
	if !ok {
		return "", fmt.Errorf("%w: prefix %q: allowed are 1 to 32 of A-Z a-z 0-9 _ -", ErrInvalidName, abbreviate(s))
	}
	return Prefix(s), nil
}

// Op is what a write does.
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

// HasBody says whether the operation takes a JSON object as its body; the others
// take none.
func (o Op) HasBody() bool { return o != Touch && o != Delete }

// Write is the subject of a write.
func (p Prefix) Write(op Op, collection, id string) string {
	return string(p) + ".write." + string(op) + "." + collection + "." + EscapeID(id)
}

// Config is the subject on which a collection is configured.
func (p Prefix) Config(collection string) string { return string(p) + ".config." + collection }

// Drop is the subject on which a collection is dropped.
func (p Prefix) Drop(collection string) string { return string(p) + ".drop." + collection }

// Tick is the subject by which time moves on in a log that is silent.
func (p Prefix) Tick() string { return string(p) + ".tick" }

// Expired is the subject of a document's expiry events.
func (p Prefix) Expired(collection, id string) string {
	return string(p) + ".expired." + collection + "." + EscapeID(id)
}

// Rejected is the subject of a rejection; rest is what follows the kind (and the
// operation) in the subject of the message that was rejected. Whatever rest is,
// the subject is one that can be published to, and is no other's: see
// [EscapeToken]. Of a very long one it has the beginning and a hash. The original
// subject is in the rejection's Lapse-Subject.
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

// Fence is the subject of a partition's fences in the stream of events: whoever
// publishes what follows from the partition's log expects its last message to be the
// own one. A message there has no body.
func (p Prefix) Fence(partition int) string {
	return string(p) + ".fence." + strconv.Itoa(partition)
}

// Read is the subject of a read: verb is get, list, count, forecast or config.
func (p Prefix) Read(verb, collection string) string {
	return string(p) + ".read." + verb + "." + collection
}

// ReadGet is the subject on which one document is read.
func (p Prefix) ReadGet(collection, id string) string {
	return p.Read("get", collection) + "." + EscapeID(id)
}

// LogStream is the name of the stream of writes, configuration and ticks.
func (p Prefix) LogStream() string { return strings.ToUpper(string(p)) + "_LOG" }

// EventsStream is the name of the stream of expiry events and rejections.
func (p Prefix) EventsStream() string { return strings.ToUpper(string(p)) + "_EVENTS" }

// CheckpointBucket is the name of the key-value bucket of the checkpoints.
func (p Prefix) CheckpointBucket() string { return strings.ToUpper(string(p)) + "_CHECKPOINTS" }

// LogSubjects are the subjects that the log takes.
func (p Prefix) LogSubjects() []string {
	s := string(p)
	return []string{s + ".write.>", s + ".config.>", s + ".drop.>", s + ".tick"}
}

// EventSubjects are the subjects that the stream of events takes.
func (p Prefix) EventSubjects() []string {
	s := string(p)
	return []string{s + ".expired.>", s + ".rejected.>", s + ".fence.*"}
}

// Partition is the partition, from 0 to n-1, of a document. n must be at least 1.
func Partition(n int, collection, id string) int {
	return PartitionOfToken(n, collection, EscapeID(id))
}

// PartitionOfToken is the same of an id as it is in subjects: the 32-bit FNV-1a hash of
// collection and token, modulo n.
func PartitionOfToken(n int, collection, token string) int {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, s := range [2]string{collection, token} {
		for i := range len(s) {
			h = (h ^ uint32(s[i])) * prime
		}
	}
	return int(h % uint32(n))
}
