package entries_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/entries"
)

func to[T any](v T) *T { return &v }

func TestParseWhere(t *testing.T) {
	for condition, want := range map[string]entries.Condition{
		`"c1"`:                              {In: list(text("c1"))},
		` 17 `:                              {In: list(number(17))},
		`-0.0`:                              {In: list(number(0))},
		`true`:                              {In: list(boolean(true))},
		`null`:                              {In: list(null)},
		`{"eq":null}`:                       {In: list(null)},
		`{"in":["b",1,"a",1.0,null,false]}`: {In: list(null, boolean(false), number(1), text("a"), text("b"))},
		`{"prefix":""}`:                     {Prefix: to("")},
		`{"prefix":"\u0041"}`:               {Prefix: to("A")},
		`{"gt":1}`:                          {Over: to(number(1))},
		`{"gte":1,"lt":2}`:                  {Over: to(number(1)), OverEqual: true, Under: to(number(2))},
		`{"lte":"b","gt":"a"}`:              {Over: to(text("a")), Under: to(text("b")), UnderEqual: true},
		`{"lt":1,"gt":2}`:                   {Over: to(number(2)), Under: to(number(1))}, // which holds for nothing
	} {
		got, err := entries.ParseWhere(map[string][]byte{"/a": []byte(condition)})
		want.Pointer = "/a"
		if diff := cmp.Diff([]entries.Condition{want}, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", condition, err, diff)
		}
	}
	got, err := entries.ParseWhere(map[string][]byte{"/b": []byte("1"), "/a/b": []byte("2"), "/a": []byte("3")})
	if err != nil || len(got) != 3 || got[0].Pointer != "/a" || got[1].Pointer != "/a/b" || got[2].Pointer != "/b" {
		t.Errorf("several are %+v, %v", got, err)
	}
}

func TestParseWhere_Wrong(t *testing.T) {
	const use = "use a string, number, boolean or null, or an object of eq, of in, of prefix, or of the ends of a " +
		"range, " +
		"of which gt or gte is the lower and lt or lte the upper one."
	const ends = " of its range: use one of gt and gte, and one of lt and lte."
	const two = "use two numbers or two strings."
	long := `"` + strings.Repeat("x", 256) + `"`
	for condition, want := range map[string]string{
		``:                        "is empty: " + use,
		`{`:                       "is not valid JSON: " + use,
		`c1`:                      "is not valid JSON: " + use,
		"\"\xff\"":                "is not UTF-8: " + use,
		`{}`:                      "is an empty object: " + use,
		`["a"]`:                   `is an array: for one of several values use an object, {"in": [...]}.`,
		`{"ge":1}`:                `has the member "ge": ` + use,
		`{"gt":1,"":1}`:           `has the member "": ` + use,
		`{"eq":1,"in":[2]}`:       "has eq and in: " + use,
		`{"gt":1,"prefix":"a"}`:   "has gt and prefix: " + use,
		`{"in":[1],"lt":3}`:       "has in and lt: " + use,
		`{"prefix":"1","lt":"3"}`: "has prefix and lt: " + use,
		`{"eq":1,"eq":1}`:         "has eq twice: use it once.",
		`{"gt":1,"gt":1}`:         "has gt twice: use it once.",
		`{"gt":1,"gte":1}`:        "has two ends on one side" + ends,
		`{"lte":1,"gt":0,"lt":1}`: "has two ends on one side" + ends,
		`{"gt":1,"lt":"a"}`:       "has a number and a string as the ends of its range: " + two,
		`{"gt":null}`:             "has a gt that is null: use a number or a string.",
		`{"lte":true}`:            "has a lte that is true: use a number or a string.",
		`{"lte":[1]}`:             "compares with an object or array: use a string, number, boolean or null.",
		`{"eq":{"a":1}}`:          "compares with an object or array: use a string, number, boolean or null.",
		`{"in":[[1]]}`:            "compares with an object or array: use a string, number, boolean or null.",
		`{"in":1}`:                "has an in that is no array: use an array of 1 to 100 values.",
		`{"in":null}`:             "has an in that is no array: use an array of 1 to 100 values.",
		`{"in":[]}`:               "has an in with 0 values: use 1 to 100.",
		`{"in":[1` + strings.Repeat(",1", 100) + `]}`: "has an in with 101 values: use 1 to 100.",
		`{"prefix":1}`:            "has a prefix that is no string: use a string of at most 255 bytes.",
		`{"prefix":` + long + `}`: "has a string that is too long: use at most 255 bytes.",
		long:                      "has a string that is too long: use at most 255 bytes.",
		`-1e999`:                  "has the number -1e999: use one that a 64-bit floating point number can be.",
	} {
		got, err := entries.ParseWhere(map[string][]byte{"/a": []byte(condition)})
		if want = `the condition on "/a" ` + want; err == nil || err.Error() != want || got != nil {
			t.Errorf("%.60s:\n got %v\nwant %s", condition, err, want)
		}
	}
	many := map[string][]byte{}
	for _, name := range strings.Split("abcdefghi", "") {
		many["/"+name] = []byte("1")
	}
	if _, err := entries.ParseWhere(many); err == nil || err.Error() != "there are 9 conditions: use at most 8." {
		t.Errorf("9 conditions: %v", err)
	}
	_, err := entries.ParseWhere(map[string][]byte{"a": []byte("1")})
	if err == nil || err.Error() != entries.CheckPointer("a").Error() {
		t.Errorf("a wrong pointer: %v", err)
	}
}

func TestHoldsFor(t *testing.T) {
	for _, c := range []struct {
		condition string
		body      string
		want      bool
	}{
		{`1`, `{"a":1.0}`, true},
		{`1`, `{"a":"1"}`, false},
		{`null`, `{"a":null}`, true},
		{`null`, `{}`, false},
		{`null`, `{"a":[]}`, false},
		{`false`, `{"a":[true,false]}`, true},
		{`{"gt":1,"lt":3}`, `{"a":[1,3]}`, false}, // one element is to be between both
		{`{"gt":1,"lt":3}`, `{"a":[1,2,3]}`, true},
		{`{"gte":1}`, `{"a":"2"}`, false},
		{`{"lt":"b"}`, `{"a":1}`, false},
		{`{"lt":"b"}`, `{"a":null}`, false},
		{`{"prefix":"a"}`, `{"a":["b","ab"]}`, true},
		{`{"prefix":""}`, `{"a":0}`, false},
		{`{"prefix":""}`, `{"a":"x"}`, true},
		{`{"prefix":""}`, `{"a":["x",{}]}`, false}, // not indexed
		{`1`, `{"a":[1,1e400]}`, false},
	} {
		where, err := entries.ParseWhere(map[string][]byte{"/a": []byte(c.condition)})
		if err != nil {
			t.Fatal(err)
		}
		values, err := entries.Of([]byte(c.body), []string{"/a"})
		if got := where[0].HoldsFor(values[0]); err != nil || got != c.want {
			t.Errorf("%s holds for %s: %t, %v", c.condition, c.body, got, err)
		}
	}
}
