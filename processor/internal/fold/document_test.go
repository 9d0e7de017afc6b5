package fold

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// TestMerge: the examples of RFC 7396, appendix A, in which both are objects, and examples of
// members that keep their bytes and their order.
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
		{` { "n" : 1.0e+2 , "keep":{ "x" : [ ] } } `, `{"m":10000000000000000000001}`,
			`{"n":1.0e+2,"keep":{ "x" : [ ] },"m":10000000000000000000001}`},
		{`{"a":1,"a":2}`, `{"b":1,"b":null}`, `{"a":2}`},
		{`{"<\u00e9\"":1}`, `{"é":{"z":null}}`, "{\"<é\\\"\":1,\"é\":{}}"},
	} {
		got := string(mergeOne([]byte(c.object), []byte(c.patch)))
		if got != c.want {
			t.Errorf("%s patched by %s is %s, want %s", c.object, c.patch, got, c.want)
		}
	}
}

// TestMergeIsLinear: a merge reads a patch once, even if it is nested as deep as the parser allows. If it read
// the patch again at each level, this test would take minutes.
func TestMergeIsLinear(t *testing.T) {
	const depth = 9000
	deep := strings.Repeat(`{"a":`, depth) + `"` + strings.Repeat("x", 900<<10) + `"` + strings.Repeat(`}`, depth)
	if err := Check([]byte(deep), depth); err != nil {
		t.Fatal(err)
	}
	if got := string(mergeOne([]byte(deep), []byte(deep))); got != deep {
		t.Errorf("merged with itself it has %d bytes, want %d", len(got), len(deep))
	}
}

func TestCheck(t *testing.T) {
	for body, ok := range map[string]bool{
		`{}`: true, " \n{\"a\":1}\n": true,
		``: false, ` `: false, `[]`: false, `1`: false, `null`: false, `{`: false, `{"a":1}x`: false, `{"a":"` +
			"\xff" + `"}`: false, "\ufeff{}": false,
	} {
		if err := Check([]byte(body), 1); (err == nil) != ok {
			t.Errorf("Check(%q) = %v, want ok %v", body, err, ok)
		}
	}
}

// TestCheckErrorTexts: each error tells the client what the body is, and what to send.
func TestCheckErrorTexts(t *testing.T) {
	for body, want := range map[string]string{
		``:                   "the body is empty: send a JSON object.",
		" \n":                "the body is empty: send a JSON object.",
		"\ufeff{}":           "the body begins with a byte order mark (BOM): send the JSON object without it.",
		"\ufeff":             "the body begins with a byte order mark (BOM): send the JSON object without it.",
		"{\"a\":\"\xff\"}":   "the body is not UTF-8 (byte 7 is 0xff): send a JSON object in UTF-8.",
		"\xff\xfe{\x00}\x00": "the body is not UTF-8 (byte 1 is 0xff): send a JSON object in UTF-8.",
		`{"a":`: "the body is not valid JSON (unexpected end of JSON input, at byte 5): send a " +
			"JSON object.",
		`{"a":1}x`: "the body is not valid JSON (invalid character 'x' after top-level value, at byte " +
			"8): send a JSON object.",
		"{\"a\":\"\n\"}": `the body is not valid JSON (invalid character '\n' in string literal, at byte 7): send a ` +
			`JSON object.`,
		"\u00a0{}": `the body is not valid JSON (invalid character '\u00a0' looking for beginning of value, ` +
			`at byte 1): send a JSON object.`,
		`[]`:   "the body is a JSON array: send a JSON object.",
		` "a"`: "the body is a JSON string: send a JSON object.",
		`-1`:   "the body is a JSON number: send a JSON object.",
		`true`: "the body is a JSON boolean: send a JSON object.",
		`null`: "the body is JSON's null: send a JSON object.",
		strings.Repeat("[", 1e5): "the body has more than 2 levels of objects and arrays within each other: use at " +
			"most 2.",
		`{"a":[{}]}`: "the body has more than 2 levels of objects and arrays within each other: use at " +
			"most 2.",
		`[[[`: "the body has more than 2 levels of objects and arrays within each other: use at " +
			"most 2.",
		`[[]}[[[`: "the body is not valid JSON (invalid character '}' after array element, at byte " +
			"4): send a JSON object.",
	} {
		if err := Check([]byte(body), 2); err == nil || err.Error() != want {
			t.Errorf("Check(%.20q):\n got %v\nwant %s", body, err, want)
		}
	}
}

// FuzzMembers compares Members and merges with encoding/json, and the bytes of a merge with those of a slow one.
// A patched document is no deeper than what was merged.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` { "t\u0074l" : -1 , "b":[{"c":"]}"}] } `, `{"a":{"b":{}},"a":2}`,
		`{"":"\\\""}`} {
		f.Add([]byte(s), []byte(s))
	}
	f.Fuzz(func(t *testing.T, object, patch []byte) {
		if Check(object, jsonLevels) != nil {
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
		if Check(patch, jsonLevels) != nil {
			return
		}
		var a, b, m any
		merged := mergeOne(object, patch)
		if slowly := mergeSlowly(object, patch); !bytes.Equal(merged, slowly) {
			t.Fatalf("the patched document is %q, want %q", merged, slowly)
		}
		_, _, _ = json.Unmarshal(object, &a), json.Unmarshal(patch, &b), json.Unmarshal(merged, &m)
		if w := mergeValues(a, b); !reflect.DeepEqual(m, w) {
			t.Fatalf("the patched document is %v, want %v", m, w)
		}
		if most := max(levels(a), levels(b)); Check(merged, most) != nil {
			t.Fatalf("the patched document is %s, which has more than %d levels", merged, most)
		}
	})
}

// levels is how many levels of objects and arrays a value has.
func levels(value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		for _, below := range v {
			n = max(n, levels(below))
		}
	case []any:
		for _, below := range v {
			n = max(n, levels(below))
		}
	default:
		return 0
	}
	return n + 1
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

// jsonLevels is the most levels that encoding/json accepts.
const jsonLevels = 10000

// FuzzValid: valid agrees with json.Valid on everything.
func FuzzValid(f *testing.F) {
	for _, s := range []string{
		"", " ", "{}", "[]", "[1,]", `{"a":1,}`, `{"a" : [ 1 , -0.5e+3 , "\u00fF\n" , true , false , null ] } `,
		`{"a":}`, `{a:1}`,
		"01", "-", "-0", "1.", "1e", "1E+", "1e5", "nul", "truex", `"\x"`, `"\u12g4"`, `"\u123`, "\"\x01\"", `"`, `"\`,
		`{"a":1}}`, "[[[]]]", "[}", "{]", "\xff", "\"\xff\"",
		`{"a":1,,"b":2}`, `{"a":1 "b":2}`, "[1 2]", "\v1", "1 2", ".5", "+1", "0x1", "Infinity",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := isValid(b), json.Valid(b); got != want {
			t.Errorf("%q is valid: %v, but json.Valid says %v", b, got, want)
		}
	})
}

func isValid(b []byte) bool {
	ok, _ := valid(b, jsonLevels)
	return ok
}

// TestValidLevels: a value may have so many levels, and not one more, of objects, of arrays and of
// both; and with the levels that encoding/json has, valid agrees with it.
func TestValidLevels(t *testing.T) {
	for _, levels := range []int{1, 2, 1000, jsonLevels} {
		for n := levels - 1; n <= levels+1; n++ {
			for _, b := range []string{
				strings.Repeat("[", n) + strings.Repeat("]", n),
				strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n),
				strings.Repeat(`{"a":[`, n/2) + strings.Repeat("[", n%2) + `"[{"` + strings.Repeat("]", n%2) +
					strings.Repeat("]}", n/2),
			} {
				ok, tooDeep := valid([]byte(b), levels)
				if want := n <= levels && b != ""; ok != want || tooDeep != (n > levels) {
					t.Errorf("%.20s with %d levels of %d: valid %v, too deep %v", b, n, levels, ok, tooDeep)
				}
				if levels == jsonLevels && ok != json.Valid([]byte(b)) {
					t.Errorf("%.20s with %d levels: json.Valid says %v", b, n, !ok)
				}
			}
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	body := []byte(`{"customer":"` + strings.Repeat("x", 100) +
		`","ttl":60,"items":[{"sku":"a-1","count":2,"price":12.5},{"sku":"b-2","count":1,"price":3}],"note":"` +
		strings.Repeat("y", 80) + `"}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Check(body, 1000); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCheckDeep checks a body that is nothing but levels.
func BenchmarkCheckDeep(b *testing.B) {
	body := []byte(strings.Repeat(`{"a":[`, 500) + strings.Repeat("]}", 500))
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if err := Check(body, 1000); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkMembers(b *testing.B) {
	body := []byte(`{"customer":"` + strings.Repeat("x", 200) + `","ttl":60}`)
	b.ReportAllocs()
	for b.Loop() {
		for name, value := range Members(body) {
			if name == "ttl" && !bytes.Equal(value, []byte("60")) {
				b.Fatal(value)
			}
		}
	}
}
