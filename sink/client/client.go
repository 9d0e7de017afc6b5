package client

import (
	"cmp"
	"context"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// DefaultTimeout is the timeout of an exchange, unless Options set another.
const DefaultTimeout = 5 * time.Second

// Options say where lapse is.
type Options struct {
	Server  string      // NATS URL, or several separated by commas
	Prefix  wire.Prefix // wire.DefaultPrefix if empty
	Login   credentials.NATS
	Timeout time.Duration // of each exchange; DefaultTimeout if 0
	// InProcess, if set, is a NATS server in this process: the client connects to it, with the login of Server.
	InProcess nats.InProcessConnProvider
	// Notice, if set, is called when the client loses its connection or has a new one, and
	// when a consumer of events has a problem that it will try to get over. Several goroutines
	// may call it at a time.
	Notice func(text string)
}

// Client is a connection to the NATS server of lapse. Several goroutines may use it.
type Client struct{ l *connection }

// Connect connects to the NATS server. It does not find out whether lapse runs there: the
// first exchange does. If nobody listens there yet, it tries again, for as long as Options.Timeout.
//
// The client connects again whenever it loses the connection, for as long as it is open.
func Connect(opts Options) (*Client, error) {
	var err error
	if opts.Prefix, err = opts.Prefix.OrDefault(); err != nil {
		return nil, err
	}
	opts.Timeout = cmp.Or(opts.Timeout, DefaultTimeout)
	l, err := connect(opts)
	if err != nil {
		return nil, err
	}
	return &Client{l}, nil
}

// Conn is the connection, for what this package does not do. It is closed with the client.
func (c *Client) Conn() *nats.Conn { return c.l.NC }

// Prefix is the prefix of the lapse that the client is for.
func (c *Client) Prefix() wire.Prefix { return c.l.Prefix }

// Close closes the connection.
func (c *Client) Close() { c.l.NC.Close() }

// MaxPayload is the size of the largest message that the server accepts, in bytes.
func (c *Client) MaxPayload() int64 { return c.l.NC.MaxPayload() }

// Status reads which streams and processes of lapse the server has. If there is no log, the
// error is ErrUnavailable.
func (c *Client) Status(ctx context.Context) (Status, error) { return readStatus(ctx, c.l) }

// Snapshot orders a snapshot of every shard, and waits until all are stored or ctx is done. It
// calls progress when something has changed. A snapshot that fails is tried again.
func (c *Client) Snapshot(ctx context.Context, progress func(SnapshotProgress)) (SnapshotProgress, error) {
	return takeSnapshots(ctx, c.l, false, progress)
}

// Forget orders lapse to let go at once of what may go of all that has expired, or was deleted or overwritten, and
// waits until it has or ctx is done. It calls progress when something has changed. The order is repeated to new owners.
func (c *Client) Forget(ctx context.Context, progress func(SnapshotProgress)) (SnapshotProgress, error) {
	return takeSnapshots(ctx, c.l, true, progress)
}
