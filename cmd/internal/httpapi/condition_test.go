package httpapi

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/access"
)

func TestParseCondition(t *testing.T) {
	for value, want := range map[string]string{
		`*`: "*", ` * `: "*", `"17"`: "17", `"17" , "18"`: "17,18", `W/"17","18",`: "18;17", `"a,b"`: "a,b", `""`: "",
	} {
		c, err := parseCondition(http.Header{"If-Match": {value}}, "If-Match")
		got := strings.Join(c.strong, ",")
		if c.weak != nil {
			got += ";" + strings.Join(c.weak, ",")
		}
		if c.any {
			got = "*"
		}
		if err != nil || got != want || !c.set {
			t.Errorf("%s: %q, %v; want %q", value, got, err, want)
		}
	}
	for _, value := range []string{"", " ", ",", "17", `"17`, `w/"17"`, `"17" "18"`, `"17"x`, `*,"17"`, `"17",*`} {
		if c, err := parseCondition(http.Header{"If-Match": {value}}, "If-Match"); err == nil {
			t.Errorf("%q: no error, but %+v", value, c)
		}
	}
}

// FuzzParseCondition: a condition is read, or refused with a 400; and what was read is in it.
func FuzzParseCondition(f *testing.F) {
	for _, seed := range []string{"*", `"17"`, `W/"17", "18"`, `"`, ",,", `"a" x`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		c, err := parseCondition(http.Header{"If-Match": {value}}, "If-Match")
		var p *access.Problem
		if err != nil {
			if !errors.As(err, &p) || p.Status != http.StatusBadRequest {
				t.Fatalf("%q: %v", value, err)
			}
			return
		}
		for _, tag := range append(c.strong, c.weak...) {
			if !strings.Contains(value, `"`+tag+`"`) {
				t.Errorf("%q: tag %q", value, tag)
			}
		}
		if one, err := c.ifMatch(); err == nil && one != "*" && !strings.Contains(value, one) {
			t.Errorf("%q: %q", value, one)
		}
	})
}
