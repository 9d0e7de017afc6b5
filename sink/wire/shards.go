package wire

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const headerSource = "Nats-Stream-Source"

// ShardsKey is the key of the number of shards in the metadata of [Prefix.ConfigStream] and of
// each log.
const ShardsKey = "lapse-shards"

// MaxShards is the most shards that a prefix may have.
const MaxShards = 64

// ShardOf is the shard of a document, of so many. The id is given as it is in subjects.
//
// It is what the function partition of NATS's subject mapping computes: the 32-bit FNV-1a hash of
// collection and token, modulo the number of shards.
func ShardOf(shards int, collection, token string) int {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for _, s := range [2]string{collection, token} {
		for i := range len(s) {
			h = (h ^ uint32(s[i])) * prime
		}
	}
	return int(h % uint32(shards))
}

// Log names the log of a shard.
type Log struct {
	Prefix Prefix
	Shard  int // from 0
	Shards int // 1: subjects and stream have no number
}

// Log names the log of one of so many shards.
func (p Prefix) Log(shard, shards int) Log { return Log{p, shard, shards} }

// Stream is the name of the stream.
func (l Log) Stream() string {
	name := strings.ToUpper(string(l.Prefix)) + "_LOG"
	if l.Shards > 1 {
		name += "_" + strconv.Itoa(l.Shard)
	}
	return name
}

// base begins the subjects of the shard's own.
func (l Log) base() string {
	if l.Shards > 1 {
		return string(l.Prefix) + ".shard." + strconv.Itoa(l.Shard)
	}
	return string(l.Prefix)
}

// Subjects are the subjects that the log stores. With several shards, that of shard 0 also
// stores the writes that the mapping does not match, because they have too few tokens or too
// many: so each gets its rejection.
func (l Log) Subjects() []string {
	switch {
	case l.Shards <= 1:
		return slices.Concat([]string{l.base() + ".write.>"}, l.Prefix.ConfigSubjects(), []string{l.Tick()})
	case l.Shard == 0:
		return []string{l.base() + ".>", string(l.Prefix) + ".write.>"}
	default:
		return []string{l.base() + ".>"}
	}
}

// Tick is the subject of the messages that move log time on while the log is silent.
func (l Log) Tick() string { return l.base() + ".tick" }

// Pause is the subject of a message that pauses all collections. A restore puts it at the end of the log.
func (l Log) Pause() string { return l.base() + ".pause" }

// Write is the subject of a write as the log stores it.
func (l Log) Write(op Op, collection, id string) string {
	return l.Mapped(l.Prefix.Write(op, collection, id))
}

// Mapped is what the mapping makes of the subject of a write, if this is the write's shard.
func (l Log) Mapped(subject string) string {
	return l.base() + strings.TrimPrefix(subject, string(l.Prefix))
}

// Copy is the subject of a copy of a message that the log should have sourced from
// [Prefix.ConfigStream]. The original has a sequence and a subject there; the subject is "" if
// that stream has lost it.
func (l Log) Copy(seq uint64, original string) string {
	return l.base() + ".copy." + strconv.FormatUint(seq, 10) + strings.TrimPrefix(original, string(l.Prefix))
}

// Mapping returns the subject from which NATS has to map the writes of a prefix with so many
// shards, and the subject to which it has to map them, as nats-server's configuration has them.
func (p Prefix) Mapping(shards int) (from, to string) {
	return string(p) + ".write.*.*.*",
		fmt.Sprintf("%s.shard.{{partition(%d,2,3)}}.write.{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}", p, shards)
}

// SourceSequence is the sequence that a message of a log had in [Prefix.ConfigStream], from
// which the server has copied it; 0 if the header does not say so. The server refuses or
// removes this header in what clients publish to that stream.
func SourceSequence(header map[string][]string) uint64 {
	// The stream, the sequence, and what the copying depends on.
	values := header[headerSource]
	if len(values) == 0 {
		return 0
	}
	fields := strings.Fields(values[0])
	if len(fields) < 2 {
		return 0
	}
	seq, _ := strconv.ParseUint(fields[1], 10, 64)
	return seq
}
