package httpapi_test

import (
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/httpapi"
	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

const keyUsed = `"code":"key-used"`

// TestIdempotency: a write that is repeated with its key takes effect once. Another request with
// the key is refused, and does nothing.
func TestIdempotency(t *testing.T) {
	r := start(t)
	const path = "/collections/orders/documents/1"
	first := r.do("PUT", path, `{"n":1}`, "Idempotency-Key", `"k1"`).want(t, 201)
	again := r.do("PUT", path, `{"n":1}`, "Idempotency-Key", "k1").want(t, 200)
	again.header(t, "Etag", first.Header.Get("Etag"))
	etag := r.do("PUT", path, `{"n":2}`).want(t, 200).Header.Get("Etag")
	r.do("PUT", path, `{"n":1}`, "Idempotency-Key", "k1").want(t, 202, `"duplicate":true`,
		`"seq":`+first.Header.Get("Etag"))
	for _, other := range [][]string{{`{"n":3}`}, {`{"n":1}`, "If-Match", etag}, {`{"n":1}`, "If-None-Match", "*"},
		{`{"n":3}`, "Prefer", "respond-async"}} {
		headers := append([]string{"Idempotency-Key", "k1"}, other[1:]...)
		r.do("PUT", path, other[0], headers...).want(t, 422, keyUsed, "another request", `"seq":`+first.Header.Get("Etag"))
	}
	r.do("GET", path, "").want(t, 200, `{"n":2}`).header(t, "Etag", etag)

	// Each header that a write has belongs to it.
	r.do("PUT", "/collections/sessions", `{"defaultTtl":-1}`).want(t, 200)
	for _, header := range [][]string{
		{wire.HeaderClock, "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z"},
		{wire.HeaderExpiresAt, "2060-01-01T00:00:00Z", "2060-01-01T00:00:01Z"},
		{wire.HeaderNotAfter, "2060-01-01T00:00:00Z", "2060-01-01T00:00:01Z"},
		{wire.HeaderTarget, "billing", "shipping"},
	} {
		path, name := "/collections/sessions/documents/"+header[0], header[0]
		body, key := `{"ttl":600000000}`, []string{"Idempotency-Key", "k2"}
		if name == wire.HeaderExpiresAt {
			body = `{}`
		}
		r.do("PUT", path, body, append(key, name, header[1])...).want(t, 201)
		r.do("PUT", path, body, append(key, name, header[2])...).want(t, 422, keyUsed)
		r.do("PUT", path, body, key...).want(t, 422, keyUsed)
	}

	// Each method and each path has keys of its own.
	r.do("PUT", "/collections/orders/documents/2", `{"n":1}`, "Idempotency-Key", "k1").want(t, 201)
	r.do("PUT", "/collections/invoices/documents/1", `{"n":1}`, "Idempotency-Key", "k1").want(t, 201)
	r.do("PATCH", path, `{"n":4}`, "Idempotency-Key", "k1").want(t, 200)
	r.do("POST", path+"/touch", "", "Idempotency-Key", "k1").want(t, 200)
	r.do("GET", path, "").want(t, 200, `{"n":4}`)
	r.do("DELETE", path, "", "Idempotency-Key", "k1").want(t, 204)
	r.do("DELETE", path, "", "Idempotency-Key", "k1").want(t, 202, `"duplicate":true`)
	r.do("DELETE", path, "", "Idempotency-Key", "k1", "If-Match", "*").want(t, 422, keyUsed)

	// The message of a PATCH of a configuration has more than the client has sent.
	const collection = "/collections/orders"
	r.do("PATCH", collection, `{"defaultTtl":60}`, "Idempotency-Key", "k1").want(t, 200)
	r.do("PUT", collection, `{"indexingMode":"lazy"}`, "Idempotency-Key", "k1").want(t, 200)
	r.do("PATCH", collection, `{"defaultTtl":60}`, "Idempotency-Key", "k1").want(t, 202, `"duplicate":true`)
	r.do("PATCH", collection, `{"defaultTtl":61}`, "Idempotency-Key", "k1").want(t, 422, keyUsed)
	r.do("PUT", collection, `{}`, "Idempotency-Key", "k1").want(t, 422, keyUsed)
	r.do("GET", collection, "").want(t, 200, `"defaultTtl":null`, `"indexingMode":"lazy"`)

	for _, key := range []string{"", `""`, "a b", strings.Repeat("x", 300)} {
		r.do("PUT", path, `{}`, "Idempotency-Key", key).want(t, 400, "Idempotency-Key")
	}
}

// TestKeysOfTokens: the key of one token swallows no write of another.
func TestKeysOfTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write(t, file, all+" read-write\n"+orders+" read-write orders\n")
	r := start(t, func(o *serve.Options) { o.HTTP.TokenFile = file })
	with := func(token string) []string {
		return []string{"Authorization", "Bearer " + token, "Idempotency-Key", "invoice-1001"}
	}
	const path = "/collections/orders/documents/1"
	r.do("PUT", path, `{"by":"clerk"}`, with(orders)...).want(t, 201)
	r.do("PUT", "/collections/invoices/documents/1001", `{"by":"admin"}`, with(all)...).want(t, 201)
	r.do("GET", "/collections/invoices/documents/1001", "", with(all)...).want(t, 200, `{"by":"admin"}`)
	r.do("PUT", path, `{"by":"admin"}`, with(all)...).want(t, 200, `"status":200`)
	r.do("GET", path, "", with(all)...).want(t, 200, `{"by":"admin"}`)
	r.do("PUT", path, `{"by":"other"}`, with(all)...).want(t, 422, keyUsed)
}

// TestKeysOfImports: each line of an import has an id of its own, and a line that has changed is
// refused.
func TestKeysOfImports(t *testing.T) {
	r := start(t)
	send := func(path string, lines ...string) (statuses []int) {
		t.Helper()
		got := r.do("POST", "/collections/orders/documents"+path, strings.Join(lines, "\n"), "Content-Type", linesType,
			"Idempotency-Key", "k").want(t, 200)
		for i, o := range outcomes(t, got.body) {
			if o.Line != i+1 {
				t.Errorf("the outcomes are %s", got.body)
			}
			statuses = append(statuses, o.Status)
		}
		return statuses
	}
	var lines []string
	var want, duplicates []int
	for i := range 300 {
		lines = append(lines, `{"id":"`+strconv.Itoa(i)+`"}`)
		want, duplicates = append(want, 201), append(duplicates, 202)
	}
	same := func(got, want []int) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%d outcomes, want %d", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("line %d: %d, want %d", i+1, got[i], want[i])
			}
		}
	}
	same(send("", lines...), want)
	same(send("", lines...), duplicates)
	lines[7], duplicates[7] = `{"id":"7","n":1}`, 422
	lines[9], duplicates[9] = `{"id":"new"}`, 422
	same(send("", lines...), duplicates)
	same(send("?op=touch", lines[0]), []int{422})
	r.do("GET", "/collections/orders/documents/7", "").want(t, 200, `{"id":"7"}`)
	r.do("GET", "/collections/orders/documents/new", "").want(t, 404)
}

// TestKeysOutliveAProcess: another process, and one that has started again, know a request that
// is repeated from another one with its key. A request whose message the log no longer has is
// refused, because nobody can compare it.
func TestKeysOutliveAProcess(t *testing.T) {
	const path = "/collections/orders/documents/1"
	server, store := harness.StartNATS(t, harness.NATSOptions{}), harness.StartRedis(t, harness.RedisOptions{})
	external := func(o *serve.Options) { o.NATS, o.Redis.URL = server.URL(), store.URL() }
	begin := func() *rig {
		r := start(t, external)
		r.nats, r.redis, r.password = server.URL(), store.URL(), ""
		return r
	}
	r := begin()
	seq := strings.Trim(r.do("PUT", path, `{"n":1}`, "Idempotency-Key", "k").want(t, 201).Header.Get("Etag"), `"`)
	other := httptest.NewServer(newAPI(t, r, httpapi.Limits{}, limit))
	defer other.Close()
	repeat := func(r *rig) {
		t.Helper()
		r.do("PUT", path, `{"n":1}`, "Idempotency-Key", "k").want(t, 200)
		r.do("PUT", path, `{"n":2}`, "Idempotency-Key", "k").want(t, 422, keyUsed)
		r.do("GET", path, "").want(t, 200, `{"n":1}`)
	}
	repeat(r)
	repeat(&rig{t: t, base: other.URL + "/v1", http: r.http})
	r.stop()
	r = begin()
	repeat(r)
	r.stop()

	js, err := jetstream.New(connect(t, r))
	if err != nil {
		t.Fatal(err)
	}
	log, err := js.Stream(t.Context(), wire.DefaultPrefix.LogStream())
	if err != nil {
		t.Fatal(err)
	}
	last, err := strconv.ParseUint(seq, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Purge(t.Context(), jetstream.WithPurgeSequence(last+1)); err != nil {
		t.Fatal(err)
	}
	there := &rig{t: t, base: other.URL + "/v1", http: r.http}
	for _, body := range []string{`{"n":1}`, `{"n":2}`} {
		there.do("PUT", path, body, "Idempotency-Key", "k").want(t, 422, keyUsed, "a request that the log no longer has",
			`"seq":"`+seq+`"`)
	}
}
