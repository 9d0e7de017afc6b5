package wire_test

import (
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0d": 0,
		"106751d": 106751 * 24 * time.Hour,
	} {
		if got, err := wire.ParseDuration(in); err != nil || got != want {
			t.Errorf("%q: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "7", "-1d", "-1s", "1.5d", "106752d", "99999999999999999999d", "1w"} {
		if got, err := wire.ParseDuration(in); err == nil {
			t.Errorf("%q: %s and no error", in, got)
		}
	}
}
