package httpapi

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/cmd/internal/httpapi/problem"
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
		var p *problem.Problem
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

func TestCheckHost(t *testing.T) {
	got := map[string]bool{}
	for _, host := range []string{"localhost", "LOCALHOST:1", "127.0.0.1:7070", "127.9.9.9", "[::1]:1", "[::1]", "::1", "", "example.com", "127.0.0.1.example.com:1", "10.0.0.1:7070", "localhost.example.com"} {
		got[host] = checkHost(host) == nil
	}
	want := map[string]bool{
		"localhost": true, "LOCALHOST:1": true, "127.0.0.1:7070": true, "127.9.9.9": true, "[::1]:1": true, "[::1]": true, "::1": true,
		"": false, "example.com": false, "127.0.0.1.example.com:1": false, "10.0.0.1:7070": false, "localhost.example.com": false,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
