package cli

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
)

// TestHealthOfAServerOnAllAddresses: in a container lapse listens on all addresses, and the
// same value of LAPSE_HTTP_LISTEN leads the health check to it.
func TestHealthOfAServerOnAllAddresses(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+"\n")
	}))
	defer srv.Close()
	_, port, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{":" + port, "0.0.0.0:" + port, "127.0.0.1:" + port} {
		var out bytes.Buffer
		c := Health{HTTP: address, Timeout: Period(10 * time.Second)}
		if err := c.Run(t.Context(), output.Streams{Out: &out}); err != nil || out.String() != "/readyz\n" {
			t.Errorf("%s: %q, %v", address, out.String(), err)
		}
	}
}
