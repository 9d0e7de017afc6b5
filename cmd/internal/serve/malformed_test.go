package serve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// TestMalformedHeaders: of many messages whose headers cannot be read the log has one line, and a metric has them all.
//
// It fails if a client that sends them fills the log.
func TestMalformedHeaders(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts, log := options(t), &text{}
	opts.Logger = slog.New(slog.NewTextHandler(log, nil))
	p, ended := serving(t, ctx, opts)
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.at.NATS, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	const header, messages = "NATS/1.0\r\nno colon\r\n\r\n", 100
	one := fmt.Sprintf("HPUB lapse.read.get.orders.1 %d %d\r\n%s\r\n", len(header), len(header), header)
	if _, err := conn.Write([]byte(`CONNECT {"verbose":false,"headers":true}` + "\r\n" +
		strings.Repeat(one, messages))); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, harness.Limit, "all are counted", func(context.Context) error {
		resp, err := http.Get(p.at.HTTP + "/metrics")
		if err != nil {
			return err
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer func() { _ = resp.Body.Close() }()
		all, err := io.ReadAll(resp.Body)
		if err == nil && !strings.Contains(string(all), fmt.Sprintf("\nlapse_malformed_headers_total %d\n", messages)) {
			err = errors.New("they are not")
		}
		return err
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 || strings.Contains(log.String(), "could not decode") {
		t.Errorf("the log has %d lines about them:\n%s", n, log)
	}
}

// text is what several goroutines write.
type text struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (w *text) Write(b []byte) (int, error) { w.mu.Lock(); defer w.mu.Unlock(); return w.b.Write(b) }

func (w *text) String() string { w.mu.Lock(); defer w.mu.Unlock(); return w.b.String() }
