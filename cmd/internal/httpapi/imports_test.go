package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const linesType = "application/x-ndjson"

// bulk is one line of the answer to an import.
type bulk struct {
	Line      int    `json:"line"`
	ID        string `json:"id"`
	Status    int    `json:"status"`
	Etag      string `json:"etag"`
	Ts        string `json:"ts"`
	ExpiresAt string `json:"expiresAt"`
	Error     string `json:"error"`
	Warning   string `json:"warning"`
	Duplicate bool   `json:"duplicate"`
	Seq       string `json:"seq"`
}

func outcomes(t testing.TB, body string) (all []bulk) {
	t.Helper()
	for line := range strings.SplitSeq(strings.TrimSpace(body), "\n") {
		var b bulk
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&b); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, b)
	}
	return all
}

// TestImport: outcomes come in the order of the lines, whatever each of them is.
func TestImport(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents"
	r.do("PUT", "/collections/orders", `{"defaultTtl":3600}`).want(t, 200)
	input := strings.Join([]string{
		"\xef\xbb\xbf" + `{"id":"1","n":1}`, "", `{"id":"1","n":2}` + "\r", `{"n":1}`, `{"id":5}`, `not json`, `[1]`,
		`{"ID":"x"}`, `{"id":""}`, `{"id":"2","ttl":0}`, `{"id":"` + strings.Repeat("x", 300) + `"}`, `  {"id":"a/b"}  `,
		`{"id":"3","x":"` + strings.Repeat("x", 2<<20) + `"}`, `{"id":"4"}`,
	}, "\n")
	var got []string
	for _, b := range outcomes(t, r.do("POST", path, input, "Content-Type", linesType).want(t, 200).body) {
		got = append(got, fmt.Sprintf("%d:%s:%d", b.Line, b.ID, b.Status))
	}
	want := []string{"1:1:201", "3:1:200", "4::400", "5::400", "6::400", "7::400", "8::400", "9::400", "10:2:400",
		"11::400", "12:a/b:201", "13::413", "14:4:201"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	r.do("GET", path+"/1", "").want(t, 200, `{"id":"1","n":2}`)
	if got := r.do("GET", path+"/a%2Fb", "").want(t, 200).body; got != `{"id":"a/b"}` {
		t.Errorf("got %s", got)
	}

	for _, c := range []struct {
		op   string
		want int
	}{{"create", 409}, {"replace", 200}, {"touch", 200}, {"patch", 200}, {"delete", 204}, {"replace", 404}} {
		body := r.do("POST", path+"?op="+c.op, `{"id":"1"}`, "Content-Type", linesType).want(t, 200).body
		if all := outcomes(t, body); len(all) != 1 || all[0].Status != c.want {
			t.Errorf("%s: %s, want %d", c.op, body, c.want)
		}
	}
	r.do("POST", path+"?op=x", `{}`, "Content-Type", linesType).want(t, 400, "upsert")
	if body := r.do("POST", path, "", "Content-Type", linesType).want(t, 200).body; body != "" {
		t.Errorf("nothing in, and out comes %q", body)
	}
}

// TestImportTwice: with a key, an import that is repeated has no further effect.
func TestImportTwice(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents"
	input := "{\"id\":\"1\"}\n{\"id\":\"2\"}\n"
	first := outcomes(t, r.do("POST", path, input, "Content-Type", linesType, "Idempotency-Key", "k").body)
	second := outcomes(t, r.do("POST", path, input, "Content-Type", linesType, "Idempotency-Key", "k").body)
	for i := range first {
		if s := second[i]; first[i].Status != 201 || !s.Duplicate || s.Status != 202 || s.Seq != first[i].Etag {
			t.Errorf("first %+v, then %+v", first[i], s)
		}
	}
}

// TestImportBothWays: an outcome comes while the client still sends.
func TestImportBothWays(t *testing.T) {
	r := start(t)
	body, in := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "POST", r.base+"/collections/orders/documents", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", linesType)
	plain := &http.Client{Transport: &http.Transport{}} // the other one reads answers to their end
	defer plain.CloseIdleConnections()
	answered := make(chan *http.Response, 1)
	go func() {
		resp, err := plain.Do(req)
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	}()
	var lines *bufio.Scanner
	for n := range 20 {
		if _, err := fmt.Fprintf(in, "{\"id\":\"%d\"}\n", n); err != nil {
			t.Fatal(err)
		}
		if lines == nil {
			resp := <-answered
			defer func() { _ = resp.Body.Close() }()
			lines = bufio.NewScanner(resp.Body)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), fmt.Sprintf(`"id":"%d","status":201`, n)) {
			t.Fatalf("line %d: %s: %v", n, lines.Text(), lines.Err())
		}
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if lines.Scan() {
		t.Errorf("further: %s", lines.Text())
	}
}

// TestImportOfAClientThatLeaves: it leaves nothing behind, and what it has sent counts.
func TestImportOfAClientThatLeaves(t *testing.T) {
	r := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	body, in := io.Pipe()
	req, err := http.NewRequestWithContext(ctx, "POST", r.base+"/collections/orders/documents", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", linesType)
	plain := &http.Client{Transport: &http.Transport{}}
	defer plain.CloseIdleConnections()
	go func() {
		if resp, err := plain.Do(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	for n := range 100 {
		_, _ = fmt.Fprintf(in, "{\"id\":\"%d\"}\n", n)
	}
	eventually(t, "the first lines are applied", func() bool {
		return r.do("GET", "/collections/orders/documents/0",
			"").StatusCode == 200
	})
	cancel()
	_ = in.CloseWithError(context.Canceled)
	eventually(t, "the import ends", func() bool {
		return strings.Contains(metrics(t, r),
			`lapse_http_streams{kind="imports"} 0`)
	})
}

// TestImportOfMany: more lines than fit, with a client that reads them late.
func TestImportOfMany(t *testing.T) {
	r := start(t)
	const many = 8_000
	var input strings.Builder
	for n := range many {
		fmt.Fprintf(&input, "{\"id\":\"%d\",\"n\":%d}\n", n, n)
	}
	begin := time.Now()
	all := outcomes(t, r.do("POST", "/collections/orders/documents", input.String(), "Content-Type", linesType).want(t,
		200).body)
	t.Logf("%.0f lines/s", many/time.Since(begin).Seconds())
	if len(all) != many {
		t.Fatalf("%d outcomes of %d", len(all), many)
	}
	for n, b := range all {
		if b.Line != n+1 || b.ID != fmt.Sprint(n) || b.Status != 201 {
			t.Fatalf("line %d: %+v", n+1, b)
		}
	}
	r.do("GET", "/collections/orders/count", "").want(t, 200, fmt.Sprintf(`"live":%d`, many))
}

func metrics(t testing.TB, r *rig) string {
	t.Helper()
	resp, err := r.http.Transport.(checked).next.RoundTrip(mustRequest(t, strings.TrimSuffix(r.base, "/v1")+"/metrics"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func mustRequest(t testing.TB, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
