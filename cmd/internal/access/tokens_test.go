package access

import (
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	const a, b = "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"
	entries, err := parse([]byte("\ufeff# comment\n\n  " + a + "\tread-write\r\n" + b + " read-only orders,carts"))
	if err == nil {
		t.Errorf("a byte order mark is no comment: %d entries", len(entries))
	}
	entries, err = parse([]byte("# comment\n\n  " + a + "\tread-write\r\n" + b + " read-only orders,carts"))
	if err != nil || len(entries) != 2 {
		t.Fatalf("%d entries: %v", len(entries), err)
	}
	if g := entries[0].grant; !g.Write || !g.All() || !g.Covers("x") {
		t.Errorf("the first is %+v", g)
	}
	if g := entries[1].grant; g.Write || g.All() || !g.Covers("carts") || g.Covers("x") {
		t.Errorf("the second is %+v", g)
	}
	for line, part := range map[string]string{
		"short read-only":                      "16 to 512",
		a + "":                                 "read-only or read-write",
		a + " admin":                           "read-only or read-write",
		a + " read-only a b":                   "at most a list",
		a + " read-only a.b":                   "a.b",
		a + " read-only a,":                    "empty",
		a + "\u00fc read-only":                 "visible ASCII",
		a + " read-only\n" + a + " read-write": "another line",
	} {
		_, err := parse([]byte(line))
		if err == nil || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v, want %q", line, err, part)
		}
		if err != nil && strings.Contains(err.Error(), a) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}

// FuzzParse: no file makes it panic, and no error shows a token.
func FuzzParse(f *testing.F) {
	f.Add([]byte("aaaaaaaaaaaaaaaa read-only\n# x\n\nbbbbbbbbbbbbbbbb read-write orders,carts"))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, content []byte) {
		entries, err := parse(content)
		if err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
			if len(first) >= shortest && len(first) <= longest && strings.Contains(err.Error(), first) {
				t.Errorf("the error shows the token: %v", err)
			}
			return
		}
		tokens := &Tokens{}
		tokens.entries.Store(&entries)
		if _, ok := tokens.Find(""); ok {
			t.Error("the empty token is let in")
		}
	})
}
