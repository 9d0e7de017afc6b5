package ndjson

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestShapes: what becomes of the lines of other stores.
func TestShapes(t *testing.T) {
	const at, after = "2030-01-31T12:00:00.000Z", "2030-01-31T13:00:00.000Z"
	exp := func(value string) string { return `{"id":"a","exp":` + value + `}` }
	byExp, drop := Shape{ExpiresAt: "exp"}, Shape{ExpiresAt: "exp", Drop: []string{"exp"}}
	for _, c := range []struct {
		shape Shape
		line  string
		want  string // id, clock, deadline and document; or what the error says
	}{
		{byExp, exp(`"2030-01-31T12:00:00Z"`), "a||" + at + "|" + exp(`"2030-01-31T12:00:00Z"`)},
		{drop, exp(`"2030-01-31T12:00:00.000+0000"`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`1896091200`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`"1896091200"`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`1896091199.9999`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`1896091200000`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`{"$date":"2030-01-31T12:00:00Z"}`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`{"$date":{"$numberLong":"1896091200000"}}`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`{"$date":1896091200000}`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`{"$numberLong":"1896091200"}`), "a||" + at + `|{"id":"a"}`},
		{drop, exp(`null`), `a|||{"id":"a"}`},
		{drop, `{"id":"a"}`, `a|||{"id":"a"}`},
		{byExp, exp(`86400`), "member exp is 86400: that may be seconds or milliseconds since 1970: say which with " +
			"--time-unit s or ms"},
		{byExp, exp(`1896091200000000`), "seconds or milliseconds"},
		{Shape{ExpiresAt: "exp", Unit: Seconds, Drop: []string{"exp"}}, exp(`86400`),
			`a||1970-01-02T00:00:00.000Z|{"id":"a"}`},
		{Shape{ExpiresAt: "exp", Unit: Milliseconds, Drop: []string{"exp"}}, exp(`86400000`),
			`a||1970-01-02T00:00:00.000Z|{"id":"a"}`},
		{Shape{ExpiresAt: "exp", Unit: Seconds}, exp(`1896091200000`), "after the year 9999"},
		{byExp, exp(`"soon"`), `member exp is "soon": use an instant as in RFC 3339`},
		{byExp, exp(`-5`), "use an instant"}, {byExp, exp(`1e9`), "use an instant"}, {byExp, exp(`true`), "use an instant"},
		{byExp, exp(`{"$date":1,"x":2}`), "use an instant"}, {byExp, exp(`{"$numberLong":5}`), "use an instant"},
		{byExp, exp(`[]`), "use an instant"},
		{Shape{ExpiresAt: "ttl"}, `{"id":"a","ttl":1896091200,"b":"<"}`, "a||" + at + `|{"id":"a","b":"<"}`},
		{Shape{After: "at", AfterBy: time.Hour}, `{"id":"a","at":1896091200}`, "a|" + at + "|" + after +
			`|{"id":"a","at":1896091200}`},
		{Shape{ID: "_id"}, `{"_id":{"$oid":"65a"},"n":1.0}`, `65a|||{"_id":{"$oid":"65a"},"n":1.0}`},
		{Shape{ID: "_id", Drop: []string{"_id"}}, `{"_id":7, "a b" : { "c":1 }}`, `7|||{"a b":{ "c":1 }}`},
		{Shape{ID: "_id"}, `{"id":"a"}`, "no member _id"}, {Shape{ID: "_id"}, `{"_id":null}`, "is not a string"},
		{Shape{ID: "_id"}, `{"_id":""}`, "1 to 255"}, {Shape{Drop: []string{"x"}}, `{"id":7}`, "is not a string"},
		{byExp, `[]`, "not a JSON object: it is another JSON value"},
		{byExp, `null`, "not a JSON object: it is another JSON value"},
		{byExp, `{`, "not a JSON object: unexpected end"},
		{Shape{Unwrap: "value", ExpiresAt: "exp"}, `{"id":"a","value":{"n": 1},"exp":1896091200}`, "a||" + at + `|{"n": 1}`},
		{Shape{Unwrap: "doc"}, `{"key":1,"doc":{"id":"b"}}`, `b|||{"id":"b"}`},
		{Shape{Unwrap: "doc"}, `{"id":"b","doc":[]}`, "no member doc that is an object"},
		{Shape{DynamoDB: true, ID: "pk", ExpiresAt: "exp", Drop: []string{"exp"}},
			`{"Item":{"pk":{"S":"a"},"exp":{"N":"1896091200"},"l":{"L":[{"N":"1.5"},{"NULL":true},{"BOOL":false}]},` +
				`"m":{"M":{"x":{"B":"AA=="}}},"s":{"NS":["1","2"]},"t":{"SS":["a"]}}}`,
			"a||" + at + `|{"pk":"a","l":[1.5,null,false],"m":{"x":"AA=="},"s":[1,2],"t":["a"]}`},
		{Shape{DynamoDB: true}, `{"Item":{"id":{"S":"a"},"n":{"N":"x"}}}`, "attribute n"},
		{Shape{DynamoDB: true}, `{"Item":{"id":{"L":"a"}}}`, "is not a value of DynamoDB"},
		{Shape{DynamoDB: true}, `{"Item":{"id":{"NS":["a"]}}}`, "is not a value of DynamoDB"},
		{Shape{DynamoDB: true}, `{"Item":{"id":"a"}}`, "has no type of DynamoDB"},
		{Shape{DynamoDB: true}, `{"id":"a"}`, "no member Item"},
		{drop, `{"lapse":1,"id":"a","clock":"2026-01-31T12:00:00.000Z","deadline":"2027-01-31T12:00:00.000Z",` +
			`"document":{"exp":1896091200}}`, "a||" + at + `|{}`},
		{drop, `{"lapse":1,"id":"a","clock":"2026-01-31T12:00:00.000Z","deadline":"2027-01-31T12:00:00.000Z","document":{}}`,
			"a|2026-01-31T12:00:00.000Z|2027-01-31T12:00:00.000Z|{}"},
	} {
		r, err := c.shape.Record([]byte(c.line))
		got := fmt.Sprintf("%s|%s|%s|%s", r.ID, r.Clock, r.Deadline, r.Document)
		if err != nil {
			got = err.Error()
		}
		if got != c.want && (err == nil || !strings.Contains(got, c.want)) {
			t.Errorf("%s: %s, want %s", c.line, got, c.want)
		}
	}
}

// TestEnvelope: what looks like a document in an envelope of another program, and what does not.
func TestEnvelope(t *testing.T) {
	for line, want := range map[string]string{
		`{"id":"1","document":{}}`: "document", `{"key":"1","value":{"a":1},"ttl":5}`: "value",
		`{"_id":{"$oid":"1"},"_index":"x","_source":{}}`: "_source",
		`{"id":"1","collection":"c","document":{},"etag":"4","ts":"2026-01-31T12:00:00Z",` +
			`"expiresAt":"2026-01-31T12:00:00Z"}`: "document",
		`{"Item":{"id":{"S":"1"}}}`: "Item", `{"data":{}}`: "data", `{"id":"1","data":{},"name":"x"}`: "",
		`{"id":"1","data":"x"}`: "", `{"id":"1","data":{},"body":{}}`: "",
		`{"id":"1"}`: "", `{"ts":1,"data":{}}`: "", `{"id":"1","data":{},"ts":[]}`: "", `[]`: "", `{`: "",
		`{"lapse":1,"id":"1","document":{}}`: "",
	} {
		if got := Envelope([]byte(line)); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// FuzzShape: no line makes it panic, and what it makes of one is an object if the line was one.
func FuzzShape(f *testing.F) {
	for _, seed := range []string{`{"id":"1","exp":{"$date":{"$numberLong":"1"}}}`,
		`{"Item":{"exp":{"N":"1"},"id":{"S":"a"}}}`, `{"lapse":1,"id":"a","text":"{}"}`, `{"$lapse":{}}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		Envelope(line)
		for _, s := range []Shape{{}, {ExpiresAt: "exp", Drop: []string{"exp"}}, {DynamoDB: true, ID: "id"},
			{Unwrap: "Item", After: "exp", AfterBy: time.Hour}} {
			r, err := s.Record(line)
			if err == nil && len(s.Drop) > 0 && !r.Whole {
				if _, err := Members(r.Document); err != nil {
					t.Errorf("%q became %q", line, r.Document)
				}
			}
		}
	})
}
