package access

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
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
	return NewProblem(http.StatusMisdirectedRequest, WrongHost, "host %s is not this machine's loopback address: use "+
		"127.0.0.1 or localhost, or start lapse with --http-token-file", wire.Quote(host))
}

// Origins are those of other sites whose pages may use the API from a browser (CORS). The zero value
// has none.
//
// No answer has Access-Control-Allow-Credentials: a page sends its token by itself, and a browser shows
// it no answer to a request with cookies. So nobody can use the session of the console from another
// origin, also not from one of the same site, to which SameSite does not apply.
type Origins struct {
	all   bool
	exact []string
}

// ParseOrigins reads origins: exact ones, or * for all. The latter needs tokens. Without them, every
// page that a browser on this machine opens could read and change everything.
func ParseOrigins(texts []string, tokens bool) (o Origins, err error) {
	for _, text := range texts {
		if text == "*" {
			if !tokens {
				return o, fmt.Errorf("* is not allowed without --http-token-file: any page that a browser on this machine opens " +
					"could read and change everything: name the origins, such as http://localhost:3000")
			}
			o.all = true
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.Host == "" || strings.ContainsAny(u.Host, "* ,") ||
			text != strings.ToLower(u.Scheme+"://"+u.Host) || u.Scheme == "http" && u.Port() == "80" ||
			u.Scheme == "https" && u.Port() == "443" {
			return o, fmt.Errorf("%s is not an origin as browsers send it: use the scheme and the host in lower case, and "+
				"the port unless it is the scheme's own, such as https://app.example.com or http://localhost:3000",
				wire.Quote(text))
		}
		o.exact = append(o.exact, text)
	}
	return o, nil
}

// has reports whether the pages of an origin may use the API. An origin that is null is that of files and of
// sandboxed frames: any site can have it.
func (o Origins) has(origin string) bool { return o.all || slices.Contains(o.exact, origin) }

// exposed are the headers of answers that a script may read, beside those that it always may.
const exposed = "ETag, Location, Content-Location, Lapse-Expires-At, Lapse-Target, Lapse-Warning, Sunset, " +
	"Retry-After, Preference-Applied, Allow, WWW-Authenticate"

// Share has a browser show the answer to the page that has sent the request, if that may use the API.
func (o Origins) Share(w http.ResponseWriter, r *http.Request) (may bool) {
	header, origin := w.Header(), r.Header.Get("Origin")
	if len(o.exact) > 0 {
		header.Add("Vary", "Origin")
	}
	if origin == "" || !o.has(origin) {
		return false
	}
	if o.all {
		origin = "*"
	}
	header.Set("Access-Control-Allow-Origin", origin)
	header.Set("Access-Control-Expose-Headers", exposed)
	return true
}

// Preflight answers a browser that asks whether a page that may use the API may send a request: the
// methods are those in Allow. It returns false if the request asks no such thing.
func Preflight(w http.ResponseWriter, r *http.Request) bool {
	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Methods", header.Get("Allow"))
	header.Set("Access-Control-Allow-Headers", "Authorization, Content-Type, If-Match, If-None-Match, Idempotency-Key, "+
		"Prefer, Last-Event-ID, Lapse-Expires-At, Lapse-Not-After, Lapse-Clock, Lapse-Target, traceparent")
	header.Set("Access-Control-Max-Age", "600") // seconds
	w.WriteHeader(http.StatusNoContent)
	return true
}

// Proxies are the addresses of proxies that end TLS, and whose headers count.
type Proxies []netip.Prefix

// ParseProxies reads addresses and ranges of addresses.
func ParseProxies(texts []string) (p Proxies, err error) {
	for _, text := range texts {
		one, err := netip.ParsePrefix(text)
		if address, addressErr := netip.ParseAddr(text); addressErr == nil {
			one, err = address.Prefix(address.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%s is not valid: use an address such as 10.1.2.3, or a range such as 10.1.0.0/16",
				wire.Quote(text))
		}
		p = append(p, one.Masked())
	}
	return p, nil
}

// HTTPS reports whether the client has sent a request over https, to this process or to one of the proxies.
// X-Forwarded-Proto of anybody else does not count. Of several values the last is
// that of the proxy.
func (p Proxies) HTTPS(r *http.Request) bool {
	if r.TLS != nil {
		return true
	}
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return false
	}
	address := from.Addr().Unmap().WithZone("")
	for _, one := range p {
		if one.Contains(address) {
			values := strings.Split(strings.Join(r.Header.Values("X-Forwarded-Proto"), ","), ",")
			return strings.EqualFold(strings.TrimSpace(values[len(values)-1]), "https")
		}
	}
	return false
}

type lookKey struct{}

// Look marks a request that only looks at documents, such as one of the console: it renews no clock.
func Look(ctx context.Context) context.Context { return context.WithValue(ctx, lookKey{}, true) }

// OnlyLooks reports whether a request was marked by [Look].
func OnlyLooks(ctx context.Context) bool { return ctx.Value(lookKey{}) != nil }
