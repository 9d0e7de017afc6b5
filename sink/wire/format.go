package wire

import (
	"encoding/json"
	"errors"
	"fmt"
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
	return fmt.Sprintf("%s has the format %s, and this version of lapse reads %s alone: bring the documents over with lapse export of the version that made it and lapse import of this one, into another prefix or after removing what is there",
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
