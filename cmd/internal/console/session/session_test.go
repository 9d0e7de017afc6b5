package session

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestCookie: under TLS the cookie goes over TLS alone, and each port has its own.
func TestCookie(t *testing.T) {
	const token = "a;\"b,\\ c"
	for _, c := range []struct {
		host, name string
		tls        *tls.ConnectionState
	}{{"127.0.0.1:7070", "lapse-token7070", nil}, {"lapse.example.com", "lapse-token", &tls.ConnectionState{}}, {"[::1]:8443", "lapse-token8443", &tls.ConnectionState{}}, {"x:y;z", "lapse-token", nil}} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.Host, r.TLS = c.host, c.tls
		got := Cookie(r, token)
		if got.Name != c.name || got.Secure != (c.tls != nil) || !got.HttpOnly || got.SameSite != http.SameSiteStrictMode || got.Path != "/" || got.Valid() != nil {
			t.Errorf("%s: %s, %v", c.host, got, got.Valid())
		}
		if Token(r) != "" {
			t.Errorf("%s: a token without a cookie", c.host)
		}
		r.AddCookie(got)
		if Token(r) != token {
			t.Errorf("%s: the token is %q", c.host, Token(r))
		}
		if gone := Gone(r); gone.MaxAge >= 0 || gone.Name != c.name || gone.Value != "" {
			t.Errorf("%s: %s", c.host, gone)
		}
		r.Header.Set("Cookie", c.name+"=!")
		if Token(r) != "" {
			t.Errorf("%s: a token from nonsense", c.host)
		}
	}
}
