package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/cmd/internal/redact"
	"github.com/seed18712806/lapse/sink/wire"
)

// Options say where lapse is.
type Options struct {
	Server  string // NATS URL or URLs
	Prefix  wire.Prefix
	Creds   string        // a credentials file, or none
	CA      string        // a file of PEM certificates to trust, or none
	Timeout time.Duration // of each exchange
	// Notice, if set, is told when the connection is lost and found again.
	Notice func(text string)
}

// Client is a connection.
type Client struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	opts Options
}

// Connect connects to the NATS server, not to lapse itself: whether that is
// there shows at the first exchange.
func Connect(opts Options) (*Client, error) {
	notice := opts.Notice
	if notice == nil {
		notice = func(string) {}
	}
	options := []nats.Option{
		nats.Name("lapse client"),
		nats.Timeout(opts.Timeout),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectBufSize(-1), // what was said to have failed must not be sent later
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // else it was closed
				notice("connection lost, trying again: " + err.Error())
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) { notice("connected again to " + nc.ConnectedUrlRedacted()) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { notice(err.Error()) }),
	}
	if opts.Creds != "" {
		options = append(options, nats.UserCredentials(opts.Creds))
	}
	if opts.CA != "" {
		options = append(options, nats.RootCAs(opts.CA))
	}
	nc, err := nats.Connect(opts.Server, options...)
	switch {
	case errors.Is(err, nats.ErrNoServers): // how nats.go says "connection refused"
		return nil, fmt.Errorf("no NATS server at %s: is lapse running? --server (or LAPSE_NATS) says where", redact.URLs(opts.Server))
	case err != nil:
		return nil, fmt.Errorf("connect to %s: %w", redact.URLs(opts.Server), err)
	}
	js, err := jetstream.New(nc)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &Client{nc: nc, js: js, opts: opts}, nil
}

// Close closes the connection.
func (c *Client) Close() { c.nc.Close() }

// noLapse says that nobody takes or answers a subject.
func (c *Client) noLapse(subject string) error {
	return fmt.Errorf("no lapse at %s: nobody takes %s (is it running, with prefix %q?)", redact.URLs(c.opts.Server), subject, c.opts.Prefix)
}

// within bounds one exchange.
func (c *Client) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, c.opts.Timeout)
}
