package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/cmd/internal/serve/servetest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/client"
)

// limit is the longest that a test waits.
const limit = time.Minute

// rig is a lapse of its own, and an HTTP client whose every answer is held against the
// description.
type rig struct {
	t        testing.TB
	base     string // of the URLs, with /v1
	nats     string
	redis    string
	password string // file with that of Redis; "" if it has none
	http     *http.Client
	stop     func() // ends lapse and waits
}

// start runs `lapse serve` in this process until the test ends.
func start(t testing.TB, set ...func(*serve.Options)) *rig {
	t.Helper()
	l := servetest.Start(t, set...)
	r := &rig{t: t, base: l.HTTP + "/v1", nats: l.NATS, redis: l.Redis, password: filepath.Join(l.Data, "redis-password"),
		http: &http.Client{Transport: checked{t, &http.Transport{}}}}
	r.stop = func() { r.http.CloseIdleConnections(); l.Stop() }
	t.Cleanup(r.stop)
	return r
}

// eventually waits until a condition is met.
func eventually(t testing.TB, what string, met func() bool) {
	t.Helper()
	if err := poll.Met(limit, what, met); err != nil {
		t.Fatal(err)
	}
}

// client is a Go client of the same lapse.
func (r *rig) client() *client.Client {
	r.t.Helper()
	c, err := client.Connect(client.Options{Server: r.nats, Timeout: limit})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// answer is an answer that was read to its end.
type answer struct {
	*http.Response
	body string
}

// do sends a request. Headers are pairs of a name and a value.
func (r *rig) do(method, path, body string, headers ...string) answer {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", map[string]string{"PATCH": "application/merge-patch+json"}[method])
		if req.Header.Get("Content-Type") == "" {
			req.Header.Set("Content-Type", "application/json")
		}
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp, string(text)}
}

// atOnce sends requests at the same time: method, path, body and headers of each. So those that
// wait for a time limit wait together.
func (r *rig) atOnce(requests ...[]string) []answer {
	answers := make([]answer, len(requests))
	var asking sync.WaitGroup
	for i, q := range requests {
		asking.Go(func() { answers[i] = r.do(q[0], q[1], q[2], q[3:]...) })
	}
	asking.Wait()
	return answers
}

// want fails the test unless the answer has this status, and each part in its body.
func (a answer) want(t testing.TB, status int, parts ...string) answer {
	t.Helper()
	if a.StatusCode != status {
		t.Fatalf("%s %s: %s, want %d\n%s", a.Request.Method, a.Request.URL, a.Status, status, a.body)
	}
	for _, part := range parts {
		if !strings.Contains(a.body, part) {
			t.Errorf("%s %s: want %q in\n%s", a.Request.Method, a.Request.URL, part, a.body)
		}
	}
	return a
}

func (a answer) header(t testing.TB, name, want string) {
	t.Helper()
	if got := a.Header.Get(name); got != want {
		t.Errorf("%s %s: %s: %q, want %q", a.Request.Method, a.Request.URL, name, got, want)
	}
}

// sse is one server-sent event.
type sse struct{ name, id, data string }

// stream is a connection that follows events.
type stream struct {
	t      testing.TB
	events chan sse
	cancel context.CancelFunc
	resp   *http.Response
}

// follow follows a stream until the test ends.
func (r *rig) follow(path string, headers ...string) *stream {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.base+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := r.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		text, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("%s: %s\n%s", path, resp.Status, text)
	}
	s := &stream{r.t, make(chan sse, 1000), cancel, resp}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer close(s.events)
		readEvents(resp.Body, func(e sse) {
			described(r.t, req, resp, []byte(e.data))
			s.events <- e
		})
	}()
	r.t.Cleanup(func() { cancel(); _ = resp.Body.Close(); <-ended })
	return s
}

// readEvents calls f with each event until the body ends.
func readEvents(body io.Reader, f func(sse)) {
	var e sse
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case lines.Text() == "":
			if e.data != "" {
				f(e)
			}
			e = sse{}
		case name == "event":
			e.name = value
		case name == "id":
			e.id = value
		case name == "data":
			if e.data != "" {
				e.data += "\n"
			}
			e.data += value
		}
	}
}

// next waits for the next event.
func (s *stream) next() sse {
	s.t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			s.t.Fatal("the stream has ended")
		}
		return e
	case <-time.After(limit):
		s.t.Fatal("no event came")
	}
	return sse{}
}
