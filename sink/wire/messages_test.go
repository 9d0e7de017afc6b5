package wire_test

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink/wire"
)

// instant is 2026-09-21T14:13:20.123Z.
const instant wire.Time = 1_790_000_000_123

func ptr[T any](v T) *T { return &v }

// TestConfigProperties: each property of a configuration is one that a file and a message may have.
func TestConfigProperties(t *testing.T) {
	names := slices.Clone(wire.ConfigProperties)
	for field := range reflect.TypeFor[wire.Config]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if at := slices.Index(names, name); at >= 0 {
			names = slices.Delete(names, at, at+1)
		} else if name != "etag" {
			t.Errorf("%s is missing", name)
		}
	}
	if len(names) > 0 {
		t.Errorf("no configuration has %q", names)
	}
}

// The exact JSON of each message. Goes red if a member is renamed, changes its form, or is no
// longer left out where it does not apply.
func TestJSON(t *testing.T) {
	tests := []struct {
		name  string
		value any
		want  string
	}{
		{"outcome, nothing but a status", wire.Outcome{Status: 204}, `{"status":204}`},
		{"outcome of a write", wire.Outcome{Status: 201, Etag: 17, Ts: instant, ExpiresAt: ptr(instant + 60_000)},
			`{"status":201,"etag":"17","ts":"2026-09-21T14:13:20.123Z","expiresAt":"2026-09-21T14:14:20.123Z"}`},
		{"outcome of a write that never expires", wire.Outcome{Status: 200, Etag: math.MaxUint64, Ts: instant},
			`{"status":200,"etag":"18446744073709551615","ts":"2026-09-21T14:13:20.123Z"}`},
		{"outcome of a failure", wire.Outcome{Status: 400, Error: "ttl is 0"}, `{"status":400,"error":"ttl is 0"}`},

		{"config, nothing set", wire.Config{}, `{"defaultTtl":null}`},
		{"config, off", wire.Config{IndexingMode: wire.Consistent}, `{"defaultTtl":null,"indexingMode":"consistent"}`},
		{"config, no default", wire.Config{DefaultTTL: ptr(int32(-1)), IndexingMode: wire.Consistent},
			`{"defaultTtl":-1,"indexingMode":"consistent"}`},
		{"config, seconds", wire.Config{DefaultTTL: ptr(int32(math.MaxInt32)), IndexingMode: wire.Consistent},
			`{"defaultTtl":2147483647,"indexingMode":"consistent"}`},
		{"config, no index", wire.Config{IndexingMode: wire.NoIndex}, `{"defaultTtl":null,"indexingMode":"none"}`},

		{"event", wire.Event{ID: "a.b", Collection: "orders", Document: json.RawMessage(`{"n":1}`), Etag: 17, Ts: instant,
			TTL: 60, ExpiredAt: instant + 60_000},
			`{"id":"a.b","collection":"orders","document":{"n":1},"etag":"17","ts":"2026-09-21T14:13:20.123Z","ttl":60,` +
				`"expiredAt":"2026-09-21T14:14:20.123Z"}`},
		{"event by an absolute deadline", wire.Event{ID: "a", Collection: "orders", Document: json.RawMessage(`{}`), Etag: 17,
			Ts: instant, ExpiredAt: instant + 60_000},
			`{"id":"a","collection":"orders","document":{},"etag":"17","ts":"2026-09-21T14:13:20.123Z",` +
				`"expiredAt":"2026-09-21T14:14:20.123Z"}`},
		{"configuration with limits", wire.Config{IndexingMode: wire.Lazy, MinTTL: 1, MaxTTL: 9, WarnBefore: []int32{5, 1},
			SlideOnRead: wire.SlideTenth, Changes: true, Etag: 7}.Published(),
			`{"defaultTtl":null,"indexingMode":"lazy","minTtl":1,"maxTtl":9,"warnBefore":[5,1],"slideOnRead":true,` +
				`"changes":true}`},
		{"event without its document", wire.Event{ID: "a", Collection: "orders", Omitted: true, Etag: 17, Ts: instant,
			TTL: 60, ExpiredAt: instant + 60_000},
			`{"id":"a","collection":"orders","documentOmitted":true,"etag":"17","ts":"2026-09-21T14:13:20.123Z","ttl":60,` +
				`"expiredAt":"2026-09-21T14:14:20.123Z"}`},
		{"warning", wire.Expiring{ID: "a.b", Collection: "orders", Document: json.RawMessage(`{"n":1}`), Etag: 17,
			Ts: instant, TTL: 60, ExpiresAt: instant + 60_000, Before: 10},
			`{"id":"a.b","collection":"orders","document":{"n":1},"etag":"17","ts":"2026-09-21T14:13:20.123Z","ttl":60,` +
				`"expiresAt":"2026-09-21T14:14:20.123Z","before":10}`},
		{"warning of an absolute deadline, without its document", wire.Expiring{ID: "a", Collection: "orders", Omitted: true,
			Etag: 17, Ts: instant, ExpiresAt: instant + 60_000, Before: 1},
			`{"id":"a","collection":"orders","documentOmitted":true,"etag":"17","ts":"2026-09-21T14:13:20.123Z",` +
				`"expiresAt":"2026-09-21T14:14:20.123Z","before":1}`},

		{"list, empty", wire.ListReply{}, `{"documents":[]}`},
		{"list, one page of more", wire.ListReply{Continuation: "next", Documents: []wire.Document{
			{ID: "a", Etag: 17, Ts: instant, ExpiresAt: ptr(instant + 1000), Document: json.RawMessage(`{}`)},
			{ID: "b", Etag: 18, Ts: instant, Document: json.RawMessage(`{"n":1}`)},
		}}, `{"documents":[` +
			`{"id":"a","etag":"17","ts":"2026-09-21T14:13:20.123Z","expiresAt":"2026-09-21T14:13:21.123Z","document":{}},` +
			`{"id":"b","etag":"18","ts":"2026-09-21T14:13:20.123Z","document":{"n":1}}],"continuation":"next"}`},
		{"list request, nothing set", wire.ListRequest{}, `{}`},
		{"list request", wire.ListRequest{Limit: 5, Continuation: "next"}, `{"limit":5,"continuation":"next"}`},

		{"query request, nothing set", wire.QueryRequest{}, `{}`},
		{"query request", wire.QueryRequest{Where: map[string]json.RawMessage{"/b": json.RawMessage(`{"gte":1}`),
			"/a": json.RawMessage(`"x"`)}, Order: "-/b", Count: true, Scan: true},
			`{"where":{"/a":"x","/b":{"gte":1}},"order":"-/b","count":true,"scan":true}`},
		{"query, empty", wire.QueryReply{Examined: 7}, `{"documents":[],"examined":7}`},
		{"query", wire.QueryReply{Examined: 7, Continuation: "next", Documents: []wire.Document{{ID: "b", Etag: 18,
			Ts: instant, Document: json.RawMessage(`{"n":1}`)}}},
			`{"documents":[{"id":"b","etag":"18","ts":"2026-09-21T14:13:20.123Z","document":{"n":1}}],"examined":7,` +
				`"continuation":"next"}`},
		{"query that counts none", wire.QueryReply{Count: ptr(int64(0)), Examined: 7, Continuation: "next"},
			`{"count":0,"examined":7,"continuation":"next"}`},

		{"count", wire.CountReply{}, `{"live":0,"expired":0}`},

		{"forecast", wire.ForecastReply{Buckets: []wire.Bucket{{From: instant, Until: instant + 60_000},
			{From: instant + 60_000, Until: instant + 120_000, Count: 3}}},
			`{"buckets":[{"from":"2026-09-21T14:13:20.123Z","until":"2026-09-21T14:14:20.123Z","count":0},` +
				`{"from":"2026-09-21T14:14:20.123Z","until":"2026-09-21T14:15:20.123Z","count":3}]}`},
		{"forecast request, nothing set", wire.ForecastRequest{}, `{}`},
		{"forecast request", wire.ForecastRequest{Buckets: 5, Within: "1h"}, `{"buckets":5,"within":"1h"}`},
		{"forecast request for another default", wire.ForecastRequest{DefaultTTL: json.RawMessage("60")},
			`{"defaultTtl":60}`},
		{"forecast request for off", wire.ForecastRequest{DefaultTTL: json.RawMessage("null")}, `{"defaultTtl":null}`},
		{"forecast, nothing at once", wire.ForecastReply{Buckets: []wire.Bucket{}, AtOnce: ptr(int64(0))},
			`{"buckets":[],"atOnce":0}`},

		{"collections request, nothing set", wire.CollectionsRequest{}, `{}`},
		{"collections request", wire.CollectionsRequest{Limit: 5, Continuation: "next"}, `{"limit":5,"continuation":"next"}`},
		{"collections", wire.CollectionsReply{Continuation: "next", Collections: []wire.Collection{
			{Name: "a", IndexingMode: wire.Consistent, Live: 2},
			{Name: "b", DefaultTTL: ptr(int32(60)), IndexingMode: wire.Lazy, Etag: 17, Expired: 3},
		}}, `{"collections":[{"name":"a","defaultTtl":null,"indexingMode":"consistent","live":2,"expired":0},` +
			`{"name":"b","defaultTtl":60,"indexingMode":"lazy","etag":"17","live":0,"expired":3}],"continuation":"next"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := json.Marshal(tt.value)
			if err != nil || string(got) != tt.want {
				t.Errorf("JSON is\n     %s, %v\nwant %s", got, err, tt.want)
			}
			if v, ok := tt.value.(interface{ Encode() []byte }); ok {
				if got := string(v.Encode()); got != tt.want {
					t.Errorf("Encode is\n     %s\nwant %s", got, tt.want)
				}
			}
		})
	}
}

// bodies are documents whose bytes json.Marshal would change, or whose values a decoder would
// change.
var bodies = []string{
	"{ \"a\" : 1 }",
	"{\r\n\t\"a\": [1, 2]\r\n}\n",
	`{"html":"<b>&amp;</b>"}`,
	"{\"line separator\":\"\u2028\"}",
	`{"escaped":"\u00fc\/"}`,
	`{"n":1.0,"big":123456789012345678901234567890,"e":1E+2}`,
	`{"twice":1,"twice":2}`,
	`{}`,
}

// TestG3_EventCarriesTheDocumentUnchanged: an event has the bytes of its document, and decoding
// it returns those bytes.
//
// Goes red if Encode uses json.Marshal for the document, which removes white space and
// escapes <, > and &.
func TestG3_EventCarriesTheDocumentUnchanged(t *testing.T) {
	for _, body := range bodies {
		event := wire.Event{ID: `"<ü>`, Collection: "c", Document: json.RawMessage(body), Etag: 1, Ts: instant, TTL: 1,
			ExpiredAt: instant}
		encoded := event.Encode()
		if !bytes.Contains(encoded, []byte(`"document":`+body+`,"etag"`)) {
			t.Errorf("the document %q is not in %q as it was", body, encoded)
		}
		var got wire.Event
		if err := json.Unmarshal(encoded, &got); err != nil {
			t.Errorf("%q: %v", encoded, err)
			continue
		}
		if string(got.Document) != strings.TrimSpace(body) || got.ID != event.ID {
			t.Errorf("the document %q came back as %q, the id %q as %q", body, got.Document, event.ID, got.ID)
		}
	}
}

// TestG3_EventIsLittleLargerThanItsDocument: the largest write leaves 8 KiB of the server's
// limit to its event, with the headers. The body of the event takes at most a quarter of that
// beside the document, whatever the names and the document are.
//
// Goes red if Encode escapes the document, or writes it twice.
func TestG3_EventIsLittleLargerThanItsDocument(t *testing.T) {
	event := wire.Event{
		ID: strings.Repeat("\x01", wire.MaxID), Collection: strings.Repeat("x", wire.MaxCollection),
		Document: json.RawMessage(`{"a":"` + strings.Repeat("<", 100_000) + `"}`),
		Omitted:  true, Etag: math.MaxUint64, Ts: instant, TTL: math.MaxInt32, ExpiredAt: instant,
	}
	warning := wire.Expiring{ID: event.ID, Collection: event.Collection, Document: event.Document, Omitted: true,
		Etag: event.Etag, Ts: instant, TTL: math.MaxInt32, ExpiresAt: instant, Before: math.MaxInt32}
	for _, encoded := range [][]byte{event.Encode(), warning.Encode()} {
		if envelope := len(encoded) - len(event.Document); envelope > 2048 {
			t.Errorf("the event has %d bytes besides its document", envelope)
		}
	}
}

func TestListCarriesTheDocumentsUnchanged(t *testing.T) {
	var page wire.ListReply
	for _, body := range bodies {
		page.Documents = append(page.Documents, wire.Document{ID: "<a>", Etag: 1, Ts: instant,
			Document: json.RawMessage(body)})
	}
	encoded := page.Encode()
	for _, body := range bodies {
		if !bytes.Contains(encoded, []byte(`"document":`+body+`}`)) {
			t.Errorf("the document %q is not in the page as it was", body)
		}
	}
	var got wire.ListReply
	if err := json.Unmarshal(encoded, &got); err != nil || len(got.Documents) != len(bodies) {
		t.Fatalf("%q: %v", encoded, err)
	}
}

// Encode must write what json.Marshal writes from the tags. json.Marshal does not change the
// documents of this test.
func TestEncodeIsWhatTheTagsSay(t *testing.T) {
	type plainList wire.ListReply // without the method
	type plainQuery wire.QueryReply
	document := rapid.Map(rapid.SampledFrom([]string{`{}`, `{"a":[1,"x"]}`}),
		func(s string) json.RawMessage { return json.RawMessage(s) })
	when := rapid.Custom(func(t *rapid.T) wire.Time { return wire.Time(rapid.Int64Range(0, 4e12).Draw(t, "instant")) })
	rapid.Check(t, func(t *rapid.T) {
		event := wire.Event{
			ID: drawBytes(t, "id"), Collection: drawBytes(t, "collection"), Document: document.Draw(t, "document"),
			Etag: wire.Etag(rapid.Uint64().Draw(t, "etag")), Ts: when.Draw(t, "ts"), TTL: rapid.Int32().Draw(t,
				"ttl"), ExpiredAt: when.Draw(t, "expiredAt"),
		}
		if rapid.Bool().Draw(t, "omitted") {
			event.Document, event.Omitted = nil, true
		}
		same(t, event, event.Encode())
		warning := wire.Expiring{event.ID, event.Collection, event.Document, event.Omitted, event.Etag, event.Ts, event.TTL,
			event.ExpiredAt, rapid.Int32().Draw(t, "before")}
		same(t, warning, warning.Encode())
		due := wire.Due{event.ID, event.Collection, drawBytes(t, "target"), event.Document, event.Omitted, event.Etag,
			event.ExpiredAt}
		same(t, due, due.Encode())
		change := wire.Change{ID: event.ID, Collection: event.Collection, Document: event.Document, Omitted: event.Omitted,
			Unchanged: rapid.Bool().Draw(t, "unchanged"), Ts: event.Ts}
		if rapid.Bool().Draw(t, "stands") {
			change.Etag, change.ExpiresAt = event.Etag, ptr(event.ExpiredAt)
		}
		same(t, change, change.Encode())

		page := wire.ListReply{Documents: []wire.Document{}, Continuation: drawBytes(t, "continuation")}
		for range rapid.IntRange(0, 3).Draw(t, "documents") {
			d := wire.Document{ID: drawBytes(t, "id"), Etag: wire.Etag(rapid.Uint64().Draw(t, "etag")), Ts: when.Draw(t, "ts"),
				Document: document.Draw(t, "document")}
			if rapid.Bool().Draw(t, "expires") {
				d.ExpiresAt = ptr(when.Draw(t, "expiresAt"))
			}
			if rapid.Bool().Draw(t, "delivers") {
				d.Target = drawBytes(t, "target")
			}
			if rapid.Bool().Draw(t, "more") {
				d.Clock, d.Created, d.Deadline, d.NotAfter, d.Traceparent = when.Draw(t, "clock"), when.Draw(t,
					"created"), ptr(when.Draw(t, "deadline")), ptr(when.Draw(t, "notAfter")), drawBytes(t, "traceparent")
			}
			page.Documents = append(page.Documents, d)
		}
		same(t, plainList(page), page.Encode())
		found := wire.QueryReply{Documents: page.Documents, Examined: rapid.Int64().Draw(t, "examined"),
			Continuation: page.Continuation}
		if rapid.Bool().Draw(t, "counts") {
			found.Documents, found.Count = nil, ptr(rapid.Int64().Draw(t, "count"))
		}
		same(t, plainQuery(found), found.Encode())
	})
}

// TestAPageHasTheBytesOfItsDocuments: what a client reads of a list has the white space around a document too.
func TestAPageHasTheBytesOfItsDocuments(t *testing.T) {
	for _, body := range []string{`{}`, " {\n}\n", "\t{\"document\":{}, \"a\":\",\\\"document\\\":\"}\r\n"} {
		page := wire.ListReply{Documents: []wire.Document{{ID: `a,"document":{}`, Etag: 1, Ts: 1,
			Document: json.RawMessage(body)}}}
		var got wire.ListReply
		if err := json.Unmarshal(page.Encode(), &got); err != nil || string(got.Documents[0].Document) != body {
			t.Errorf("%q is read as %+v, %v", body, got, err)
		}
		var found wire.QueryReply
		if err := json.Unmarshal(wire.QueryReply{Documents: page.Documents}.Encode(), &found); err != nil ||
			string(found.Documents[0].Document) != body {
			t.Errorf("%q is read as %+v, %v, from a query", body, found, err)
		}
	}
}

func same(t *rapid.T, value any, encoded []byte) {
	want, err := json.Marshal(value)
	if err != nil || string(want) != string(encoded) {
		t.Fatalf("encoded is\n%s, json.Marshal makes\n%s, %v", encoded, want, err)
	}
}

func TestTime(t *testing.T) {
	for at, want := range map[wire.Time]string{
		0:               "1970-01-01T00:00:00.000Z",
		1:               "1970-01-01T00:00:00.001Z",
		-1:              "1969-12-31T23:59:59.999Z",
		instant:         "2026-09-21T14:13:20.123Z",
		instant - 23:    "2026-09-21T14:13:20.100Z",
		253402300799999: "9999-12-31T23:59:59.999Z",
	} {
		if at.String() != want {
			t.Errorf("Time(%d) is %s, want %s", at, at, want)
		}
		var back wire.Time
		if err := back.UnmarshalText([]byte(want)); err != nil || back != at {
			t.Errorf("%s is read as %d, %v; want %d", want, back, err, at)
		}
	}
	for text, want := range map[string]wire.Time{
		"2026-09-21T14:13:20Z":              instant - 123,
		"2026-09-21T16:13:20.123+02:00":     instant,
		"2026-09-21T14:13:20.123999999Z":    instant,
		"1969-12-31T23:59:59.9999Z":         -1,
		"2026-09-21T14:13:20.123000000000Z": instant,
	} {
		var got wire.Time
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%s is read as %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "now", "2026-09-21", "2026-09-21T14:13:20", "2026-13-01T00:00:00Z",
		"1790000000123"} {
		got := instant
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %s", text, got)
		} else if got != instant {
			t.Errorf("%q is an error, yet the time has become %s", text, got)
		}
	}
}

// A time is in UTC, whatever the time zone of the process is.
func TestTimeZone(t *testing.T) {
	was := time.Local
	defer func() { time.Local = was }()
	time.Local = time.FixedZone("elsewhere", 5*3600)
	if got, want := instant.String(), "2026-09-21T14:13:20.123Z"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestEtag(t *testing.T) {
	for text, want := range map[string]wire.Etag{"1": 1, "17": 17, "18446744073709551615": math.MaxUint64} {
		got, err := wire.ParseEtag(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("ParseEtag(%q) = %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "+1", "01", "1.0", "1e3", " 1", "1 ", "0x1", "1_0", "*", `"1"`,
		"18446744073709551616", strings.Repeat("1", 1000)} {
		got, err := wire.ParseEtag(text)
		if err == nil || got != 0 {
			t.Errorf("ParseEtag(%q) = %v, %v; want an error", text, got, err)
			continue
		}
		if !strings.Contains(err.Error(), "is not valid: use a positive whole number in decimal.") || len(err.Error()) > 200 {
			t.Errorf("ParseEtag(%.20q): error %q does not say what is allowed, in short", text, err)
		}
	}
	var e wire.Etag
	if err := json.Unmarshal([]byte(`"17"`), &e); err != nil || e != 17 {
		t.Errorf(`"17" is read as %v, %v`, e, err)
	}
	if err := json.Unmarshal([]byte(`17`), &e); err == nil {
		t.Error("an etag is text, yet a number was read")
	}
}

// Only a traceparent that is valid by the W3C recommendation is copied to an event, so that
// consumers of the event can rely on it.
func TestValidTraceparent(t *testing.T) {
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, good := range []string{
		"00-" + id + "-" + parent + "-01", "00-" + id + "-" + parent + "-00", "00-" + id + "-" + parent + "-ff",
		"01-" + id + "-" + parent + "-01", "fe-" + id + "-" + parent + "-01", "cc-" + id + "-" + parent +
			"-01-what-the-future-has",
		"01-" + id + "-" + parent + "-01-!~", "01-" + id + "-" + parent + "-01-" + strings.Repeat("x", 144), // 200 bytes
	} {
		if !wire.ValidTraceparent(good) {
			t.Errorf("%q is not valid", good)
		}
	}
	for _, bad := range []string{
		"", "00", "00-1", "00-x", "00-" + id + "-" + parent, "00-" + id + "-" + parent + "-", "00-" + id + "-" + parent +
			"-1",
		"ff-" + id + "-" + parent + "-01", "0-" + id + "-" + parent + "-01", "0g-" + id + "-" + parent + "-01",
		"00-" + strings.Repeat("0", 32) + "-" + parent + "-01", "00-" + id + "-" + strings.Repeat("0", 16) + "-01",
		"00-" + strings.ToUpper(id) + "-" + parent + "-01", "00-" + id + "-" + strings.ToUpper(parent) + "-01", "0A-" + id +
			"-" + parent + "-01",
		"00-" + id + "-" + parent + "-0A", "00-" + id + "-" + parent + "-01-more", "00-" + id + "-" + parent +
			"-01-", "00-" + id + "-" + parent + "-011",
		"01-" + id + "-" + parent + "-01-", "01-" + id + "-" + parent + "-01.more", "01-" + id + "-" + parent + "-01-a b", "01-" + id + "-" + parent +
			"-01-a\n", "01-" + id + "-" + parent + "-01-" + strings.Repeat("x", 145),
		"00_" + id + "-" + parent + "-01", "00-" + id + "_" + parent + "-01", "00-" + id + "-" + parent + "_01", "00-" + id +
			"00-" + parent[2:] + "-01", " 00-" + id + "-" + parent + "-01", "00-" + id + "-" + parent + "-01 ",
	} {
		if wire.ValidTraceparent(bad) {
			t.Errorf("%q is valid", bad)
		}
	}
}

// TestForecastRequestNull: null asks for off; a default that is left out means the configured one.
func TestForecastRequestNull(t *testing.T) {
	for text, want := range map[string]string{`{}`: "", `{"defaultTtl":null}`: "null", `{"defaultTtl":-1}`: "-1"} {
		var r wire.ForecastRequest
		if err := json.Unmarshal([]byte(text), &r); err != nil || string(r.DefaultTTL) != want {
			t.Errorf("%s is read as %q, %v", text, r.DefaultTTL, err)
		}
	}
}
