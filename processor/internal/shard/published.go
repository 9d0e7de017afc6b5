package shard

import (
	"math"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// Published knows which outputs of a shard may have been published before, by another
// owner or by this process before a failure. Their causes are in the log as it was when
// the shard was taken over:
//
//   - N1: an output whose cause is at or before the checkpoint has been published.
//   - N2: one whose cause is after it, and at or before upTo, may have been published. It has been
//     if the tail of the stream has it, from the checkpoint's From to the owner's fence.
//   - N3: one whose cause is after upTo has not been published.
//
// The cause of an expiration by the passing of time is the first message stamped at or
// after its deadline, whenever the document is reaped. So its deadline is compared with
// the log time at upTo, and with that of the checkpoint.
type Published struct {
	checkpoint Checkpoint
	upTo       uint64 // last sequence of the log when the shard was taken over
	time       int64  // log time at upTo; math.MaxInt64 until it is known
}

// Checkpoint is a position in the log up to which all outputs of a shard are published.
type Checkpoint struct {
	Format    int    `json:"format"`    // see wire.Format
	Log       string `json:"log"`       // identity of the log
	Seq       uint64 `json:"seq"`       // in the log
	Watermark int64  `json:"watermark"` // log time there, Unix milliseconds
	// Stamp is that of the last message that has moved Seq or Watermark, as far as it is known; see
	// store.Stamp.
	Stamp string `json:"stamp,omitempty"`
	// From is a place in the stream of events: it stores behind it all outputs of the shard
	// that are caused after Seq. Last is where it has the last output that was published then.
	From events.Place `json:"from,omitzero"`
	Last events.Place `json:"last,omitzero"`
	// Origin is the sequence after which the shard began, where it was begun anew
	// from a log that did not reach back to its own beginning.
	Origin uint64 `json:"origin,omitempty"`
	// GivenUp is a sequence of the log. The outputs that the stream of events had lost of the
	// shard when it was before that, and that could not be made again, were given up by a person.
	GivenUp uint64 `json:"givenUp,omitempty"`
	// Anew is a sequence of the stream of events. A person has begun the shard anew when the stream
	// had that. States, snapshots and outputs from before may follow from messages that the log has
	// lost, and do not count.
	Anew uint64 `json:"anew,omitempty"`
}

// ParsedStamp is Stamp, which is valid: see Checkpoints.
func (c Checkpoint) ParsedStamp() store.Stamp {
	s, _ := store.ParseStamp(c.Stamp)
	return s
}

func newPublished(c Checkpoint, upTo uint64) Published {
	return Published{checkpoint: c, upTo: upTo, time: math.MaxInt64}
}

// UpTo is the last sequence of the log when the shard was taken over.
func (p *Published) UpTo() uint64 { return p.upTo }

// UpToTime is the log time at UpTo; math.MaxInt64 until it is known.
func (p *Published) UpToTime() int64 { return p.time }

// Checkpoint is the sequence of the checkpoint from which this owner began.
func (p *Published) Checkpoint() uint64 { return p.checkpoint.Seq }

// Pass notes the log time at UpTo, when the first message after it comes.
func (p *Published) Pass(watermark int64) {
	if p.time == math.MaxInt64 {
		p.time = watermark
	}
}

// passed reports whether no output behind a position may have been published by a former owner.
func (p *Published) passed(offset uint64, watermark int64) bool {
	return offset >= p.upTo && watermark >= p.time
}

// novelty is what is known of an output.
type novelty int

const (
	isPublished novelty = iota
	maybePublished
	isNew
)

func (p *Published) of(o fold.Output) novelty {
	if o.Seq != 0 {
		return compare(o.Seq, p.checkpoint.Seq, p.upTo)
	}
	return compare(o.At, p.checkpoint.Watermark, p.time)
}

func compare[T uint64 | int64](cause, checkpoint, upTo T) novelty {
	switch {
	case cause <= checkpoint:
		return isPublished
	case cause <= upTo:
		return maybePublished
	default:
		return isNew
	}
}

// All reports whether every output up to an offset and a log time has been published.
func (p *Published) All(offset uint64, watermark int64) bool {
	return offset <= p.checkpoint.Seq && watermark <= p.checkpoint.Watermark
}
