package fold

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// jsonLevels is the most levels that encoding/json accepts.
const jsonLevels = 10000

// FuzzValid: valid agrees with json.Valid on everything.
func FuzzValid(f *testing.F) {
	for _, s := range []string{
		"", " ", "{}", "[]", "[1,]", `{"a":1,}`, `{"a" : [ 1 , -0.5e+3 , "\u00fF\n" , true , false , null ] } `, `{"a":}`, `{a:1}`,
		"01", "-", "-0", "1.", "1e", "1E+", "1e5", "nul", "truex", `"\x"`, `"\u12g4"`, `"\u123`, "\"\x01\"", `"`, `"\`, `{"a":1}}`, "[[[]]]", "[}", "{]", "\xff", "\"\xff\"",
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
				strings.Repeat(`{"a":[`, n/2) + strings.Repeat("[", n%2) + `"[{"` + strings.Repeat("]", n%2) + strings.Repeat("]}", n/2),
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
	body := []byte(`{"customer":"` + strings.Repeat("x", 100) + `","ttl":60,"items":[{"sku":"a-1","count":2,"price":12.5},{"sku":"b-2","count":1,"price":3}],"note":"` + strings.Repeat("y", 80) + `"}`)
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
