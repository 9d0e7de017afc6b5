package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed18712806/lapse/cmd/internal/output"
	"github.com/seed18712806/lapse/sink/wire"
)

// Health asks a process of lapse for its health.
type Health struct {
	HTTP    string `name:"http" env:"LAPSE_HTTP_LISTEN" default:"127.0.0.1:7070" placeholder:"HOST:PORT"`
	Cert    string `name:"http-tls-cert" env:"LAPSE_HTTP_TLS_CERT" type:"existingfile" placeholder:"FILE"`
	Live    bool
	Timeout Period `env:"LAPSE_TIMEOUT" default:"5s" placeholder:"TIME"`
	Output  string `short:"o" env:"LAPSE_OUTPUT" enum:"text,json" default:"text" placeholder:"FORMAT"`
}

// mostHealthBytes is how much of an answer Health reads.
const mostHealthBytes = 64 << 10

// Run runs the command.
func (c *Health) Run(ctx context.Context, streams output.Streams) error {
	host, port, err := net.SplitHostPort(c.HTTP)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || portErr != nil || n == 0 {
		return output.Usagef("--http %q is not valid: use the address at which lapse serves HTTP, such as 127.0.0.1:7070",
			c.HTTP)
	}
	if c.Timeout <= 0 {
		return output.Usagef("--timeout %s is not valid: use a duration over 0 such as 5s", time.Duration(c.Timeout))
	}
	path := "/readyz"
	if c.Live {
		path = "/healthz"
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.Timeout))
	defer cancel()
	// A host that is empty or 0.0.0.0, as a server may listen on, is this machine.
	scheme, config, err := c.tls()
	if err != nil {
		return err
	}
	status, answer, err := fetch(ctx, scheme+"://"+net.JoinHostPort(host, port)+path, config)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return unavailable("%s does not answer within %s", c.HTTP, time.Duration(c.Timeout))
	case errors.Is(err, context.Canceled):
		return ctx.Err()
	case err != nil:
		return unavailable("no lapse answers at %s: %w (--http or LAPSE_HTTP_LISTEN)", c.HTTP, err)
	case status == http.StatusServiceUnavailable:
		return unavailable("lapse at %s is not ready: %s", c.HTTP, answer)
	case status != http.StatusOK:
		return unavailable("%s%s answers with status %d: is this the HTTP address of lapse?", c.HTTP, path, status)
	case c.Output == "json":
		return output.PrintJSON(streams.Out, map[string]string{"health": answer})
	}
	_, err = fmt.Fprintln(streams.Out, answer)
	return err
}

// tls returns the scheme, and for https a configuration that accepts one certificate, whatever
// its names: the address of a health check is rarely among them.
func (c *Health) tls() (scheme string, config *tls.Config, err error) {
	if c.Cert == "" {
		return "http", nil, nil
	}
	text, err := os.ReadFile(c.Cert)
	if err != nil {
		return "", nil, output.Usagef("--http-tls-cert: %s", err)
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return "", nil, output.Usagef("--http-tls-cert %s: it does not begin with a certificate in PEM", c.Cert)
	}
	return "https", &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection compares the certificate itself
		VerifyConnection: func(s tls.ConnectionState) error {
			if !bytes.Equal(s.PeerCertificates[0].Raw, block.Bytes) {
				return errors.New("the server has another certificate than --http-tls-cert")
			}
			return nil
		},
	}, nil
}

func unavailable(format string, args ...any) error {
	return output.Statusf(wire.StatusUnavailable, "%s", output.OneLine(fmt.Errorf(format, args...)))
}

// fetch sends one request, never through a proxy, and returns the status and the body.
func fetch(ctx context.Context, address string, config *tls.Config) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, "", err
	}
	client := http.Client{
		Transport:     &http.Transport{DisableKeepAlives: true, TLSClientConfig: config},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	var named *url.Error
	if errors.As(err, &named) {
		err = named.Err // the caller names the address
	}
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, mostHealthBytes))
	return response.StatusCode, strings.TrimSpace(string(text)), errors.Join(err, response.Body.Close())
}
