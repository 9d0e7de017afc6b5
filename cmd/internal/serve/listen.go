package serve

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// listen takes the address that a flag gives.
func listen(flag, address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s %s: the port is taken by another process: give another (port 0 takes a free one)", flag, address)
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w: allowed is host:port, such as 127.0.0.1:0", flag, address, unwrapOp(err))
	}
	return l, nil
}

// checkPorts finds out whether the ports of the embedded servers, which open
// them by themselves, are free.
func checkPorts(opts Options) (err error) {
	for flag, address := range embeddedAddresses(opts) {
		l, listenErr := listen(flag, address)
		if listenErr != nil {
			return listenErr
		}
		// Kept until all are checked: two flags may give the same port.
		defer func() { err = errors.Join(err, l.Close()) }()
	}
	return nil
}

func embeddedAddresses(opts Options) func(yield func(flag, address string) bool) {
	return func(yield func(flag, address string) bool) {
		if opts.NATS == "" && !yield("--nats-listen", opts.NATSListen) {
			return
		}
		if opts.Redis == "" {
			yield("--redis-listen", opts.RedisListen)
		}
	}
}

// unwrapOp leaves out "listen tcp <address>", which the caller has said.
func unwrapOp(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}
