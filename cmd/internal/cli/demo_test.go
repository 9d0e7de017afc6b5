package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/integration/harness"
)

// TestMain finds goroutines that a test has left behind.
func TestMain(m *testing.M) { harness.Main(m) }

// TestFreeAddress: an address is used if nobody else listens there.
func TestFreeAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	if got := freeAddress(at); got != "127.0.0.1:0" {
		t.Errorf("%s is taken, but freeAddress returns %s", at, got)
	}
	_ = l.Close()
	if got := freeAddress(at); got != at {
		t.Errorf("%s is free, but freeAddress returns %s", at, got)
	}
}

// said is what a demo has printed.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// runDemo runs a demo until the test ends, and returns the address of its console.
func runDemo(t *testing.T) string {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var out, errs said
	ended := make(chan error, 1)
	go func() {
		command := demoCommand{Listen: "127.0.0.1:0", Rate: 100}
		ended <- command.Run(ctx, output.Streams{Out: &out, Err: &errs})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the demo: %v", err)
		}
		if text := errs.String(); text != "" {
			t.Errorf("the demo logs:\n%s", text)
		}
	})
	var base string
	harness.Until(t, harness.Limit, "the demo prints its first line of figures", func(context.Context) error {
		text := out.String()
		if !strings.Contains(text, " written, ") {
			return errors.New(text)
		}
		base = regexp.MustCompile(`http://[^/ ]+`).FindString(text)
		return nil
	})
	return base
}

// fetchPage sends a GET, and returns the body. The answer must be 200, or 404 for a document that has
// expired since its link was written.
func fetchPage(t *testing.T, address string) (page string) {
	t.Helper()
	resp, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	expired := resp.StatusCode == http.StatusNotFound && strings.Contains(address, "/documents/")
	if err != nil || resp.StatusCode != http.StatusOK && !expired {
		t.Errorf("%s: %s, %v:\n%.2000s", address, resp.Status, err, body)
	}
	return string(body)
}

// firstOf waits for the first message of an event stream.
func firstOf(t *testing.T, address string) (data string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	t.Fatalf("%s: %s, and no message: %v", address, resp.Status, lines.Err())
	return ""
}

// link is a link in a page.
var link = regexp.MustCompile(`(?:href|src|data-stream)="([^"#]+)`)

// TestDemo follows every link of the console of a demo, a few of each kind, and the API's
// description and streams: all of them work, and what expires shows there.
func TestDemo(t *testing.T) {
	base := runDemo(t)
	defer http.DefaultClient.CloseIdleConnections()
	fetchPage(t, base+"/readyz")
	fetchPage(t, base+"/openapi.json")
	if text := fetchPage(t, base+"/v1/collections"); !strings.Contains(text, `"readings"`) {
		t.Errorf("the API lists %s", text)
	}
	if data := firstOf(t, base+"/v1/events?since=1h"); !strings.Contains(data, `"expiredAt"`) {
		t.Errorf("an event is %s", data)
	}
	if data := firstOf(t, base+"/v1/rejections?since=1h"); !strings.Contains(data, "0.5") {
		t.Errorf("a rejection is %s", data)
	}

	const most = 5 // pages that differ in an id or a query
	todo, found, kinds := []string{"/"}, map[string]bool{"/": true}, map[string]int{}
	id := regexp.MustCompile(`(/documents|/messages)/[^/]+$`)
	for len(todo) > 0 {
		at := todo[0]
		todo = todo[1:]
		if strings.HasPrefix(at, "/console/live/stream") {
			if !strings.Contains(at, "collection=") { // those may wait long
				firstOf(t, base+at)
			}
			continue
		}
		for _, m := range link.FindAllStringSubmatch(fetchPage(t, base+at), -1) {
			to, err := url.Parse(html.UnescapeString(m[1]))
			if err != nil || to.Host != "" {
				t.Errorf("%s has the link %q", at, m[1])
				continue
			}
			to = (&url.URL{Path: at}).ResolveReference(to)
			kind := id.ReplaceAllString(to.Path, "$1/*")
			if key := to.RequestURI(); !found[key] && kinds[kind] < most {
				found[key] = true
				kinds[kind]++
				todo = append(todo, key)
			}
		}
	}
	for _, want := range []string{
		"/", "/console/live", "/console/live/stream", "/console/live/messages/*", "/console/system",
		"/console/collections/readings",
		"/console/collections/readings/configure", "/console/collections/readings/new",
		"/console/collections/readings/documents/*",
	} {
		if want != "/" && kinds[want] == 0 {
			t.Errorf("no link leads to %s: %s", want, fmt.Sprint(kinds))
		}
	}
}
