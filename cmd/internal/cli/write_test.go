package cli

import (
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

func TestInsertTTL(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                       `{"ttl":5}`,
		` { } `:                    `{"ttl":5 }`,
		`{"a": 1.0,"b":{"ttl":3}}`: `{"ttl":5,"a": 1.0,"b":{"ttl":3}}`,
	} {
		if got, err := insertTTL([]byte(in), 5); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{``, `null`, `[]`, `"x"`, `{`, `{} {}`, `{"ttl":3}`, `{"ttl":null}`} {
		if got, err := insertTTL([]byte(in), 5); err == nil {
			t.Errorf("%s: %s and no error", in, got)
		}
	}
}

// TestDay: the output of schedule says which day it has taken a time of the day to mean.
func TestDay(t *testing.T) {
	now := time.Date(2026, 12, 31, 23, 30, 0, 0, time.FixedZone("", 3600)) // 22:30 in UTC
	for in, want := range map[time.Duration]string{
		time.Minute: " (today at 23:31:00)", 30 * time.Minute: " (tomorrow at 00:00:00)",
		24*time.Hour + 29*time.Minute: " (tomorrow at 23:59:00)", 25 * time.Hour: "",
	} {
		if got := day(new(wire.Time(now.Add(in).UnixMilli())), now); got != want {
			t.Errorf("in %s: %q, want %q", in, got, want)
		}
	}
	if got := day(nil, now); got != "" {
		t.Errorf("never: %q", got)
	}
}
