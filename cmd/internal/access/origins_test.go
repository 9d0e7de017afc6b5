package access

import (
	"strings"
	"testing"
)

// TestParseOrigins: an origin is as browsers send it, and every origin needs tokens.
func TestParseOrigins(t *testing.T) {
	for _, ok := range []string{"https://app.example.com", "http://localhost:3000", "http://127.0.0.1",
		"https://[::1]:8443", "capacitor://localhost"} {
		if o, err := ParseOrigins([]string{ok}, false); err != nil || !o.has(ok) || o.has("") || o.has("null") ||
			o.has(ok+"0") {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "null", "app.example.com", "https://", "https://app.example.com/",
		"https://App.example.com", "HTTPS://app.example.com", "https://app.example.com:443", "http://app.example.com:80",
		"https://u@app.example.com", "https://app.example.com?x", "https://*.example.com",
		"https://app.example.com https://b.example.com"} {
		if o, err := ParseOrigins([]string{bad}, true); err == nil || !strings.Contains(err.Error(), "such as https://") {
			t.Errorf("%q: %+v, %v", bad, o, err)
		}
	}
	if _, err := ParseOrigins([]string{"https://a.example", "*"}, false); err == nil ||
		!strings.Contains(err.Error(), "--http-token-file") {
		t.Errorf("every origin without tokens: %v", err)
	}
	if o, err := ParseOrigins([]string{"*"}, true); err != nil || !o.has("https://a.example") {
		t.Errorf("every origin with tokens: %v", err)
	}
	if (Origins{}).has("") || (Origins{}).has("null") {
		t.Error("without the flag there is an origin")
	}
}
