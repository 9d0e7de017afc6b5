package cli

import (
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
	for in, want := range map[string]SyncInterval{"always": 0, "1s": SyncInterval(time.Second), "2m": SyncInterval(2 * time.Minute)} {
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
	if err := got.UnmarshalText([]byte("2026-01-31T12:00:00+01:00")); err != nil || !got.Equal(time.Date(2026, 1, 31, 11, 0, 0, 0, time.UTC)) {
		t.Errorf("%s, %v", got, err)
	}
	before := time.Now()
	if err := got.UnmarshalText([]byte("1h")); err != nil || got.Before(before.Add(-time.Hour)) || got.After(time.Now().Add(-time.Hour)) {
		t.Errorf("%s, %v", got, err)
	}
	if err := got.UnmarshalText([]byte("yesterday")); err == nil {
		t.Error("no error")
	}
}
