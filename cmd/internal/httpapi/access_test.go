package httpapi_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/cmd/internal/serve"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/wire"
)

func connect(t testing.TB, r *rig) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(r.nats, natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

const (
	all    = "all-0123456789abcdef"
	reader = "reader-0123456789abcdef"
	orders = "orders-0123456789abcdef"
)

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTokens: what each kind of token may do, and that the file is read again.
func TestTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	write(t, file, "# who\n"+all+" read-write\n\n"+reader+"  read-only\n"+orders+" read-write orders,other\n")
	r := start(t, func(o *serve.Options) { o.HTTP.TokenFile = file })
	const path = "/collections/orders/documents/1"
	with := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	for _, headers := range [][]string{nil, with("x"), with(""), {"Authorization", all},
		{"Authorization", "Basic " + all}, with(all + "x"), with(strings.ToUpper(all))} {
		r.do("GET", path, "", headers...).want(t, 401, `"code":"token-required"`).header(t, "WWW-Authenticate",
			`Bearer realm="lapse"`)
	}
	r.do("PUT", path, `{}`, with(all)...).want(t, 201)
	r.do("PUT", "/collections/carts/documents/1", `{}`, "Authorization", "bearer "+all).want(t, 201)
	r.do("GET", path, "", with(reader)...).want(t, 200)
	for _, c := range [][3]string{{"PUT", path, "{}"}, {"PATCH", path, "{}"}, {"DELETE", path, ""},
		{"POST", path + "/touch", ""}, {"PUT", "/collections/orders", "{}"}, {"DELETE", "/collections/orders", ""}} {
		r.do(c[0], c[1], c[2], with(reader)...).want(t, 403, `"code":"not-allowed"`)
		r.do(c[0], strings.Replace(c[1], "orders", "carts", 1), c[2], with(orders)...).want(t, 403, `"code":"not-allowed"`)
	}
	r.do("POST", "/collections/orders/documents", "", append(with(reader), "Content-Type", linesType)...).want(t, 403)
	const query = `{"where":{"/item":"tea"},"scan":true}` // a read, although it is a POST
	r.do("POST", "/collections/orders/query", query, with(reader)...).want(t, 200)
	r.do("POST", "/collections/carts/query", query, with(orders)...).want(t, 403, `"code":"not-allowed"`)
	r.do("GET", "/collections/carts/documents?where=item%3Dtea", "", with(orders)...).want(t, 403, `"code":"not-allowed"`)
	r.do("PUT", path, `{}`, with(orders)...).want(t, 200)
	r.do("GET", "/collections/carts/documents/1", "", with(orders)...).want(t, 403)
	r.do("GET", "/collections", "", with(all)...).want(t, 200, "carts", "orders")
	if body := r.do("GET", "/collections", "", with(orders)...).want(t, 200, "orders").body; strings.Contains(body,
		"carts") {
		t.Errorf("it lists a collection that the token is not for: %s", body)
	}
	r.do("PUT", "/collections/other/documents/1", `{}`, with(orders)...).want(t, 201)
	first := r.do("GET", "/collections?limit=1", "", with(orders)...).want(t, 200, `"orders"`)
	if where, err := base64.RawURLEncoding.DecodeString(continuationOf(t, first.body)); err != nil ||
		strings.Contains(string(where), "carts") {
		t.Errorf("the continuation is %s, %v", where, err)
	}
	r.do("GET", "/collections?limit=1&continuation="+continuationOf(t, first.body), "", with(orders)...).want(t, 200,
		`"other"`)
	r.do("GET", "/events", "", with(orders)...).want(t, 403, "?collection=")
	r.do("GET", "/events?collection=carts", "", with(orders)...).want(t, 403)
	r.follow("/events?collection=orders", with(orders)...).cancel()
	for _, open := range []string{"/healthz", "/metrics", "/openapi.json"} {
		resp, err := http.Get(strings.TrimSuffix(r.base, "/v1") + open)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s: %s", open, resp.Status)
		}
	}
	if runtime.GOOS == "windows" {
		return
	}
	write(t, file, "nonsense")
	hangup(t)
	write(t, file, all+" read-only\n")
	eventually(t, "the token is for reads alone", func() bool {
		hangup(t)
		return r.do("PUT", path, `{}`, with(all)...).StatusCode == 403
	})
	r.do("GET", path, "", with(reader)...).want(t, 401)
}

func continuationOf(t *testing.T, body string) string {
	t.Helper()
	var page wire.CollectionsReply
	if err := json.Unmarshal([]byte(body), &page); err != nil || page.Continuation == "" {
		t.Fatalf("no continuation in %s: %v", body, err)
	}
	return page.Continuation
}

func hangup(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
}

// TestWhereItListens: only a loopback address needs no tokens. At another one, the first start makes one, for it and
// for those after it.
func TestWhereItListens(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "tokens")
	write(t, empty, "")
	for _, c := range []struct{ listen, tokens, want string }{
		{"127.0.0.1:0", empty + "x", "--http-token-file: "},
	} {
		opts := serve.Options{NATSListen: "127.0.0.1:0", Data: t.TempDir()}
		opts.Processor.Prefix = wire.DefaultPrefix
		opts.HTTP.Listen, opts.HTTP.TokenFile = c.listen, c.tokens
		if err := serve.Run(t.Context(), opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.listen, err, c.want)
		}
	}
	r := start(t, func(o *serve.Options) { o.HTTP.Listen, o.HTTP.TokenFile = ":0", empty })
	r.base = strings.Replace(r.base, "[::]", "127.0.0.1", 1)
	r.do("GET", "/collections", "", "Authorization", "Bearer "+all).want(t, 401)

	data := t.TempDir()
	first := ""
	for range 2 {
		var log bytes.Buffer
		r := start(t, func(o *serve.Options) {
			o.HTTP.Listen, o.Data, o.Logger = ":0", data, slog.New(slog.NewTextHandler(&log, nil))
		})
		r.base = strings.Replace(r.base, "[::]", "127.0.0.1", 1)
		tokens, err := os.ReadFile(filepath.Join(data, "http-tokens"))
		token, _, ok := strings.Cut(string(tokens), " read-write\n")
		if err != nil || !ok || first != "" && token != first {
			t.Fatalf("the file of tokens has %q (%v), and had the token %q at first", tokens, err, first)
		}
		r.do("GET", "/collections", "").want(t, 401)
		r.do("GET", "/collections", "", "Authorization", "Bearer "+token).want(t, 200)
		r.stop()
		if printed := strings.Contains(log.String(), token); printed != (first == "") {
			t.Errorf("the token was printed: %t, at the first start: %t", printed, first == "")
		}
		first = token
	}
}

// certificate writes a certificate with a name of its own and its key.
func certificate(t *testing.T, cert, key, name string) *x509.Certificate {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write(t, cert, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	write(t, key, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs})))
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// TestTLS: https with a certificate that is read again, over HTTP/2 and HTTP/1.1.
func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	first := certificate(t, cert, key, "first")
	r := start(t, func(o *serve.Options) { o.HTTP.Cert, o.HTTP.Key = cert, key })
	if !strings.HasPrefix(r.base, "https://") {
		t.Fatalf("it announces %s", r.base)
	}
	trust := func(c *x509.Certificate, http2 bool) *http.Transport {
		pool := x509.NewCertPool()
		pool.AddCert(c)
		return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: http2}
	}
	for _, http2 := range []bool{true, false} {
		r.http = &http.Client{Transport: checked{t, trust(first, http2)}}
		if got := r.do("PUT", "/collections/orders/documents/1", `{}`); got.ProtoMajor == 2 != http2 {
			t.Errorf("the protocol is %s", got.Proto)
		}
		all := outcomes(t, r.do("POST", "/collections/orders/documents", "{\"id\":\"1\"}\n", "Content-Type",
			linesType).want(t, 200).body)
		if len(all) != 1 || all[0].Status != 200 {
			t.Errorf("import: %+v", all)
		}
		r.follow("/events").cancel()
		r.http.CloseIdleConnections()
	}
	if runtime.GOOS == "windows" {
		return
	}
	second := certificate(t, cert, key, "second")
	r.http = &http.Client{Transport: checked{t, trust(second, false)}}
	eventually(t, "the new certificate", func() bool {
		hangup(t)
		resp, err := r.http.Get(r.base + "/collections")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return true
	})
}
