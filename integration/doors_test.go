package integration

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
)

const (
	hostile  = "hostile-0123456789abcdef"
	innocent = "innocent-0123456789abcdef"
)

// door is the HTTP server of a lapse with a client that means harm and one that does not.
type door struct {
	t     *testing.T
	lapse *harness.Lapse
}

func openDoor(t *testing.T) *door {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(hostile+" read-write\n"+innocent+" read-write\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &door{t, harness.EmbeddedLapse(t, "--http-token-file", tokens)}
}

// knock sends the beginning of a request on a connection of its own, which is open until the test
// ends, and takes little of the answer.
func (d *door) knock(request string) net.Conn {
	d.t.Helper()
	small := net.Dialer{Timeout: harness.Limit, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		return errors.Join(c.Control(func(fd uintptr) {
			err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10)
		}), err)
	}}
	conn, err := small.DialContext(d.t.Context(), "tcp", d.lapse.HTTP)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(harness.Limit))
	if _, err := io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")); err != nil {
		d.t.Fatal(err)
	}
	return conn
}

// status reads the status of the answer, and leaves the rest.
func (d *door) status(conn net.Conn) string {
	d.t.Helper()
	line := make([]byte, len("HTTP/1.1 200"))
	if _, err := io.ReadFull(conn, line); err != nil {
		d.t.Error(err)
	}
	return string(line[len(line)-3:])
}

// works sends requests of the innocent client, and fails the test unless each is answered as usual.
func (d *door) works(collection string) {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), harness.Limit)
	defer cancel()
	for _, c := range []struct{ method, path, body, media string }{
		{"PUT", "/documents/innocent", `{"a":1}`, "application/json"}, {"GET", "/documents/innocent", "", ""},
		{"GET", "/documents?limit=2", "", ""},
		{"POST", "/documents", "{\"id\":\"2\"}\n", "application/x-ndjson"}, {"DELETE", "/documents/innocent", "", ""},
	} {
		if status, body := d.send(ctx, innocent, c.method, "/v1/collections/"+collection+c.path, c.body,
			c.media); status >= 300 {
			d.t.Errorf("%s %s: %d\n%.300s", c.method, c.path, status, body)
		}
	}
}

func (d *door) send(ctx context.Context, token, method, path, body, media string) (int, string) {
	d.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+d.lapse.HTTP+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// grown fails the test if the peak of the process's memory is too far above what it was before.
func (d *door) grown(before int64, most int) {
	d.t.Helper()
	now, peak := d.lapse.Resident()>>20, d.lapse.Peak()>>20
	d.t.Logf("the process had %d MiB, %d at the peak, and has %d", before, peak, now)
	if int(peak-before) > most {
		d.t.Errorf("the process has grown by %d MiB, and %d are allowed", peak-before, most)
	}
}

func (d *door) before() int64 { return d.lapse.Peak() >> 20 }

// TestSignInsCostNothing: a client without a token cannot fill the memory with forms.
func TestSignInsCostNothing(t *testing.T) {
	const connections, size = 300, 3_100_000
	d := openDoor(t)
	before := d.before()
	form := strings.Repeat("x", size-1) // and a last byte that never comes
	var sending sync.WaitGroup
	for range connections {
		conn := d.knock(fmt.Sprintf("POST /console/sign-in HTTP/1.1\nHost: %s\nContent-Type: "+
			"application/x-www-form-urlencoded\nContent-Length: %d\n\n", d.lapse.HTTP, size))
		sending.Go(func() {
			_, _ = io.WriteString(conn, form) // it fails when lapse closes the connection
		})
	}
	sending.Wait()
	d.works("orders")
	d.grown(before, 300)
}

// TestStalledImports: one token cannot take the place of all imports.
func TestStalledImports(t *testing.T) {
	d := openDoor(t)
	accepted := 0
	for range 16 {
		conn := d.knock("POST /v1/collections/orders/documents HTTP/1.1\nHost: x\nAuthorization: Bearer " + hostile +
			"\nContent-Type: application/x-ndjson\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n")
		if d.status(conn) == "100" {
			accepted++
		}
	}
	if accepted == 0 {
		t.Error("no import was accepted")
	}
	t.Logf("%d imports have stalled", accepted)
	d.works("orders")
}

// TestUnfinishedDeletes: a request whose body does not come takes nobody's place.
func TestUnfinishedDeletes(t *testing.T) {
	d := openDoor(t)
	answers := map[string]int{}
	for range 1_100 {
		conn := d.knock("DELETE /v1/collections/orders/documents/1 HTTP/1.1\nHost: x\nAuthorization: Bearer " +
			hostile + "\nTransfer-Encoding: chunked\nExpect: 100-continue\n\n")
		answers[d.status(conn)]++
	}
	t.Logf("answers: %v", answers)
	d.works("orders")
}

// TestUnreadPages: answers that nobody takes fill neither the memory nor the place of others.
func TestUnreadPages(t *testing.T) {
	t.Parallel()
	d := openDoor(t)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
	defer cancel()
	for i := range 4 {
		status, body := d.send(ctx, innocent, "PUT", fmt.Sprintf("/v1/collections/large/documents/%d", i), `{"x":"`+
			strings.Repeat("x", 1_000_000)+`"}`, "application/json")
		if status != 201 {
			t.Fatalf("%d %s", status, body)
		}
	}
	before, answers := d.before(), map[string]int{}
	var mu sync.Mutex
	harness.Until(t, harness.Limit, "a page is sent", func(context.Context) error {
		var waiting sync.WaitGroup
		for range 300 { // at once, so that those that get no place wait together
			conn := d.knock("GET /v1/collections/large/documents HTTP/1.1\nHost: x\nAuthorization: Bearer " + hostile +
				"\n\n")
			waiting.Go(func() {
				status := d.status(conn)
				mu.Lock()
				defer mu.Unlock()
				answers[status]++
			})
		}
		waiting.Wait()
		t.Logf("answers: %v", answers)
		if answers["200"] == 0 { // on a busy machine Redis may answer none of them in time
			return fmt.Errorf("the answers are %v", answers)
		}
		return nil
	})
	d.works("large")
	d.grown(before, 700)
}

// TestDeepPage: the console does not make a page of 200 MB of a document of 200 KB.
func TestDeepPage(t *testing.T) {
	const depth = 990
	d := openDoor(t)
	ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
	defer cancel()
	body := `{"a":` + strings.Repeat("[", depth) + strings.Repeat("1,", 100_000) + "1" + strings.Repeat("]", depth) +
		"}"
	if status, text := d.send(ctx, innocent, "PUT", "/v1/collections/deep/documents/1", body,
		"application/json"); status != 201 {
		t.Fatalf("%d %s", status, text)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.lapse.HTTP+
		"/console/collections/deep/documents/1", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(d.lapse.HTTP, ":")
	req.AddCookie(&http.Cookie{Name: "lapse-token" + port,
		Value: base64.RawURLEncoding.EncodeToString([]byte(innocent))})
	before := d.before()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	size, err := io.Copy(io.Discard, resp.Body)
	if err != nil || resp.StatusCode != 200 || size < int64(len(body)) || size > 1<<20 {
		t.Errorf("%s, a page of %d bytes: %v", resp.Status, size, err)
	}
	d.grown(before, 100)
}
