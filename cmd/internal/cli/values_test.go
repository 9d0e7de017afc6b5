package cli

import (
	"errors"
	"testing"
	"time"
)

func TestPeriod(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"0": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "7d": 7 * 24 * time.Hour, "0d": 0,
		"106751d": 106751 * 24 * time.Hour,
	} {
		if got, err := parsePeriod(in); err != nil || got != want {
			t.Errorf("%q: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "d", "7", "-1d", "-1s", "1.5d", "106752d", "99999999999999999999d", "1w"} {
		if got, err := parsePeriod(in); err == nil {
			t.Errorf("%q: %s and no error", in, got)
		}
	}
}

func TestSize(t *testing.T) {
	for in, want := range map[string]size{
		"1": 1, "1073741824": 1 << 30, "3KiB": 3 << 10, "512MiB": 512 << 20, "10GiB": 10 << 30, "8388607TiB": 8388607 << 40,
	} {
		var got size
		if err := got.UnmarshalText([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0", "-1", "1GB", "GiB", "1.5GiB", "8388608TiB", "1KiBKiB"} {
		if err := new(size).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestSyncInterval(t *testing.T) {
	for in, want := range map[string]syncInterval{"always": 0, "1s": syncInterval(time.Second), "2m": syncInterval(2 * time.Minute)} {
		got := syncInterval(-1)
		if err := got.UnmarshalText([]byte(in)); err != nil || got != want {
			t.Errorf("%q: %d, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "0s", "-1s", "never", "1"} {
		if err := new(syncInterval).UnmarshalText([]byte(in)); err == nil {
			t.Errorf("%q: no error", in)
		}
	}
}

func TestInstant(t *testing.T) {
	var got instant
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

func TestShow(t *testing.T) {
	for in, want := range map[string]string{"42": "42", "a.b/c": "a.b/c", "é✓": "é✓", "a b": `"a b"`, "a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, `"`: `"\""`} {
		if got := show(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestErrorsAreOneLine(t *testing.T) {
	if got := oneLine(errors.Join(errors.New("one"), errors.New("two\r\nthree"))); got != "one; two; three" {
		t.Errorf("%q", got)
	}
}
