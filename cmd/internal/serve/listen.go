package serve

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"github.com/seed18712806/lapse/cmd/internal/web"
)

// listen opens the address that a flag gives.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %s: the port is taken by another process: use another port (0 takes a free one)", flag,
			address)
	case err != nil:
		return nil, fmt.Errorf("%s %s is not an address to listen on (%w): use host:port, such as 127.0.0.1:0", flag,
			address, unwrapOp(err))
	}
	return l, nil
}

// checkPorts finds out whether the ports of the embedded servers are free. The servers open
// them later, by themselves.
func checkPorts(opts Options) (err error) {
	if err := checkOpen(opts); err != nil {
		return err
	}
	for flag, address := range embeddedAddresses(opts) {
		l, listenErr := listen(flag, address)
		if listenErr != nil {
			return listenErr
		}
		// It stays open until all are checked, because two flags may give the same port.
		defer func() { err = errors.Join(err, l.Close()) }()
	}
	return nil
}

// checkServers checks the URLs of servers that are not embedded, and the files of their
// credentials.
func checkServers(opts Options) error {
	if _, err := opts.NATSLogin.Options(opts.NATS); err != nil {
		return err
	}
	if opts.Redis.URL == "" {
		return nil
	}
	return opts.Redis.Check()
}

// checkOpen refuses addresses at which anybody on the network could use an embedded server.
func checkOpen(opts Options) error {
	for flag, address := range embeddedAddresses(opts) {
		host, _, err := net.SplitHostPort(address)
		if err != nil || web.IsLoopback(host) || flag == "--nats-listen" && opts.NATSToken != "" {
			continue // listen reports an invalid address
		}
		if flag == "--redis-listen" {
			return fmt.Errorf("%s %s is not allowed: the embedded Redis has no TLS, and its password must not cross a "+
				"network: use an address on 127.0.0.1, or name a redis-server with --redis", flag, address)
		}
		return fmt.Errorf("%s %s is not allowed: the embedded server asks for no password, and anybody could use it: use "+
			"127.0.0.1, a nats-server (--nats), or a token (--nats-token-file)", flag, address)
	}
	return nil
}

func embeddedAddresses(opts Options) func(yield func(flag, address string) bool) {
	return func(yield func(flag, address string) bool) {
		if opts.NATS == "" && !yield("--nats-listen", opts.NATSListen) {
			return
		}
		if opts.Redis.URL == "" && opts.RedisListen != "" {
			yield("--redis-listen", opts.RedisListen)
		}
	}
}

// unwrapOp leaves out "listen tcp <address>": the caller names the address.
func unwrapOp(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
