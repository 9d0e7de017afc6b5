package credentials

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// password reads the first line of a file.
func password(flag, path string) (string, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", flag, err)
	}
	line, _, _ := strings.Cut(string(content), "\n")
	line = strings.TrimRight(line, "\r")
	if strings.TrimSpace(line) == "" {
		return "", fmt.Errorf("%s %s: its first line is empty: the password must be there", flag, path)
	}
	return line, nil
}

// authorities reads the certificates to trust.
func authorities(flag, path string) (*x509.CertPool, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		return nil, fmt.Errorf("%s %s: it has no certificate: use a file of certificates in PEM form", flag, path)
	}
	return pool, nil
}

// certificate reads a client certificate and its key.
func certificate(certFlag, certPath, keyFlag, keyPath string) (tls.Certificate, error) {
	cert, err := tls.LoadX509KeyPair(certPath, keyPath)
	if err != nil {
		return cert, fmt.Errorf("%s %s, %s %s: %w: use a certificate and its private key, both in PEM form", certFlag,
			certPath, keyFlag, keyPath, err)
	}
	return cert, nil
}

// together returns an error if only one of two flags is set.
func together(aFlag, a, bFlag, b string) error {
	switch {
	case a != "" && b == "":
		return fmt.Errorf("%s needs %s: give both", aFlag, bFlag)
	case b != "" && a == "":
		return fmt.Errorf("%s needs %s: give both", bFlag, aFlag)
	}
	return nil
}

var errUserTwice = errors.New("the URL has a user or a password, and so have the flags: give them in one of the two " +
	"places")
