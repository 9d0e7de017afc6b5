package document

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// The examples of RFC 7396, appendix A, whose target and patch are objects, and
// what keeping bytes and order adds.
func TestMerge(t *testing.T) {
	for _, c := range []struct{ object, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a":[1]}`, `{"a":{"b":[null,{"c":null}]}}`, `{"a":{"b":[null,{"c":null}]}}`},
		{` { "n" : 1.0e+2 , "keep":{ "x" : [ ] } } `, `{"m":10000000000000000000001}`, `{"n":1.0e+2,"keep":{ "x" : [ ] },"m":10000000000000000000001}`},
		{`{"a":1,"a":2}`, `{"b":1,"b":null}`, `{"a":2}`},
		{`{"<\u00e9\"":1}`, `{"é":{"z":null}}`, "{\"<é\\\"\":1,\"é\":{}}"},
	} {
		got := string(Merge([]byte(c.object), []byte(c.patch)))
		if got != c.want {
			t.Errorf("Merge(%s, %s) = %s, want %s", c.object, c.patch, got, c.want)
		}
	}
}

// A patch that is nested as deep as the parser allows is gone through once: were
// it gone through at each level, this would take minutes.
func TestMergeIsLinear(t *testing.T) {
	const depth = 9000
	deep := strings.Repeat(`{"a":`, depth) + `"` + strings.Repeat("x", 900<<10) + `"` + strings.Repeat(`}`, depth)
	if err := Check([]byte(deep)); err != nil {
		t.Fatal(err)
	}
	if got := string(Merge([]byte(deep), []byte(deep))); got != deep {
		t.Errorf("merged with itself it has %d bytes, want %d", len(got), len(deep))
	}
}

func TestCheck(t *testing.T) {
	for body, ok := range map[string]bool{
		`{}`: true, " \n{\"a\":1}\n": true,
		``: false, ` `: false, `[]`: false, `1`: false, `null`: false, `{`: false, `{"a":1}x`: false, `{"a":"` + "\xff" + `"}`: false, "\ufeff{}": false,
	} {
		if err := Check([]byte(body)); (err == nil) != ok {
			t.Errorf("Check(%q) = %v, want ok %v", body, err, ok)
		}
	}
}

// FuzzMembers holds Members and Merge against encoding/json.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` { "t\u0074l" : -1 , "b":[{"c":"]}"}] } `, `{"a":{"b":{}},"a":2}`, `{"":"\\\""}`} {
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, object, patch []byte) {
		if Check(object) != nil {
			return
		}
		want := make(map[string]json.RawMessage)
		if err := json.Unmarshal(object, &want); err != nil {
			t.Fatal(err)
		}
		got := make(map[string]json.RawMessage)
		for name, value := range Members(object) {
			got[name] = value
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("members %q, want %q", got, want)
		}
		if Check(patch) != nil {
			return
		}
		var a, b, m any
		_, _, _ = json.Unmarshal(object, &a), json.Unmarshal(patch, &b), json.Unmarshal(Merge(object, patch), &m)
		if w := mergeValues(a, b); !reflect.DeepEqual(m, w) {
			t.Fatalf("Merge = %v, want %v", m, w)
		}
	})
}

// mergeValues is MergePatch of RFC 7396, section 2, word for word.
func mergeValues(target, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	t, ok := target.(map[string]any)
	if !ok {
		t = make(map[string]any)
	}
	for name, value := range p {
		if value == nil {
			delete(t, name)
		} else {
			t[name] = mergeValues(t[name], value)
		}
	}
	return t
}
