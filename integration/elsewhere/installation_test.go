package elsewhere

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"testing"

	"github.com/seed18712806/lapse/integration/documents"
	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/deployed"
)

// installation is a lapse with users, tokens and TLS, as deploy/docs/security.md has it.
type installation struct {
	nats    *harness.NATS // it also takes connections without TLS, as the operator
	https   string        // the address of the API
	secrets string        // the directory of what deploy/secrets has made
}

func install(t *testing.T) *installation {
	t.Helper()
	secrets := deployed.New(t)
	const config = "tls { ca_file: %q, cert_file: %q, key_file: %q, verify: true, timeout: 60 }\nallow_non_tls: true\n"
	servers := fmt.Sprintf(config,
		secrets.Path("ca.crt"), secrets.Path("nats-1.crt"), secrets.Path("nats-1.key"))
	i := &installation{nats: harness.StartNATS(t, harness.NATSOptions{Config: servers}), secrets: secrets.Dir}
	redis := harness.StartRedis(t, harness.RedisOptions{})
	err := errors.Join(
		os.WriteFile(secrets.Path("nats-reader.password"), []byte(harness.RolePassword("READER")+"\n"), 0o600),
		os.WriteFile(secrets.Path("http-tokens"), []byte(tokens(t)), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	// Of the certificates for a trial, that of Redis is for a server at this address.
	l := harness.PrepareLapse(t, "--nats", i.nats.URL(), "--redis", redis.URL(), "--readers", "READERS,FORWARD",
		"--http-token-file", secrets.Path("http-tokens"),
		"--http-tls-cert", secrets.Path("redis.crt"), "--http-tls-key", secrets.Path("redis.key"))
	i.https = l.HTTP
	l.Launch()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(secrets.Secret("ca.crt")))
	web := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted},
		DisableKeepAlives: true}}
	harness.Until(t, harness.Limit, "the lapse with users, tokens and TLS is ready", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+l.HTTP+"/readyz", nil)
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
	return i
}

// tokens is the file of tokens that deploy/docs/security.md shows.
func tokens(t *testing.T) string {
	t.Helper()
	for _, b := range documents.Blocks(documents.Read(t, "deploy/docs/security.md")) {
		if b.File() == "http-tokens" {
			return b.Text
		}
	}
	t.Fatal("deploy/docs/security.md has no file of tokens")
	return ""
}
