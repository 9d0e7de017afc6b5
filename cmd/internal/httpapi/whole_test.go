package httpapi_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestARequestThatDidNotArriveWhole: it does nothing, whatever of it has arrived.
func TestARequestThatDidNotArriveWhole(t *testing.T) {
	r := start(t)
	const collection, document = "/collections/orders", "/collections/orders/documents/1"
	config := r.do("PUT", collection, `{"defaultTtl":3600}`).want(t, 200).Header.Get("Etag")
	etag := r.do("PUT", document, `{"n":1}`).want(t, 201).Header.Get("Etag")
	unharmed := func() {
		t.Helper()
		r.do("GET", collection, "").want(t, 200, `"defaultTtl":3600`).header(t, "Etag", config)
		r.do("GET", document, "").want(t, 200, `{"n":1}`).header(t, "Etag", etag)
		r.do("GET", collection+"/count", "").want(t, 200, `"live":1`)
	}
	for _, q := range []struct{ method, path, media, whole string }{
		{"PUT", collection, "application/json", `{}`},
		{"PATCH", collection, "application/merge-patch+json", `{"defaultTtl":1}`},
		{"DELETE", collection, "", ""},
		{"PUT", document, "application/json", `{}`},
		{"PATCH", document, "application/merge-patch+json", `{}`},
		{"DELETE", document, "", ""},
		{"POST", document + "/touch", "", ""},
		{"POST", collection + "/documents", linesType, `{"id":"1"}`},
	} {
		for _, rest := range []string{
			fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(q.whole)+5, q.whole),
			"Transfer-Encoding: chunked\r\n\r\n" + chunk(q.whole),            // the last chunk is missing
			"Transfer-Encoding: chunked\r\n\r\n" + chunk(q.whole) + "0",      // it breaks off in the last chunk
			"Transfer-Encoding: chunked\r\n\r\n" + chunk(q.whole) + "zz\r\n", // no size of a chunk
			"Transfer-Encoding: chunked\r\n\r\n" + chunk(q.whole) + "5\r\n",  // a chunk is missing
		} {
			head := q.method + " /v1" + q.path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n"
			if q.media != "" {
				head += "Content-Type: " + q.media + "\r\n"
			}
			status, text := r.cutOff(head + rest)
			// An import has begun its answer when its input breaks off.
			if status != http.StatusBadRequest && q.media != linesType || strings.Contains(text, `"status":200`) {
				t.Errorf("%s%s: %d %s", head, rest, status, text)
			}
			unharmed()
		}
	}
}

func chunk(body string) string {
	if body == "" {
		return ""
	}
	return fmt.Sprintf("%x\r\n%s\r\n", len(body), body)
}

// cutOff sends the beginning of a request and then the end of the connection, and returns the answer.
func (r *rig) cutOff(request string) (status int, body string) {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(r.base, "http://"), "/v1"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		r.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		r.t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		r.t.Fatalf("%q: %v", request, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatalf("%q: %v", request, err)
	}
	return resp.StatusCode, string(text)
}
