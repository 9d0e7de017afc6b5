package cli

import (
	"strings"
	"testing"
	"time"
)

func TestPeriod(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0d": 0,
		"106751d": 106751 * 24 * time.Hour,
	} {
		var got Period
		if err := got.UnmarshalText([]byte(in)); err != nil || time.Duration(got) != want {
			t.Errorf("%q: %s, %v", in, time.Duration(got), err)
		}
	}
	for _, in := range []string{"", "d", "7", "-1d", "-1s", "1.5d", "106752d", "99999999999999999999d", "1w"} {
		if err := new(Period).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestSize(t *testing.T) {
	for in, want := range map[string]Size{
		"1": 1, "1073741824": 1 << 30, "3KiB": 3 << 10, "512MiB": 512 << 20, "10GiB": 10 << 30, "8388607TiB": 8388607 << 40,
	} {
		var got Size
		if err := got.UnmarshalText([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "-1", "1GB", "GiB", "1.5GiB", "8388608TiB", "1KiBKiB"} {
		if err := new(Size).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestSyncInterval(t *testing.T) {
	for in, want := range map[string]SyncInterval{"always": 0, "1s": SyncInterval(time.Second),
		"2m": SyncInterval(2 * time.Minute)} {
		got := SyncInterval(-1)
		if err := got.UnmarshalText([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0s", "-1s", "never", "1"} {
		if err := new(SyncInterval).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestInstant(t *testing.T) {
	var got Instant
	if err := got.UnmarshalText([]byte("2026-01-31T12:00:00+01:00")); err != nil ||
		!got.Equal(time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("%s, %v", got, err)
	}
	before := time.Now()
	if err := got.UnmarshalText([]byte("1h")); err != nil || got.Before(before.Add(-time.Hour)) ||
		got.After(time.Now().Add(-time.Hour)) {
		t.Errorf("%s, %v", got, err)
	}
	if err := got.UnmarshalText([]byte("yesterday")); err == nil {
		t.Error("no error")
	}
}

// TestDeadline: an instant, a time of today or tomorrow, or a duration from now.
func TestDeadline(t *testing.T) {
	now := time.Date(2026, 12, 31, 18, 0, 0, 0, time.FixedZone("", 3600))
	for in, want := range map[string]string{
		"2030-01-31T18:00:00.5Z": "2030-01-31T18:00:00.5Z", "18:00": "2027-01-01T18:00:00+01:00",
		"18:00:01": "2026-12-31T18:00:01+01:00",
		"7:30":     "2027-01-01T07:30:00+01:00", "90s": "2026-12-31T18:01:30+01:00", "7d": "2027-01-07T18:00:00+01:00",
	} {
		if got, err := deadline(in, now); err != nil || got.Format(time.RFC3339Nano) != want {
			t.Errorf("%q: %s, %v; want %s", in, got.Format(time.RFC3339Nano), err, want)
		}
	}
	for _, in := range []string{"", "0s", "-1h", "24:00", "18", "2030-01-31", "tomorrow"} {
		if at, err := deadline(in, now); err == nil {
			t.Errorf("%q: %s", in, at)
		}
	}
}

// TestLimits: limits and warnings are whole seconds, or durations of them.
func TestLimits(t *testing.T) {
	for in, want := range map[string]Limit{"60": 60, "5m": 300, "7d": 604800, "none": 0, "2147483647": 1<<31 - 1} {
		var got Limit
		if err := got.UnmarshalText([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "-1", "1500ms", "2147483648", "off", "1.5", "60,"} {
		if new(Limit).UnmarshalText([]byte(in)) == nil || new(Warnings).UnmarshalText([]byte(in)) == nil {
			t.Errorf("%q: no error", in)
		}
	}
	var w Warnings
	if err := w.UnmarshalText([]byte("5m,1h,30")); err != nil || len(w.Seconds) != 3 || w.Seconds[1] != 3600 {
		t.Errorf("%v, %v", w, err)
	}
}

// TestLimitOfAPromotion: a short --timeout is for a request, and does not end a promotion; a long one lets it take as
// long.
func TestLimitOfAPromotion(t *testing.T) {
	for timeout, want := range map[string]time.Duration{"1s": promoteLimit, "1h": time.Hour} {
		command, err := parsed(t, "promote", "--timeout", timeout)
		if err != nil {
			t.Fatal(err)
		}
		if got := command.(*Promote).limit(); got != want {
			t.Errorf("--timeout %s: %s, want %s", timeout, got, want)
		}
	}
}

func TestWholeNumber(t *testing.T) {
	command, err := parsed(t, "list", "orders", "--limit", "7")
	if err != nil || command.(*List).Limit != 7 {
		t.Errorf("%+v, %v", command, err)
	}
	for _, text := range []string{"many", "1.5", "0x10"} {
		if _, err := parsed(t, "list", "orders", "--limit", text); err == nil ||
			!strings.Contains(err.Error(), "use a whole number") {
			t.Errorf("--limit %s: %v", text, err)
		}
	}
}
