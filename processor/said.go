package processor

import "math"

// said knows what of a partition's outputs may have been said before, by another
// owner or by this process before something failed. Whatever that was had been
// caused by the log as it was when the partition was taken over:
//
//   - S1: an output that was caused at or before the checkpoint has been said.
//   - S2: one that was caused after it, at or before upTo, may have been said: it
//     is looked up.
//   - S3: one that was caused after upTo has not been said.
//
// An expiration that the passing of time caused was caused by the first message
// stamped at or after its instant, whenever it is reaped: so its instant is
// compared with the log time at upTo, and with that of the checkpoint.
type said struct {
	checkpoint Checkpoint
	upTo       uint64 // last sequence of the log when the partition was taken over
	time       int64  // log time after upTo was applied; unknown (maximal) until then
}

// Checkpoint is a point of the log up to which all outputs of a partition are said.
type Checkpoint struct {
	Log       string `json:"log"`       // identity of the log
	Seq       uint64 `json:"seq"`       // in the log
	Watermark int64  `json:"watermark"` // log time there, Unix milliseconds
}

func newSaid(c Checkpoint, upTo uint64) said {
	return said{checkpoint: c, upTo: upTo, time: math.MaxInt64}
}

// pass notes the log time at upTo, when the first message after it comes.
func (s *said) pass(watermark int64) {
	if s.time == math.MaxInt64 {
		s.time = watermark
	}
}

// novelty is what is known of an output.
type novelty int

const (
	isSaid novelty = iota
	maybeSaid
	isNew
)

func (s *said) of(o output) novelty {
	if o.seq != 0 {
		return compare(o.seq, s.checkpoint.Seq, s.upTo)
	}
	return compare(o.at, s.checkpoint.Watermark, s.time)
}

func compare[T uint64 | int64](cause, checkpoint, upTo T) novelty {
	switch {
	case cause <= checkpoint:
		return isSaid
	case cause <= upTo:
		return maybeSaid
	default:
		return isNew
	}
}

// all says whether everything that follows from the log up to an offset, and up to
// a log time, has been said.
func (s *said) all(offset uint64, watermark int64) bool {
	return offset <= s.checkpoint.Seq && watermark <= s.checkpoint.Watermark
}
