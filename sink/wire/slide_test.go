package wire_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestParseSlide: slideOnRead is true, false, or a part over 0 and under 1, and is written as it was read.
func TestParseSlide(t *testing.T) {
	for text, want := range map[string]wire.Slide{
		"true": wire.SlideTenth, "false": 0, "0.01": 0.01, "0.999": 0.999, "1e-9": 1e-9,
	} {
		got, err := wire.ParseSlide([]byte(text))
		if err != nil || got != want {
			t.Errorf("%s is %v, %v, want %v", text, got, err, want)
		}
		if again, err := wire.ParseSlide([]byte(got.String())); err != nil || again != want {
			t.Errorf("%s is written as %s, which is %v, %v", text, got, again, err)
		}
		encoded, err := json.Marshal(got)
		var again wire.Slide
		if err := errors.Join(err, json.Unmarshal(encoded, &again)); err != nil || again != want {
			t.Errorf("%s is %s in JSON, which is %v, %v", text, encoded, again, err)
		}
	}
	for _, text := range []string{"null", "0", "1", "-0.1", "1.5", `"0.1"`, "[]", ""} {
		if got, err := wire.ParseSlide([]byte(text)); err == nil || got != 0 {
			t.Errorf("%s is %v, %v, want an error", text, got, err)
		}
		if got := new(wire.Slide); got.UnmarshalJSON([]byte(text)) == nil {
			t.Errorf("%s is read from JSON as %v", text, *got)
		}
	}
}
