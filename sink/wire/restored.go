package wire

import (
	"fmt"
	"time"
)

// The metadata of streams that lapse restore has made.
const (
	// RestoredKey is the key of a [Restored] in the metadata of a log, or of [Prefix.ConfigStream].
	RestoredKey = "lapse-restored"
	// FormatKey is the key of the version of a stream's contents.
	FormatKey = "lapse-format"
	// Restoring is the version while the stream is not complete.
	Restoring = "restoring"
)

// Restored says what a stream was restored from.
type Restored struct {
	// Identity of the original: the instant of its creation, in Unix nanoseconds.
	Identity int64
	// End is the last sequence that was restored. The original may have used some of those that
	// follow. So the messages that are stored since begin at Next.
	End, Next uint64
}

// String writes what ParseRestored reads.
func (r Restored) String() string { return fmt.Sprintf("%d %d %d", r.Identity, r.End, r.Next) }

// ParseRestored reads the metadata of a stream; ok is false if that was not restored.
func ParseRestored(metadata map[string]string) (r Restored, ok bool, err error) {
	text := metadata[RestoredKey]
	if text == "" {
		return r, false, nil
	}
	if _, err := fmt.Sscanf(text, "%d %d %d", &r.Identity, &r.End, &r.Next); err != nil || r.String() != text {
		return Restored{}, false, fmt.Errorf("its %s is %s, which is not valid", RestoredKey, Quote(text))
	}
	return r, true, nil
}

// Hides reports whether the original may have had a message at a sequence, and the restored
// stream never had one.
func (r Restored) Hides(seq uint64) bool { return r.End < seq && seq+1 < r.Next }

// Identity is when a log was created, in Unix nanoseconds. It tells the log from another one
// that was created later under the same name. A restored log has that of the original, and a mirror that
// of the log which it mirrors.
func Identity(metadata map[string]string, created time.Time) int64 {
	if r, err := ParseRegion(metadata); err == nil && r.Identity != 0 {
		return r.Identity
	}
	if r, ok, _ := ParseRestored(metadata); ok {
		return r.Identity
	}
	return created.UnixNano()
}
