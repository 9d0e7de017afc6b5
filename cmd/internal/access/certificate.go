package access

import (
	"crypto/tls"
	"sync/atomic"
)

// Certificate is the server's certificate and its private key, of two files.
type Certificate struct {
	cert, key string
	loaded    atomic.Pointer[tls.Certificate]
}

// LoadCertificate reads a certificate, with those of its authorities behind it, and the key.
func LoadCertificate(cert, key string) (*Certificate, error) {
	c := &Certificate{cert: cert, key: key}
	return c, c.Reload()
}

// Reload reads the files again. After an error the certificate is as before.
func (c *Certificate) Reload() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.loaded.Store(&pair)
	return nil
}

// Config is the configuration of a server with the certificate that was read last.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.loaded.Load(), nil
		},
	}
}
