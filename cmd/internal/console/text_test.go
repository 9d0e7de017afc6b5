package console

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTextIsBounded: whatever a document is, a page shows a limited part of it.
func TestTextIsBounded(t *testing.T) {
	nested := func(depth int, inner string) []byte {
		return []byte(strings.Repeat("[", depth) + inner + strings.Repeat("]", depth))
	}
	for name, c := range map[string]struct {
		document   []byte
		flat, cut  bool
		wholeShown bool
	}{
		"small":               {[]byte(`{"a":[1,2,{}],"b":"x"}`), false, false, false},
		"deep":                {nested(9990, ""), true, false, true},
		"deep and wide":       {nested(9990, strings.Repeat("1,", 5000)+"1"), true, false, true},
		"not deep and wide":   {nested(mostDepth, strings.Repeat("1,", 5200)+"1"), true, false, true},
		"as deep as allowed":  {nested(mostDepth, "1"), false, false, false},
		"large":               {[]byte(`"` + strings.Repeat("x", mostShown) + `"`), true, true, false},
		"a rune at the limit": {[]byte(strings.Repeat("x", mostShown-1) + "☃☃"), true, true, false},
		"brackets in texts":   {[]byte(`"` + strings.Repeat(`[\"`, 1000) + `"`), false, false, true},
	} {
		got := newText(c.document, true)
		if len(got.Shown) > mostShown || got.Flat != c.flat || got.Whole > 0 != c.cut || got.Lossy ||
			!utf8.ValidString(got.Shown) {
			t.Errorf("%s: %d bytes of %d, flat %t, lossy %t", name, len(got.Shown), got.Whole, got.Flat, got.Lossy)
		}
		if c.wholeShown && got.Shown != string(c.document) {
			t.Errorf("%s: it shows something else", name)
		}
		if raw := newText(c.document, false); raw.Flat {
			t.Errorf("%s: nobody has asked to indent it", name)
		}
	}
}

// FuzzIndented: a document is never larger or deeper when it is indented than was computed before.
func FuzzIndented(f *testing.F) {
	for _, s := range []string{`{}`, `[]`, `{"a":[1,2,{"b":"[\"]"}],"c":{}}`, ` [ 1 , [ ] ] `, `"\\"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var b bytes.Buffer
		if json.Indent(&b, document, "", "  ") != nil {
			return
		}
		if size, _ := indented(document); b.Len() > size {
			t.Errorf("%d bytes, and %d at most were computed", b.Len(), size)
		}
	})
}
