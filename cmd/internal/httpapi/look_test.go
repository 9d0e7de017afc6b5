package httpapi_test

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestOnlyLooks: a HEAD, and a GET that a page of another site has sent, renew no clock.
func TestOnlyLooks(t *testing.T) {
	r := start(t)
	r.do("PUT", "/collections/sessions", `{"defaultTtl":20,"slideOnRead":true}`).want(t, 200)
	const seen, used = "/collections/sessions/documents/seen", "/collections/sessions/documents/used"
	r.do("PUT", seen, `{"user":"ada"}`).want(t, 201)
	r.do("PUT", used, `{"user":"bob"}`).want(t, 201)
	slides := func() string { return r.series()[`lapse_slides_total{via="http"}`] }
	eventually(t, "a read renews the clock", func() bool {
		r.do("GET", used, "").want(t, 200)
		return slides() != "0"
	})
	before := slides()
	r.do("HEAD", seen, "").want(t, 200)
	r.do("GET", seen, "", "Sec-Fetch-Site", "cross-site").want(t, 200, "ada")
	r.do("GET", seen, "", "Sec-Fetch-Site", "same-site").want(t, 200, "ada")
	r.do("GET", "/collections/sessions/documents/none", "", "Sec-Fetch-Site", "cross-site").want(t, 404)
	if after := slides(); after != before {
		t.Errorf("requests that only look have renewed clocks: %s slides, then %s", before, after)
	}
	r.do("GET", seen, "").want(t, 200)
	if after := slides(); after == before {
		t.Error("a read has renewed no clock")
	}
}

// TestHalfClosed: a client that closes its half of the connection once it has sent its request gets its answer.
func TestHalfClosed(t *testing.T) {
	r := start(t)
	for _, q := range []struct {
		request string
		want    int
	}{
		{"PUT /v1/collections/orders/documents/1 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: " +
			"application/json\r\nContent-Length: 2\r\n\r\n{}", http.StatusCreated},
		{"GET /v1/collections/orders/documents/1 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", http.StatusOK},
		{"GET /v1/collections/orders/count HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", http.StatusOK},
	} {
		c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(r.base, "http://"), "/v1"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprint(c, q.request)
		_ = c.(*net.TCPConn).CloseWrite()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		_ = c.Close()
		if resp.StatusCode != q.want {
			t.Errorf("%s: %s", strings.SplitN(q.request, "\r\n", 2)[0], resp.Status)
		}
	}
}
