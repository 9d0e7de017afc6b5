package access

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/seed18712806/lapse/sink/wire"
)

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
			return nil, fmt.Errorf("%s is not valid: use an address such as 10.1.2.3, or a range such as 10.1.0.0/16", wire.Quote(text))
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
