package httpapi_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/cmd/internal/access"
	"github.com/seed18712806/lapse/cmd/internal/httpapi"
	"github.com/seed18712806/lapse/cmd/internal/live"
	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// newAPI makes another API beside that of a rig, on the same servers. The timeout is that of
// its writes.
func newAPI(t testing.TB, r *rig, limits httpapi.Limits, timeout time.Duration,
	set ...func(*httpapi.Options)) http.Handler {
	t.Helper()
	var login func(context.Context) (string, string, error)
	if r.password != "" {
		login = credentials.Redis{PasswordFile: r.password}.Login
	}
	store := redis.NewClient(&redis.Options{Addr: strings.TrimPrefix(r.redis, "redis://"),
		CredentialsProviderContext: login, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = store.Close() })
	reader, err := sink.NewReader(store, sink.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	writer, err := client.Connect(client.Options{Server: r.nats, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(writer.Close)
	events := live.New(writer)
	t.Cleanup(events.Close)
	opts := httpapi.Options{Prefix: wire.DefaultPrefix, Client: writer, Reader: reader, GetMany: reader.GetMany, Events: events, Logger: log, Limits: limits}
	for _, f := range set {
		f(&opts)
	}
	api, err := httpapi.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	server := access.NewRouter()
	api.Register(server)
	return server
}

// TestLimits: what is over a limit is answered at once, with the name of the limit.
func TestLimits(t *testing.T) {
	r := start(t)
	srv := httptest.NewServer(newAPI(t, r, httpapi.Limits{Bytes: 64 << 10, Imports: 1, Streams: 1}, 0))
	defer srv.Close()
	defer srv.CloseClientConnections()
	here := &rig{t: t, base: srv.URL + "/v1", nats: r.nats, http: r.http}
	full := func(a answer, limit string) {
		t.Helper()
		a.want(t, 503, `"code":"too-many-`+limit+`"`, limit).header(t, "Retry-After", "1")
	}

	stream := here.follow("/events")
	full(here.do("GET", "/rejections", ""), "streams")
	here.do("GET", "/collections", "").want(t, 200)
	stream.cancel()
	eventually(t, "there is room again", func() bool { return here.do("HEAD", "/events", "").StatusCode == 200 })

	for path, limit := range map[string]string{"/collections/orders/documents": "imports",
		"/collections/orders/documents/1": "bytes"} {
		ctx, cancel := context.WithCancel(t.Context())
		method, media := "PUT", "application/json"
		if limit == "imports" {
			method, media = "POST", linesType
		}
		ended := make(chan struct{})
		go func() { // a request whose body does not end; again if another one had the place
			defer close(ended)
			plain := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for ctx.Err() == nil {
				body, in := io.Pipe()
				context.AfterFunc(ctx, func() { _ = in.CloseWithError(context.Canceled) }) // Do waits for the body
				req, err := http.NewRequestWithContext(ctx, method, here.base+path, body)
				if err != nil {
					t.Error(err)
					return
				}
				req.Header.Set("Content-Type", media)
				resp, err := plain.Do(req)
				_ = in.CloseWithError(context.Canceled) // after an early answer the client reads on
				if err == nil {
					_ = resp.Body.Close()
				}
			}
		}()
		eventually(t, "the limit is reached", func() bool {
			return here.do(method, path, "{}", "Content-Type",
				media).StatusCode == 503
		})
		full(here.do(method, path, "{}", "Content-Type", media), limit)
		here.do("DELETE", "/collections/orders/documents/x", "").want(t, 404) // it has no body to wait for
		cancel()
		<-ended
		eventually(t, "there is room again", func() bool {
			return here.do(method, path, "{", "Content-Type",
				media).StatusCode != 503
		})
	}
}

// TestServersAway: without its servers lapse answers 503, and tells when to try again.
func TestServersAway(t *testing.T) {
	r := start(t)
	srv := httptest.NewServer(newAPI(t, r, httpapi.Limits{}, 0))
	defer srv.Close()
	here := &rig{t: t, base: srv.URL + "/v1", nats: r.nats, http: &http.Client{Transport: checked{t, &http.Transport{}}}}
	defer here.http.CloseIdleConnections()
	here.do("PUT", "/collections/orders/documents/1", `{}`).want(t, 201)
	r.stop()
	// The outcome of a write that is sent before the client knows of the lost connection is unknown.
	harness.Until(t, harness.Limit, "the client knows that the connection is lost", func(context.Context) error {
		if a := here.do("PUT", "/collections/orders/documents/1", `{}`); a.StatusCode == http.StatusGatewayTimeout {
			return errors.New(a.body)
		}
		return nil
	})
	for _, a := range here.atOnce(
		[]string{"GET", "/collections/orders/documents/1", ""}, []string{"GET", "/collections", ""},
		[]string{"GET", "/events", ""},
		[]string{"GET", "/events?since=1h", ""}, []string{"PUT", "/collections/orders/documents/1", "{}"},
		[]string{"DELETE", "/collections/orders", ""},
		[]string{"PUT", "/collections/orders/documents/1", "{}", "Prefer", "respond-async"},
	) {
		a.want(t, 503, `"code":"unavailable"`).header(t, "Retry-After", "1")
	}
	here.do("POST", "/collections/orders/documents", "{\"id\":\"1\"}\n", "Content-Type", linesType)
}

// TestUnknownOutcome: a write that lapse does not apply in time is a 504, with its place in the
// log if that is known.
func TestUnknownOutcome(t *testing.T) {
	const path, within = "/collections/orders/documents/1", 5 * time.Second
	server, store := harness.StartNATS(t, harness.NATSOptions{}), harness.StartRedis(t, harness.RedisOptions{})
	r := start(t, func(o *serve.Options) { o.NATS, o.Redis.URL = server.URL(), store.URL() })
	r.nats, r.redis, r.password = server.URL(), store.URL(), ""
	srv := httptest.NewServer(newAPI(t, r, httpapi.Limits{}, within))
	defer srv.Close()
	here := &rig{t: t, base: srv.URL + "/v1", nats: r.nats, http: &http.Client{Transport: checked{t, &http.Transport{}}}}
	defer here.http.CloseIdleConnections()
	here.do("PUT", path, `{}`).want(t, 201)
	r.stop() // the log goes on, and nobody applies it
	const unknown = `"code":"outcome-unknown"`
	answers := here.atOnce(
		[]string{"PUT", path, `{"n":1}`, "Idempotency-Key", "k"}, []string{"PUT", path, "{}"}, []string{"PATCH", path, "{}"},
		[]string{"DELETE", path, ""}, []string{"POST", path + "/touch", ""}, []string{"PUT", "/collections/orders", "{}"},
		[]string{"POST", "/collections/orders/documents", "{\"id\":\"1\"}\n{\"id\":\"2\"}\n", "Content-Type", linesType},
	)
	writes, lines := answers[:len(answers)-1], outcomes(t, answers[len(answers)-1].body)
	for _, a := range writes {
		a.want(t, 504, unknown, `"seq":"`)
	}
	if len(lines) < 2 || lines[0].Status != 504 || lines[1].Status != 504 {
		t.Errorf("the import: %+v", lines)
	}
	again := here.do("PUT", path, `{"n":1}`, "Idempotency-Key", "k").want(t, 202, `"duplicate":true`)
	_, seq, _ := strings.Cut(writes[0].body, `"seq":`)
	again.want(t, 202, strings.TrimRight(seq, "}\n"))
	here.do("PUT", path, `{}`, "Prefer", "respond-async").want(t, 202)

	server.Stop() // what is sent now comes later
	defer server.Continue()
	for _, a := range here.atOnce([]string{"PUT", path, "{}"}, []string{"PUT", path, "{}", "Prefer", "respond-async"}) {
		if a.want(t, 504, unknown, "Idempotency-Key"); strings.Contains(a.body, `"seq"`) {
			t.Errorf("nobody can know a seq: %s", a.body)
		}
	}
}
