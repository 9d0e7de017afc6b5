package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/seed18712806/lapse/cmd/internal/access"
)

// Options say how a process serves HTTP.
type Options struct {
	Listen    string
	TokenFile string   // of the API, as package access has it; not needed on a loopback address
	Cert, Key string   // files of the certificate for TLS and of its key; no TLS if empty
	Proxies   []string // addresses, or ranges of them, of proxies that end TLS
	Origins   []string // of other sites, whose pages may use the API
}

// Files are the tokens and the certificate of the server, the proxies before it, and the origins whose
// pages may use the API.
type Files struct {
	proxies     access.Proxies
	origins     access.Origins
	tokens      *access.Tokens      // nil if none are needed
	certificate *access.Certificate // nil without TLS
}

// Load checks the options and reads the files.
func (o Options) Load() (f *Files, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	f = &Files{}
	if f.proxies, err = access.ParseProxies(o.Proxies); err != nil {
		return nil, fmt.Errorf("--http-trusted-proxy: %w", err)
	}
	if f.origins, err = access.ParseOrigins(o.Origins, o.NeedsTokens()); err != nil {
		return nil, fmt.Errorf("--http-allow-origin: %w", err)
	}
	if o.NeedsTokens() {
		if f.tokens, err = access.LoadTokens(o.TokenFile); err != nil {
			return nil, fmt.Errorf("--http-token-file: %w", err)
		}
	}
	if o.Cert != "" {
		if f.certificate, err = access.LoadCertificate(o.Cert, o.Key); err != nil {
			return nil, fmt.Errorf("--http-tls-cert %s, --http-tls-key %s: %w", o.Cert, o.Key, err)
		}
	}
	return f, nil
}

// check refuses what contradicts itself.
func (o Options) check() error {
	if (o.Cert == "") != (o.Key == "") {
		return errors.New("--http-tls-cert and --http-tls-key belong together: give both, or neither")
	}
	return nil
}

// NeedsTokens reports whether a client of the API must give a token: there is a file of tokens, or anybody on the
// network could use the API. Without a file no client may use it then.
func (o Options) NeedsTokens() bool {
	host, _, err := net.SplitHostPort(o.Listen)
	return o.TokenFile != "" || err == nil && !IsLoopback(host) // listen reports an invalid address
}

// IsLoopback reports whether only this machine can reach a host.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Scheme is that of the server's URL.
func (f *Files) Scheme() string {
	if f.certificate != nil {
		return "https"
	}
	return "http"
}

// WatchSignals reads the files again at each SIGHUP, until ctx is done. A file that is not
// valid changes nothing.
func (f *Files) WatchSignals(ctx context.Context, log *slog.Logger) {
	if f.tokens == nil && f.certificate == nil {
		return
	}
	// Nothing stops the signals: while the process stops, SIGHUP would end it before it is done.
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		}
		if err := f.reload(); err != nil {
			log.Error("SIGHUP: the files of the HTTP server were not all read again; those that were not are as before",
				slog.Any("error", err))
		} else {
			log.Info("SIGHUP: read the files of the HTTP server again")
		}
	}
}

func (f *Files) reload() (err error) {
	if f.tokens != nil {
		err = f.tokens.Reload()
	}
	if f.certificate != nil {
		err = errors.Join(err, f.certificate.Reload())
	}
	return err
}
