package wire_test

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestG11_AnotherFormatIsNamed: what another version has stored is refused, whatever else it has, in a sentence that
// says what was found and how to go on.
func TestG11_AnotherFormatIsNamed(t *testing.T) {
	if wire.FormatText != strconv.Itoa(wire.Format) {
		t.Errorf("Format is %d, and as text %s", wire.Format, wire.FormatText)
	}
	for stored, format := range map[string]string{
		`{}`: "", `{"format":1,"seq":"x"}`: "1", `{"seq":{},"format":2}`: "2", `{"format":4}`: "4",
		`{"format":3}`: wire.FormatText, `{"seq":[],"format":3}`: wire.FormatText,
	} {
		err := wire.CheckStored("the checkpoint", []byte(stored))
		if format == wire.FormatText {
			if err != nil {
				t.Errorf("%s: %v", stored, err)
			}
			continue
		}
		want := `the checkpoint has the format "` + format + `",` +
			` and this version of lapse reads 3 alone: bring the documents over` +
			` with lapse export of the version that made it and lapse import of this one`
		if !errors.Is(err, wire.ErrFormat) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", stored, err, want)
		}
	}
	if err := wire.CheckStored("the checkpoint", []byte("x")); err == nil || errors.Is(err, wire.ErrFormat) {
		t.Errorf("what is no object: %v", err)
	}
}
