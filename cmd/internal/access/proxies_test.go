package access

import (
	"crypto/tls"
	"net/http/httptest"
	"testing"
)

// TestProxies: only a proxy that was named may say that a client came over https.
func TestProxies(t *testing.T) {
	p, err := ParseProxies([]string{"127.0.0.1", "10.1.0.0/16", "fd00::/8"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, proto string
		want        bool
	}{
		{"127.0.0.1:5", "https", true}, {"127.0.0.1:5", "HTTPS", true}, {"10.1.2.3:5", "https", true},
		{"[fd00::1%eth0]:5", "https", true}, {"[::ffff:10.1.2.3]:5", "https", true},
		{"127.0.0.2:5", "https", false}, {"10.2.0.1:5", "https", false}, {"127.0.0.1:5", "http", false},
		{"127.0.0.1:5", "", false}, {"127.0.0.1:5", "https, http", false},
		{"127.0.0.1:5", "http,https", true}, {"@", "https", false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		r.RemoteAddr = c.from
		r.Header.Set("X-Forwarded-Proto", c.proto)
		if got := p.HTTPS(r); got != c.want {
			t.Errorf("%s %q: %t", c.from, c.proto, got)
		}
		if (Proxies)(nil).HTTPS(r) {
			t.Errorf("%s %q: nobody may say it", c.from, c.proto)
		}
		if r.TLS = (&tls.ConnectionState{}); !p.HTTPS(r) {
			t.Errorf("%s: it came over TLS", c.from)
		}
	}
	for _, text := range []string{"", "x", "10.1.2.3:80", "10.1.0.0/33"} {
		if _, err := ParseProxies([]string{text}); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
