package client

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/credentials"
)

// connection is the connection of a client to the NATS server of lapse, and what all
// exchanges over it have in common: their time limit (within.go), what the server denies
// (denied.go), requests (request.go) and the errors (connection_errors.go).
type connection struct {
	NC      *nats.Conn
	JS      jetstream.JetStream
	Options // all but Notice are set
	denials *denials
}

// connect connects to the NATS server.
func connect(opts Options) (*connection, error) {
	if err := checkURLs(opts.Server); err != nil {
		return nil, err
	}
	notice := opts.Notice
	if notice == nil {
		notice = func(string) {}
	}
	denials := &denials{}
	var malformed sync.Once
	options := []nats.Option{
		nats.Name("lapse client"),
		nats.Timeout(opts.Timeout),
		nats.FlusherTimeout(opts.Timeout), // the library holds its lock meanwhile
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // somebody may correct the credentials
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectBufSize(-1), // the library must not send a message after its publish has failed
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // otherwise the client closed it
				notice("the connection is lost (" + err.Error() + "): connecting again")
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { notice("connected again to " + credentials.RedactURLs(nc.ConnectedUrl())) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			switch {
			case denials.handle(err):
			case errors.Is(err, nats.ErrBadHeaderMsg): // any client can send as many as it likes
				malformed.Do(func() { notice("a message has headers that cannot be read, and is dropped; so are others like it") })
			default:
				notice(err.Error())
			}
		}),
	}
	login, err := opts.Login.Options(opts.Server)
	if err != nil {
		return nil, &classified{[]error{ErrLogin}, err.Error()}
	}
	options = append(options, login...)
	if opts.InProcess != nil {
		options = append(options, nats.InProcessServer(opts.InProcess))
	}
	nc, err := nats.Connect(opts.Server, options...)
	for end := time.Now().Add(opts.Timeout); mayStart(err) && time.Now().Before(end); {
		time.Sleep(connectedEvery)
		nc, err = nats.Connect(opts.Server, options...)
	}
	if err != nil {
		return nil, connectError(opts.Server, err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &connection{NC: nc, JS: js, Options: opts, denials: denials}, nil
}

// checkURLs refuses what nats.go would refuse with a message that shows the password.
func checkURLs(urls string) error {
	for _, one := range strings.Split(urls, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one // nats.go adds it too
		}
		if u, err := url.Parse(one); err != nil || u.Hostname() == "" {
			return &classified{[]error{ErrServerURL}, fmt.Sprintf("%s is not the URL of a NATS server: use one such as nats://127.0.0.1:4222, or several separated by commas", credentials.RedactURLs(urls))}
		}
	}
	return nil
}

// mayStart reports whether an attempt to connect has failed as it does while a server starts: nobody listens yet, or
// the connection is broken off.
func mayStart(err error) bool {
	for _, one := range []error{
		nats.ErrNoServers, // the error of nats.go for "connection refused"
		nats.ErrConnectionClosed, nats.ErrNoInfoReceived, io.EOF, syscall.ECONNRESET,
	} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

func connectError(server string, err error) error {
	const use = `start "lapse serve" or a NATS server there, or use another URL`
	var network net.Error
	where := credentials.RedactURLs(server)
	switch {
	case errors.Is(err, nats.ErrNoServers): // the error of nats.go for "connection refused"
		return unavailable("no NATS server answers at %s: %s", where, use)
	case isTimeout(err), errors.Is(err, os.ErrDeadlineExceeded):
		return unavailable("no NATS server answers at %s in time: %s", where, use)
	case errors.As(err, &network), errors.Is(err, nats.ErrConnectionClosed), errors.Is(err, nats.ErrNoInfoReceived):
		return unavailable("no NATS server answers at %s (%s): %s", where, err, use)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return refused(where, err)
	}
	return fmt.Errorf("cannot connect to %s: %w", where, err)
}

// IsLost reports whether there is no connection at this moment.
func (l *connection) IsLost() bool { return !l.NC.IsConnected() }
