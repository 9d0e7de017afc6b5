package console

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCookie: under https the cookie goes over https alone, and each port has its own.
func TestCookie(t *testing.T) {
	const token = "a;\"b,\\ c"
	for _, c := range []struct {
		host, name string
		https      bool
	}{{"127.0.0.1:7070", "lapse-token7070", false}, {"lapse.example.com", "lapse-token", true},
		{"[::1]:8443", "lapse-token8443", true}, {"x:y;z", "lapse-token", false}} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Host = c.host
		got := sessionCookie(r, token, c.https)
		if got.Name != c.name || got.Secure != c.https || !got.HttpOnly || got.SameSite != http.SameSiteStrictMode ||
			got.Path != "/" || got.Valid() != nil {
			t.Errorf("%s: %s, %v", c.host, got, got.Valid())
		}
		if sessionToken(r) != "" {
			t.Errorf("%s: a token without a cookie", c.host)
		}
		r.AddCookie(got)
		if sessionToken(r) != token {
			t.Errorf("%s: the token is %q", c.host, sessionToken(r))
		}
		if gone := sessionCookie(r, "", c.https); gone.MaxAge >= 0 || gone.Secure != c.https || gone.Name != c.name ||
			gone.Value != "" {
			t.Errorf("%s: %s", c.host, gone)
		}
		r.Header.Set("Cookie", c.name+"=!")
		if sessionToken(r) != "" {
			t.Errorf("%s: a token from nonsense", c.host)
		}
	}
}
