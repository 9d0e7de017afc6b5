package cli

import "testing"

func TestInsertTTL(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                       `{"ttl":5}`,
		` { } `:                    `{"ttl":5 }`,
		`{"a": 1.0,"b":{"ttl":3}}`: `{"ttl":5,"a": 1.0,"b":{"ttl":3}}`,
	} {
		if got, err := insertTTL([]byte(in), 5); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v", in, got, err)
		}
	}
	for _, in := range []string{``, `null`, `[]`, `"x"`, `{`, `{} {}`, `{"ttl":3}`, `{"ttl":null}`} {
		if got, err := insertTTL([]byte(in), 5); err == nil {
			t.Errorf("%s: %s and no error", in, got)
		}
	}
}
