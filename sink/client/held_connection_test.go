//go:build held

package client

import (
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/integration/harness/proxy"
)

// heldLimit is the limit of each wait.
const heldLimit = time.Minute

// Proxied is a client behind a proxy, whose connection a test cuts.
type Proxied struct {
	*Client
	Proxy *proxy.Proxy
	t     *testing.T
}

// NewProxied connects a client through a proxy, until the test ends.
func NewProxied(t *testing.T, url string, timeout time.Duration) *Proxied {
	t.Helper()
	p := proxy.New(t, strings.TrimPrefix(url, "nats://"))
	c, err := Connect(Options{Server: "nats://" + p.Address(), Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &Proxied{c, p, t}
}

// Lose cuts the connection, and returns once the client knows.
func (p *Proxied) Lose() {
	before := p.Conn().Stats().Reconnects
	p.Proxy.Cut()
	p.wait("the client has lost its connection", func() bool {
		return !p.Conn().IsConnected() || p.Conn().Stats().Reconnects > before
	})
}

// Reconnect cuts the connection, and returns once the client has another one.
func (p *Proxied) Reconnect() {
	before := p.Conn().Stats().Reconnects
	p.Proxy.Cut()
	p.Reconnected(before)
}

// Reconnected waits until the client has another connection than after so many reconnections.
func (p *Proxied) Reconnected(before uint64) {
	p.wait("the client is connected again", func() bool {
		return p.Conn().Stats().Reconnects > before && p.Conn().IsConnected()
	})
}

// wait waits until a condition is met. It may run in any goroutine.
func (p *Proxied) wait(what string, met func() bool) {
	if err := poll.Met(heldLimit, what, met); err != nil {
		p.t.Error(err)
	}
}
