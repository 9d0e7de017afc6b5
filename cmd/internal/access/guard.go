package access

import (
	"net"
	"net/http"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

// Guard refuses requests that come from where they may not. Several goroutines may use it.
type Guard struct {
	Tokens  *Tokens // those that clients need; nil if they need none
	Origins Origins // whose pages may change something too

	origin http.CrossOriginProtection
}

// Check refuses a request that a page of another site has sent to change something. Without
// tokens it also refuses requests for another host than this one: a page of another site could
// otherwise reach lapse by a name of its own that leads to 127.0.0.1.
func (g *Guard) Check(r *http.Request) error {
	if err := g.origin.Check(r); err != nil && !g.Origins.has(r.Header.Get("Origin")) {
		return NewProblem(http.StatusForbidden, CrossOrigin, "a page of another site may not change anything here")
	}
	if g.Tokens == nil {
		return checkHost(r.Host)
	}
	return nil
}

func checkHost(host string) error {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if ip := net.ParseIP(host); strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback() {
		return nil
	}
	return NewProblem(http.StatusMisdirectedRequest, WrongHost, "host %s is not this machine's loopback address: use 127.0.0.1 or localhost, or start lapse with --http-token-file", wire.Quote(host))
}
