package elsewhere

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/deployed"
	"github.com/seed18712806/lapse/integration/harness/programs"
)

// installation is what the documents speak of: a lapse on this machine alone, with embedded
// servers; one with users, tokens and TLS; and a directory for the programs, in which the secrets
// are at deploy/trial.
type installation struct {
	t    *testing.T
	nats *harness.NATS // of the second lapse; it also takes connections without TLS, as the operator
	dir  string
	here *strings.Replacer // of the addresses in the documents
}

func install(t *testing.T) *installation {
	t.Helper()
	i := &installation{t: t, dir: t.TempDir()}
	secrets := deployed.New(t)
	i.nats = harness.StartNATS(t, harness.NATSOptions{Config: fmt.Sprintf("tls { ca_file: %q, cert_file: %q, key_file: %q, verify: true, timeout: 60 }\nallow_non_tls: true\n",
		secrets.Path("ca.crt"), secrets.Path("nats-1.crt"), secrets.Path("nats-1.key"))})
	redis := harness.StartRedis(t, harness.RedisOptions{})
	open := harness.EmbeddedLapse(t)

	root, err := programs.Root()
	err = errors.Join(err,
		os.WriteFile(secrets.Path("nats-reader.password"), []byte(harness.RolePassword("READER")+"\n"), 0o600),
		os.WriteFile(secrets.Path("http-tokens"), []byte(tokens(t)), 0o600),
		os.Mkdir(filepath.Join(i.dir, "deploy"), 0o700),
		os.Symlink(secrets.Dir, filepath.Join(i.dir, "deploy", "trial")),
		os.Symlink(secrets.Path("ca.crt"), filepath.Join(i.dir, "ca.crt")),
		os.Symlink(filepath.Join(root, "integration", "node", "node_modules"), filepath.Join(i.dir, "node_modules")))
	if err != nil {
		t.Fatal(err)
	}
	// Of the certificates for a trial, that of Redis is for a server at this address.
	closed := harness.PrepareLapse(t, "--nats", i.nats.URL(), "--redis", redis.URL(), "--readers", "READERS,FORWARD",
		"--http-token-file", secrets.Path("http-tokens"), "--http-tls-cert", secrets.Path("redis.crt"), "--http-tls-key", secrets.Path("redis.key"))
	closed.Launch()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(secrets.Secret("ca.crt")))
	web := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}}
	harness.Until(t, harness.Limit, "the second lapse is ready", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+closed.HTTP+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := web.Do(req)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(resp.Status)
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		return err
	})
	i.here = strings.NewReplacer("https://127.0.0.1:7070", "https://"+closed.HTTP, "http://127.0.0.1:7070", "http://"+open.HTTP,
		"tls://127.0.0.1:4222", "tls://"+harness.Address(i.nats.Port), "nats://127.0.0.1:4222", open.NATSURL)
	return i
}

// tokens is the file of tokens that deploy/README.md shows.
func tokens(t *testing.T) string {
	t.Helper()
	for _, b := range blocks(t, "deploy/README.md") {
		if strings.Contains(b.text, "read-only  orders,carts") {
			return b.text
		}
	}
	t.Fatal("deploy/README.md has no file of tokens")
	return ""
}
