package forward

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// ErrNoForwarder: no process forwards under the durable name, so none has the URL and the secret of the receiver.
var ErrNoForwarder = errors.New("no lapse forward runs under this name")

// AskAgain asks a process that runs [Run] under a durable name to post its dead letters again. The process begins
// at once, and takes the letters away that the receiver takes. account is where it runs; empty for that of nc.
func AskAgain(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, account, durable string) error {
	if account != "" {
		durable = account + "." + durable
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeWithin)
	defer cancel()
	_, err := nc.RequestWithContext(ctx, prefix.Resend(durable), nil)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: start it, or run it with --resend", ErrNoForwarder)
	case err != nil:
		return fmt.Errorf("ask the forwarder: %w", err)
	}
	return nil
}

// answerAgain posts the dead letters again whenever somebody asks for it, one time after the other, until end is
// called. Of several processes under the name one answers.
func (f *forwarding) answerAgain(ctx context.Context, c *client.Client, prefix wire.Prefix) (end func(), err error) {
	var posting atomic.Bool
	var under sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	sub, err := c.Conn().QueueSubscribe(prefix.Resend(f.opts.Messages.Durable), "forward", func(msg *nats.Msg) {
		if posting.CompareAndSwap(false, true) {
			under.Go(func() {
				defer posting.Store(false)
				f.notice("posting the dead letters again, because somebody has asked for it")
				sent, left, err := f.resend(ctx)
				if err != nil {
					f.notice("the dead letters could not be posted again: %s", err)
					return
				}
				f.notice("the receiver took %d dead letters; %d are left", sent, left)
			})
		}
		_ = msg.Respond(nil) // the one who has asked sees the letters go
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("answer requests to post dead letters again: %w", err)
	}
	return func() {
		if err := sub.Unsubscribe(); err == nil {
			// Until the server has taken the subscription away, it delivers requests here, and nobody answers them.
			_ = c.Conn().FlushTimeout(exchangeWithin)
		}
		cancel()
		under.Wait()
	}, nil
}
