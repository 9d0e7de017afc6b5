package wire

import (
	"fmt"
	"slices"
	"strconv"
)

// LogStreams are the names of the logs of a prefix with so many shards.
func (p Prefix) LogStreams(shards int) (names []string) {
	for shard := range max(shards, 1) {
		names = append(names, p.Log(shard, shards).Stream())
	}
	return names
}

// RootStream is the name of the stream whose identity stands for that of the prefix: the log or, with several shards,
// the stream of configurations.
func (p Prefix) RootStream(shards int) string {
	if shards > 1 {
		return p.ConfigStream()
	}
	return p.LogStream()
}

// CheckpointStream is the name of the stream of [Prefix.CheckpointBucket].
func (p Prefix) CheckpointStream() string { return "KV_" + p.CheckpointBucket() }

// CheckpointSubject is the subject of a key in the stream of checkpoints.
func (p Prefix) CheckpointSubject(key string) string {
	return "$KV." + p.CheckpointBucket() + "." + key
}

// MirrorStreams are the names of the streams that a region which follows another one mirrors: all but the checkpoints.
// The root is the last.
func (p Prefix) MirrorStreams(shards int) []string {
	names := append([]string{p.EventsStream(), p.SnapshotStream()}, p.LogStreams(shards)...)
	if shards > 1 {
		names = append(names, p.ConfigStream())
	}
	return names
}

// ParseShards reads the number of shards from the metadata of a log or of the stream of configurations.
func ParseShards(metadata map[string]string) (int, error) {
	n, err := strconv.Atoi(metadata[ShardsKey])
	if err != nil || n < 1 || n > MaxShards {
		return 0, fmt.Errorf("its metadata has no valid %s (it is %q, and 1 to %d are allowed)", ShardsKey,
			metadata[ShardsKey], MaxShards)
	}
	return n, nil
}

// SnapshotRecord is the record of the snapshots of a shard, as the bucket of checkpoints has it.
type SnapshotRecord struct {
	Format int    `json:"format"`
	Log    string `json:"log"` // identity of the log
	// Claimed is the greatest generation that an owner has begun. One that begins another, or
	// records its own, does so by compare-and-set. So a generation that is not newer than
	// Claimed, and that Generations does not name, never counts.
	Claimed     uint64       `json:"claimed"`
	Generations []Generation `json:"generations,omitempty"` // newest first
}

// Generation is a snapshot that counts.
type Generation struct {
	Generation uint64 `json:"generation"`
	Manifest   string `json:"manifest"` // name of the object
	SHA256     string `json:"sha256"`   // of that object
	Offset     uint64 `json:"offset"`
	Configured uint64 `json:"configured,omitempty"`
	Documents  uint64 `json:"documents"`
	Bytes      uint64 `json:"bytes"` // of the chunks
	Begun      int64  `json:"begun"` // Unix milliseconds
	Taken      int64  `json:"taken"` // Unix milliseconds
}

// SnapshotKey is the key of a shard's [SnapshotRecord].
func SnapshotKey(shard int) string { return "snapshot." + strconv.Itoa(shard) }

// Keep removes the generations that do not stay.
func (r *SnapshotRecord) Keep(stays func(Generation) bool) {
	r.Generations = slices.DeleteFunc(r.Generations, func(g Generation) bool { return !stays(g) })
}
