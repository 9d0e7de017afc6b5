package entries_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/entries"
)

func text(s string) entries.Value    { return entries.Value{Kind: entries.String, Text: s} }
func number(n float64) entries.Value { return entries.Value{Kind: entries.Number, Number: n} }
func boolean(b bool) entries.Value   { return entries.Value{Kind: entries.Boolean, Bool: b} }

var (
	null    = entries.Value{Kind: entries.Null}
	leftOut = entries.Value{}
)

func list(values ...entries.Value) []entries.Value { return values }

func TestOf(t *testing.T) {
	longest := strings.Repeat("é", 127) + "e"
	many := func(n int) string { return strings.TrimSuffix(strings.Repeat("7,", n), ",") }
	for _, c := range []struct {
		body, pointer string
		want          []entries.Value
	}{
		{`{"a":"x"}`, "/a", list(text("x"))},
		{` { "a" : "x" } `, "/a", list(text("x"))},
		{`{"a":1.50}`, "/a", list(number(1.5))},
		{`{"a":-0}`, "/a", list(number(0))},
		{`{"a":-0.0e7}`, "/a", list(number(0))},
		{`{"a":1e-400}`, "/a", list(number(0))},
		{`{"a":1e400}`, "/a", list(leftOut)},
		{`{"a":9007199254740993}`, "/a", list(number(9007199254740992))},
		{`{"a":true}`, "/a", list(boolean(true))},
		{`{"a":false}`, "/a", list(boolean(false))},
		{`{"a":null}`, "/a", list(null)},
		{`{"a":{}}`, "/a", list(leftOut)},
		{`{"a":{"b":1}}`, "/a/b", list(number(1))},
		{`{"a":{"b":1}}`, "/b", nil},
		{`{"a":1}`, "/a/b", nil},
		{`{}`, "/a", nil},
		{`{"":1}`, "/", list(number(1))},
		{`{"a":{"":{"":"x"}}}`, "/a//", list(text("x"))},
		// arrays
		{`{"a":[]}`, "/a", nil},
		{`{"a":[ ]}`, "/a", nil},
		{`{"a":["b", "a" ,"b",1,true,null,1.0]}`, "/a", list(null, boolean(true), number(1), text("a"), text("b"))},
		{`{"a":["b",[]]}`, "/a", list(leftOut)},
		{`{"a":["b",{}]}`, "/a", list(leftOut)},
		{`{"a":["b",1e999]}`, "/a", list(leftOut)},
		{`{"a":[` + many(32) + `]}`, "/a", list(number(7))},
		{`{"a":[` + many(33) + `]}`, "/a", list(leftOut)},
		{`{"a":[7,"` + longest + `x"]}`, "/a", list(leftOut)},
		{`{"a":["x",{"b":5}]}`, "/a/0", list(text("x"))},
		{`{"a":["x",{"b":5}]}`, "/a/1/b", list(number(5))},
		{`{"a":["x",{"b":5}]}`, "/a/1", list(leftOut)},
		{`{"a":["x"]}`, "/a/1", nil},
		{`{"a":["x"]}`, "/a/00", nil},
		{`{"a":["x"]}`, "/a/+0", nil},
		{`{"a":["x"]}`, "/a/-", nil},
		{`{"a":["x"]}`, "/a/", nil},
		{`{"a":{"0":"x","00":"y"}}`, "/a/00", list(text("y"))},
		// the longest string
		{`{"a":"` + longest + `"}`, "/a", list(text(longest))},
		{`{"a":"` + longest + `x"}`, "/a", list(leftOut)},
		{`{"a":"` + strings.Repeat(`\u0000`, 255) + `"}`, "/a", list(text(strings.Repeat("\x00", 255)))},
		{`{"a":"` + strings.Repeat(`\u0000`, 256) + `"}`, "/a", list(leftOut)},
		{`{"a":"` + strings.Repeat(`\u20ac`, 86) + `"}`, "/a", list(leftOut)},
		// escapes
		{`{"a":"\u00e9\n\"\\\ud83d\ude00"}`, "/a", list(text("é\n\"\\😀"))},
		{`{"a":"\ud800"}`, "/a", list(text("\ufffd"))},
		{`{"\u0061":{"\"b\\":1}}`, `/a/"b\`, list(number(1))},
		{`{"a~b":{"c/d":1}}`, "/a~0b/c~1d", list(number(1))},
		{`{"~0":1,"~":2}`, "/~0", list(number(2))},
		{`{"~1":1}`, "/~01", list(number(1))},
		// names twice
		{`{"a":1,"a":2}`, "/a", list(number(2))},
		{`{"a":{"b":1},"a":{"c":2}}`, "/a/b", nil},
		{`{"a":{"b":1},"a":3}`, "/a/b", nil},
		{`{"a":3,"\u0061":{"b":1}}`, "/a/b", list(number(1))},
		{`{"a":[1],"a":[]}`, "/a", nil},
		// what is in the way
		{`{"x":"\"a\":1,}]","y":[{"a":2},["}"]],"z":{"a":"]"},"a":3}`, "/a", list(number(3))},
	} {
		got, err := entries.Of([]byte(c.body), []string{c.pointer})
		if err != nil {
			t.Errorf("%s at %s: %v", c.body, c.pointer, err)
			continue
		}
		if diff := cmp.Diff([][]entries.Value{c.want}, got); diff != "" {
			t.Errorf("%.80s at %s (-want +got):\n%s", c.body, c.pointer, diff)
		}
	}
}

// Several pointers, more than the walk follows at once, and the same one twice.
func TestOf_Several(t *testing.T) {
	var pointers []string
	var want [][]entries.Value
	body := "{"
	for i := range 40 {
		pointers = append(pointers, fmt.Sprintf("/g/%d/x", i))
		want = append(want, list(number(float64(i)), text("s")))
	}
	pointers = append(pointers, "/g/39/x", "/g/3", "/h")
	want = append(want, want[39], list(leftOut), nil)
	for i := range 40 {
		body += fmt.Sprintf(`%s"%d":{"x":["s",%d]}`, map[bool]string{true: `"g":{`, false: ","}[i == 0], i, i)
	}
	got, err := entries.Of([]byte(body+"}}"), pointers)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := entries.Of([]byte("{}"), nil); err != nil || len(got) != 0 {
		t.Errorf("without pointers: %v, %v", got, err)
	}
}

// Of does not panic on what is no JSON, and finds that a body ends too early.
func TestOf_Broken(t *testing.T) {
	body := `{"b":[1,{"c":"d\""}],"a":{"b":["x",true,{"c":-1.5e7}]}}`
	for i := range len(body) {
		if _, err := entries.Of([]byte(body[:i]), []string{"/a/b/2/c", "/a/b", "/b"}); err == nil {
			t.Errorf("no error for %s", body[:i])
		}
	}
	for _, b := range []string{"", "[]", "1", `{"a" 1}`, `{1:1}`, `{"a":1 "b":2}`, `{"a":}`, `{"a":x}`, `{"a":["b",]`} {
		if _, err := entries.Of([]byte(b), []string{"/a"}); err == nil {
			t.Errorf("no error for %s", b)
		}
	}
}

func TestCompare(t *testing.T) {
	inOrder := list(leftOut, null, boolean(false), boolean(true), number(-math.MaxFloat64), number(-1.5),
		number(0), number(5e-324), number(1), number(2), number(10), text(""), text("\x00"), text("10"), text("9"),
		text("Z"), text("a"), text("é"))
	for i, a := range inOrder {
		for j, b := range inOrder {
			if got, want := entries.Compare(a, b), max(-1, min(1, i-j)); got != want {
				t.Errorf("Compare(%+v, %+v) is %d, want %d", a, b, got, want)
			}
		}
	}
}

// slowly returns what Of does for a pointer, from what encoding/json decoded.
func slowly(at any, pointer string) []entries.Value {
	for _, token := range strings.Split(pointer, "/")[1:] {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch in := at.(type) {
		case map[string]any:
			member, ok := in[token]
			if !ok {
				return nil
			}
			at = member
		case []any:
			n, err := strconv.Atoi(token)
			if err != nil || n < 0 || n >= len(in) || strconv.Itoa(n) != token {
				return nil
			}
			at = in[n]
		default:
			return nil
		}
	}
	elements, isArray := at.([]any)
	if !isArray {
		elements = []any{at}
	}
	if len(elements) > entries.MaxElements {
		return list(leftOut)
	}
	var values []entries.Value
	for _, element := range elements {
		switch e := element.(type) {
		case nil:
			values = append(values, null)
		case bool:
			values = append(values, boolean(e))
		case json.Number:
			n, err := e.Float64()
			if err != nil {
				return list(leftOut)
			}
			if n == 0 {
				n = 0
			}
			values = append(values, number(n))
		case string:
			if len(e) > entries.MaxValue {
				return list(leftOut)
			}
			values = append(values, text(e))
		default:
			return list(leftOut)
		}
	}
	slices.SortFunc(values, entries.Compare)
	return slices.Compact(values)
}

// randomJSON makes a JSON text of few names, so that pointers meet them, with names that come twice.
func randomJSON(r *rand.Rand, levels int) string {
	space := func() string { return []string{"", "", "", " ", "\n\t"}[r.IntN(5)] }
	name := func() string {
		return []string{"a", "b", "c", "", "~", "/", "0", "1", `\u0061`, `\"`, "é"}[r.IntN(11)]
	}
	switch n := r.IntN(12); {
	case levels > 0 && n < 4:
		members := make([]string, r.IntN(5))
		for i := range members {
			members[i] = space() + `"` + name() + `"` + space() + ":" + space() + randomJSON(r, levels-1) + space()
		}
		return "{" + space() + strings.Join(members, ",") + "}"
	case levels > 0 && n < 6:
		elements := make([]string, r.IntN(4))
		if r.IntN(20) == 0 {
			elements = make([]string, 31+r.IntN(3))
		}
		for i := range elements {
			elements[i] = space() + randomJSON(r, r.IntN(levels)) + space()
		}
		return "[" + space() + strings.Join(elements, ",") + "]"
	}
	return []string{"null", "true", "false", "0", "-0", "-12", "1.5e3", "1e400", "1e-400",
		"123456789012345678901234567890", `""`, `"x"`, `"{[\"]},"`, `"\\"`, `"\u0000\u0001"`, `"é\ud83d\ude00\udc00"`,
		`"` + strings.Repeat("y", 254+r.IntN(3)) + `"`}[r.IntN(17)]
}

var fuzzPointers = []string{"/a", "/b", "/a/a", "/a/b", "/a/b/c", "/b/0", "/a/1/b", "/", "/~0", "/~1/a",
	"/~0/~01", "/0", "/0/1", `/"`, "/é/é", "/c//a", "/c", "/c/0/0"}

func compareWithSlow(t *testing.T, body []byte, pointers []string) {
	t.Helper()
	got, err := entries.Of(body, pointers)
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var decoded any
	if err := d.Decode(&decoded); err != nil {
		t.Fatal(err)
	}
	for i, pointer := range pointers {
		if want := slowly(decoded, pointer); !slices.Equal(got[i], want) {
			t.Fatalf("%s at %s:\n got %+v\nwant %+v", body, pointer, got[i], want)
		}
	}
}

// Random documents have the values that encoding/json finds.
func TestOf_Random(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	for found := 0; found < 20000; {
		if body := randomJSON(r, 5); body[0] == '{' {
			found++
			compareWithSlow(t, []byte(body), fuzzPointers)
		}
	}
}

// FuzzOf compares Of with encoding/json, and looks for panics.
func FuzzOf(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		f.Add([]byte(randomJSON(r, 4)), "/a/b")
	}
	f.Add([]byte(`{"a":[1,"a",true]`), "/a/0")
	f.Fuzz(func(t *testing.T, body []byte, pointer string) {
		trimmed := bytes.TrimLeft(body, " \t\r\n")
		if !json.Valid(body) || trimmed[0] != '{' || entries.CheckPointer(pointer) != nil {
			_, _ = entries.Of(body, []string{pointer, "/a", "/a/b"})
			return
		}
		compareWithSlow(t, body, append([]string{pointer}, fuzzPointers...))
	})
}

// document is a document of about 1 kB as an order may be.
var document = []byte(`{"id":"order-0001","customer":"c-48151623","status":"new","price":129.95,"currency":"EUR",` +
	`"tags":["fragile","gift","eu"],"seat":{"row":"A","number":17,"hall":{"name":"Großer Saal","floor":2}},"note":"` +
	strings.Repeat("please ring the bell twice ", 12) + `","lines":[` +
	strings.Repeat(`{"sku":"4006381333931","quantity":2,"price":{"net":54.6,"gross":64.97},"name":"pencil, \"HB\""},`, 4) +
	`{"sku":"x"}],"address":{"street":"Hauptstraße 1","zip":"10827","city":"Berlin","country":"DE"},"paid":false}`)

func BenchmarkOf(b *testing.B) {
	for _, pointers := range [][]string{{"/customer"}, {"/customer", "/price", "/status"},
		{"/customer", "/status", "/price", "/tags", "/seat/row", "/address/city", "/paid", "/lines/4/sku"}} {
		b.Run(strconv.Itoa(len(pointers)), func(b *testing.B) {
			b.SetBytes(int64(len(document)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := entries.Of(document, pointers); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
