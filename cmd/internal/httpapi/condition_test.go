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
		`*`: "*", ` * `: "*", `"17"`: "17", `"17" , "18"`: "17,18", `W/"17","18",`: "18;17", `,, "17"`: "17",
		`"a,b"`: "a,b", `""`: "",
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

// TestLastEventID: the id of an event is a number of a stream, of which none is over 2^62; without the header a stream of
// events begins with new ones.
func TestLastEventID(t *testing.T) {
	for text, want := range map[string]uint64{"0": 0, "17": 17, "4611686018427387904": 1 << 62} {
		if n, err := lastEventID(text); err != nil || n == nil || *n != want {
			t.Errorf("%s: %v, %v", text, n, err)
		}
	}
	if n, err := lastEventID(""); n != nil || err != nil {
		t.Errorf("without the header: %v, %v", n, err)
	}
	for _, text := range []string{"-1", "1.5", "x", "4611686018427387905", "18446744073709551616"} {
		if _, err := lastEventID(text); err == nil || !strings.Contains(err.Error(), "Last-Event-ID") {
			t.Errorf("%s: %v", text, err)
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
