package wire_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestParseList: a list is what the parameters of a URL, or a JSON object, ask for. A parameter without a text is none.
func TestParseList(t *testing.T) {
	until := instant
	for _, c := range []struct {
		texts map[string][]string
		want  wire.ListOptions
	}{
		{map[string][]string{"limit": {""}, "prefix": {""}, "until": {""}}, wire.ListOptions{}},
		{map[string][]string{"limit": {"+7"}, "continuation": {"c\n"}, "prefix": {"a\"b"}},
			wire.ListOptions{Limit: 7, Continuation: "c\n", Prefix: `a"b`}},
		{map[string][]string{"order": {"deadline"}, "within": {"2d"}},
			wire.ListOptions{Order: wire.ByDeadline, Within: 48 * time.Hour}},
		{map[string][]string{"limit": {"1000"}, "until": {until.String()}}, wire.ListOptions{Limit: 1000, Until: &until}},
	} {
		got, err := wire.ParseList(wire.TextFields(c.texts))
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%v: %v\n%s", c.texts, err, diff)
		}
	}
	for _, texts := range []map[string]string{
		{"limit": "0"}, {"limit": "1001"}, {"limit": "x"}, {"limit": "null"}, {"continuation": "\xff"},
		{"order": "id"}, {"order": "\xff"}, {"prefix": "\xff"}, {"prefix": strings.Repeat("x", wire.MaxID+1)},
		{"until": "noon"}, {"within": "0s"}, {"within": "1"}, {"within": "100000d"},
		{"until": instant.String(), "within": "1s"}, {"prefix": "a", "order": "deadline"},
	} {
		all := map[string][]string{}
		for name, text := range texts {
			all[name] = []string{text}
		}
		if o, err := wire.ParseList(wire.TextFields(all)); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("%v: %+v, %v", texts, o, err)
		}
	}
}

// TestParseForecast: a forecast is what its request asks for, and only a default that is there replaces the configured
// one.
func TestParseForecast(t *testing.T) {
	for text, want := range map[string]wire.ForecastOptions{
		``:                             {},
		`{"buckets":3,"within":"3ms"}`: {Buckets: 3, Within: 3 * time.Millisecond},
		`{"defaultTtl":null,"maxLife":0,"minTtl":5,"maxTtl":9}`: {Default: ptr(ttlrules.Off), MaxLife: ptr(int32(0)), Least: 5,
			Most: 9},
		`{"defaultTtl":-1}`: {Default: ptr(ttlrules.NoDefault)},
	} {
		f, err := wire.ParseFields([]byte(text), wire.ForecastFields...)
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.ParseForecast(f)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", text, err, diff)
		}
	}
	for _, text := range []string{`{"buckets":0}`, `{"buckets":"3"}`, `{"within":"soon"}`, `{"buckets":3,"within":"2ms"}`,
		`{"within":"100000d"}`, `{"defaultTtl":1.5}`, `{"maxLife":-1}`, `{"maxLife":1.5}`, `{"minTtl":-1}`, `{"maxTtl":"x"}`,
		`{"maxTtl":2147483648}`} {
		f, err := wire.ParseFields([]byte(text), wire.ForecastFields...)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := wire.ParseForecast(f); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("%s: %+v, %v", text, o, err)
		}
	}
}

// TestParseFields: a request with another property, or that is no object, is refused.
func TestParseFields(t *testing.T) {
	for _, text := range []string{`[]`, `{`, `{"limit":1,"other":2}`, `{} {}`} {
		if f, err := wire.ParseFields([]byte(text), "limit"); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("%s: %v, %v", text, f, err)
		}
	}
}

// TestLogStreams: a log that is not sharded has one stream, whose name has no number.
func TestLogStreams(t *testing.T) {
	for shards, want := range map[int]string{0: "LAPSE_LOG", 1: "LAPSE_LOG", 2: "LAPSE_LOG_0 LAPSE_LOG_1"} {
		if got := strings.Join(wire.DefaultPrefix.LogStreams(shards), " "); got != want {
			t.Errorf("%d shards: %s, want %s", shards, got, want)
		}
	}
}

// TestParseInstant: an instant has exactly the form of RFC 3339, and a fraction of a millisecond is rounded up.
func TestParseInstant(t *testing.T) {
	for text, want := range map[string]string{
		"2026-01-31T12:00:00Z":             "2026-01-31T12:00:00.000Z",
		"2026-01-31T12:00:00.0000001Z":     "2026-01-31T12:00:00.001Z",
		"2026-01-31T12:00:00.999999+01:00": "2026-01-31T11:00:01.000Z",
	} {
		if got, err := wire.ParseInstant(text); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2026-01-31", "2026-01-31T8:00:00Z", "2026-01-31T08:00:00,5Z", "2026-02-30T08:00:00Z"} {
		if got, err := wire.ParseInstant(text); err == nil {
			t.Errorf("%q is read as %s", text, got)
		}
	}
}

// TestNearest: a mistaken name is near to one that one or two mistakes make of it, or that begins with it.
func TestNearest(t *testing.T) {
	names := []string{"orders", "sessions", "carts"}
	for name, want := range map[string]string{"order": "orders", "ordres": "orders", "Orders": "orders", "cart": "carts",
		"sess": "sessions", "sesions": "sessions", "devices": "", "xyz": ""} {
		if got := wire.Nearest(name, names); got != want {
			t.Errorf("%q is near %q, want %q", name, got, want)
		}
	}
}
