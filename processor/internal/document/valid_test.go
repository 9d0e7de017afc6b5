package document

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

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
		if got, want := valid(b), json.Valid(b); got != want {
			t.Errorf("%q is valid: %v, but json.Valid says %v", b, got, want)
		}
	})
}

// TestValidDepth: valid and json.Valid have the same limit of depth.
func TestValidDepth(t *testing.T) {
	for _, n := range []int{maxDepth - 1, maxDepth, maxDepth + 1} {
		b := []byte(strings.Repeat("[", n) + strings.Repeat("]", n))
		if got, want := valid(b), json.Valid(b); got != want {
			t.Errorf("nested %d deep: %v, but json.Valid says %v", n, got, want)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	body := []byte(`{"customer":"` + strings.Repeat("x", 100) + `","ttl":60,"items":[{"sku":"a-1","count":2,"price":12.5},{"sku":"b-2","count":1,"price":3}],"note":"` + strings.Repeat("y", 80) + `"}`)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Check(body); err != nil {
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
