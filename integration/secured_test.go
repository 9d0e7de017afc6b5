package integration

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestSecuredServers: lapse works on servers that it reaches only by TLS and with passwords, and its log has no
// password.
func TestSecuredServers(t *testing.T) {
	t.Parallel()
	const secret = "s3cret"
	cert, key := selfSigned(t)
	tlsPort := harness.FreePort(t)
	w := &world{
		t: t,
		// The test itself connects without TLS and password.
		nats: harness.StartNATS(t, harness.NATSOptions{OwnUsers: true, Config: fmt.Sprintf(`
tls { cert_file: %q, key_file: %q, timeout: 60 }
allow_non_tls: true
authorization { timeout: 60, users: [ { user: lapse, password: %q }, { user: test, password: test } ] }
no_auth_user: test
`, cert, key, secret)}),
		redis: harness.StartRedis(t, harness.RedisOptions{OwnUsers: true, Args: []string{
			"--tls-port", fmt.Sprint(tlsPort), "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file",
			cert, "--tls-auth-clients", "no",
			"--user", "lapse", "on", ">" + secret, "~*", "&*", "+@all",
		}}),
	}
	w.connect(w.nats.URL(), w.redis.Address())
	flags := func(password string) []string {
		return []string{
			"--nats", strings.Replace(w.nats.URL(), "nats://", "tls://lapse:"+password+"@", 1), "--nats-ca", cert,
			"--redis", "rediss://lapse:" + password + "@" + harness.Address(tlsPort),
		}
	}
	w.lapse = harness.PrepareLapse(t, flags(secret)...)
	w.lapse.Env = []string{"SSL_CERT_FILE=" + cert} // the certificates that the system trusts
	w.lapse.Start()
	w.Configure("c", `{"defaultTtl":1}`)
	o := w.Want(201, wire.Create, "c", "a", `{}`)
	w.ExpiryOf("c", "a", o.Etag, harness.Limit)
	w.verify()
	if strings.Contains(w.lapse.Log(), secret) {
		t.Errorf("the log contains a password:\n%s", w.lapse.Log())
	}

	for _, wrong := range []struct{ name, password, trusted, want string }{
		{"a wrong password", "wrong", cert, "nats: Authorization Violation"},
		{"a certificate that is not trusted", secret, os.DevNull, "certificate"},
	} {
		l := harness.PrepareLapse(t, flags(wrong.password)...)
		l.Env = []string{"SSL_CERT_FILE=" + wrong.trusted}
		if log := l.FailsToStart(); !strings.Contains(log, wrong.want) || strings.Contains(log, wrong.password+"@") {
			t.Errorf("with %s lapse logs %q, want %q", wrong.name, log, wrong.want)
		}
	}
}

// selfSigned makes a self-signed certificate for 127.0.0.1, and returns the files of the
// certificate and of its key.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, b []byte) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", privateDER)
}
