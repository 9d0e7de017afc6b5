package snapshot

import (
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// Manifest describes a snapshot that was finished.
type Manifest struct {
	Format     int    `json:"format"` // see wire.Format
	Log        string `json:"log"`    // identity of the log
	Shard      int    `json:"shard"`
	Generation uint64 `json:"generation"` // 1 for the first of a shard

	// The state of the shard. Offset is the sequence up to which the log was applied.
	Offset     uint64            `json:"offset"`
	Watermark  int64             `json:"watermark"` // log time at the offset, Unix milliseconds
	Stamp      store.Stamp       `json:"stamp"`
	Configured uint64            `json:"configured,omitempty"`
	Configs    map[string]string `json:"configs,omitempty"` // as the stored shard has them
	// Published is the position up to which all outputs of the shard were published. From is a
	// place in the stream of events, behind which it stores the outputs that are caused after that;
	// Last is where it has the last output that was published when the snapshot was finished.
	Published     uint64       `json:"published"`
	PublishedTime int64        `json:"publishedTime"`
	From          events.Place `json:"from,omitzero"`
	Last          events.Place `json:"last,omitzero"`

	Documents uint64  `json:"documents"` // entries of the kind Put
	Bytes     uint64  `json:"bytes"`     // of the chunks
	Taken     int64   `json:"taken"`     // when it was finished, Unix milliseconds
	Chunks    []Chunk `json:"chunks"`
}

// Chunk is a part of a snapshot: an object of the store.
type Chunk struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}
