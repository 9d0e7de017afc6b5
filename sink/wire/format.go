package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Format is the version of all that lapse stores: the state in Redis, the streams and buckets of JetStream, snapshots
// and backups. lapse reads no other: a change of one of these forms changes it.
const Format = 3

// FormatText is Format where it is stored as text.
const FormatText = "3"

// ErrFormat is wrapped by the refusal of what another version of lapse has stored.
var ErrFormat = errors.New("another version of lapse has stored this")

// otherFormat is an ErrFormat. Its text is the one sentence of all such refusals.
type otherFormat struct{ what, format string }

func (e otherFormat) Unwrap() error { return ErrFormat }

func (e otherFormat) Error() string {
	return fmt.Sprintf("%s has the format %s, and this version of lapse reads %s alone: bring the documents over with "+
		"lapse export of the version that made it and lapse import of this one, into another prefix or after removing what "+
		"is there",
		e.what, Quote(e.format), FormatText)
}

// CheckFormat returns an [ErrFormat] unless something that is stored has the [Format] of this version of lapse.
func CheckFormat(what, format string) error {
	if format == FormatText {
		return nil
	}
	return otherFormat{what, format}
}

// CheckStored is CheckFormat of a stored JSON object with the member format. The other members may have any form.
func CheckStored(what string, object []byte) error {
	var stored struct{ Format json.Number }
	if err := json.Unmarshal(object, &stored); err != nil {
		return fmt.Errorf("%s is not valid: %w", what, err)
	}
	return CheckFormat(what, stored.Format.String())
}

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
