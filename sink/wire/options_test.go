package wire_test

import (
	"errors"
	"net/url"
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

// TestForecastInRange: an option of a forecast may be each value of its range, and none beside it.
func TestForecastInRange(t *testing.T) {
	const longest = ttlrules.MaxSeconds * time.Second
	for _, good := range []wire.ForecastOptions{{}, {Buckets: 1, Within: time.Millisecond}, {Buckets: wire.MaxBuckets},
		{Within: longest}, {Least: ttlrules.MaxSeconds, Most: ttlrules.MaxSeconds}, {MaxLife: ptr(int32(0))},
		{Default: ptr(ttlrules.NoDefault)}, {Default: ptr(ttlrules.Default(ttlrules.MaxSeconds))}} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []wire.ForecastOptions{{Buckets: -1}, {Buckets: wire.MaxBuckets + 1}, {Within: -1},
		{Buckets: 1, Within: time.Millisecond - 1}, {Within: longest + 1}, {Least: -1}, {Most: -1}, {MaxLife: ptr(int32(-1))},
		{Default: ptr(ttlrules.NoDefault - 1)}} {
		if err := bad.Check(); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("%+v: %v, want ErrInvalidRequest", bad, err)
		}
	}
}

// TestListInRange: likewise of a list.
func TestListInRange(t *testing.T) {
	const longest = ttlrules.MaxSeconds * time.Second
	for _, good := range []wire.ListOptions{{}, {Limit: 1}, {Limit: wire.MaxListLimit}, {Within: time.Millisecond},
		{Within: longest}, {Prefix: strings.Repeat("x", wire.MaxID)}, {Order: wire.ByDeadline}} {
		if err := good.Check(); err != nil {
			t.Errorf("%+v: %v", good, err)
		}
	}
	for _, bad := range []wire.ListOptions{{Limit: -1}, {Limit: wire.MaxListLimit + 1}, {Within: -1}, {Within: 1},
		{Within: longest + 1}, {Order: wire.ByID}} {
		if err := bad.Check(); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("%+v: %v, want ErrInvalidRequest", bad, err)
		}
	}
}

// TestTextFields: the parameters of a URL ask for the forecast that the same properties ask for as JSON.
func TestTextFields(t *testing.T) {
	for name, c := range map[string][2]string{
		"numbers":     {`buckets=3&within=90s&minTtl=5&maxTtl=9&maxLife=0`, `{"buckets":3,"within":"90s","minTtl":5,"maxTtl":9,"maxLife":0}`},
		"off":         {`defaultTtl=null`, `{"defaultTtl":null}`},
		"no default":  {`defaultTtl=-1`, `{"defaultTtl":-1}`},
		"empty texts": {`buckets=&within=&minTtl=&maxTtl=`, ``},
	} {
		texts, err := url.ParseQuery(c[0])
		if err != nil {
			t.Fatal(err)
		}
		got, err := wire.ParseForecast(wire.TextFields(texts))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		f, err := wire.ParseFields([]byte(c[1]), wire.ForecastFields...)
		if err != nil {
			t.Fatal(err)
		}
		want, err := wire.ParseForecast(f)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
	for _, text := range []string{"maxLife=", "maxLife=null", "minTtl=null", "buckets=x"} {
		texts, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		if o, err := wire.ParseForecast(wire.TextFields(texts)); !errors.Is(err, wire.ErrInvalidRequest) {
			t.Errorf("%s: %+v, %v, want ErrInvalidRequest", text, o, err)
		}
	}
}

// TestOptionErrors: the error about a property names it and its value, and says what is allowed.
func TestOptionErrors(t *testing.T) {
	for text, want := range map[string]string{
		`{"limit":0}`:        "limit 0 is not valid: use a whole number from 1 to 1000",
		`{"limit":"x"}`:      "limit (a string) is not valid: use a whole number from 1 to 1000",
		`{"continuation":1}`: "continuation (a number) is not valid: use a string",
		`{"order":7}`:        `order (a number) is not valid: use "deadline", or in a query also "id"`,
		`{"order":"id"}`:     `order "id" is not valid: use "deadline", or leave it out`,
		`{"until":"noon"}`:   `until "noon" is not valid: use an instant in RFC 3339`,
		`{"within":"soon"}`:  `within "soon" is not valid: use a duration over 0`,
		`{"within":"9us"}`:   "within 9µs is not valid: use a duration from a millisecond to 24855 days",
		`{"prefix":1}`:       "prefix (a number) is not valid: use a string of up to 255 bytes",
		`{"other":1}`:        `property "other" is not known: use an object with limit, continuation, order`,
		`[]`:                 "the body is not a JSON object: use an object with limit",
		`{"until":"2026-01-31T12:00:00Z","within":"1s"}`: "until and within are both set",
	} {
		f, err := wire.ParseFields([]byte(text), wire.ListFields...)
		if err == nil {
			_, err = wire.ParseList(f)
		}
		if !errors.Is(err, wire.ErrInvalidRequest) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for name, want := range map[string]string{"maxLife": "or 0 for none", "minTtl": "from 1 to 2147483647",
		"where": "an object of conditions", "renew": "true or false", "scan": "true or false", "buckets": "from 1 to 1000"} {
		f := wire.Fields{name: []byte(`[]`)}
		var number int
		if _, err := f.Read(name, &number); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}

// TestParseClock: a clock that is kept has a beginning, and may say when its document was created, not after that.
func TestParseClock(t *testing.T) {
	const begin, earlier = "2026-01-31T18:00:00Z", "2026-01-31T09:00:00Z"
	const at, created wire.Time = 1769882400000, 1769850000000
	for _, c := range []struct {
		begin, created string
		want           wire.Time
	}{{begin, "", 0}, {begin, earlier, created}, {begin, begin, at}, {begin, "1970-01-01T00:00:00.001Z", 1}} {
		text := wire.FormatClock(c.begin, c.created)
		if b, first, err := wire.ParseClock(text); err != nil || b != at || first != c.want {
			t.Errorf("%s is %v, %v, %v, want %v, %v", text, b, first, err, at, c.want)
		}
	}
	if got := wire.FormatClock("", earlier); got != "" {
		t.Errorf("without a beginning there is the clock %q", got)
	}
	for _, bad := range []string{"", "noon", "noon; created=" + earlier, begin + "; created=", begin + "; created=noon",
		begin + "; created=1970-01-01T00:00:00Z", begin + "; created=2026-01-31T18:00:00.001Z", begin + ";created=" + earlier} {
		if b, first, err := wire.ParseClock(bad); err == nil {
			t.Errorf("%q is %v, %v", bad, b, first)
		}
	}
}

// TestNoCollection: the sentence about a collection that does not exist names the nearest one, but not to a client that
// may not know it.
func TestNoCollection(t *testing.T) {
	plain := wire.NoCollection("order", "")
	if !strings.HasPrefix(plain, "there is no collection order: configure it first (lapse config order ") {
		t.Errorf("%q", plain)
	}
	near := wire.NoCollection("order", "orders")
	if near != plain+" Did you mean orders?" || wire.WithoutNearest(near) != plain || wire.WithoutNearest(plain) != plain {
		t.Errorf("%q, and without the nearest %q", near, wire.WithoutNearest(near))
	}
}

// TestLogRulesBodyEqual: two bodies are equal if both parts are.
func TestLogRulesBodyEqual(t *testing.T) {
	a := wire.LogRulesBody{Open: true, ReplyPrefixes: []string{"a", "b"}}
	for _, c := range []struct {
		b    wire.LogRulesBody
		want bool
	}{{a, true}, {wire.LogRulesBody{ReplyPrefixes: a.ReplyPrefixes}, false}, {wire.LogRulesBody{Open: true}, false},
		{wire.LogRulesBody{Open: true, ReplyPrefixes: []string{"a", "c"}}, false}} {
		if a.Equal(c.b) != c.want || c.b.Equal(a) != c.want {
			t.Errorf("%v equals %v: want %t", a, c.b, c.want)
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
	if got := wire.Nearest("order", []string{"orderly", "orders", "orderz", "ordersx"}); got != "orders" {
		t.Errorf("of several that are equally near, the shortest and first is %q, want orders", got)
	}
	names := []string{"orders", "sessions", "carts"}
	for name, want := range map[string]string{"order": "orders", "ordres": "orders", "Orders": "orders", "cart": "carts",
		"sess": "sessions", "sesions": "sessions", "devices": "",
		"xyz": "", "": "", "o": "orders", "orsdre": "", "sesion": "sessions", "catrs": "carts", "xarts": "carts", "xxrts": ""} {
		if got := wire.Nearest(name, names); got != want {
			t.Errorf("%q is near %q, want %q", name, got, want)
		}
	}
}
