package client_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/credentials"
	"github.com/seed18712806/lapse/sink/wire"
)

// limited connects to a server at which the client may only publish writes of orders, and
// has an inbox of its own.
func limited(t *testing.T, inbox string) *client.Client {
	t.Helper()
	url := natstest.Start(t, natstest.Options{Config: `authorization { users: [
		{ user: u, password: p, permissions: { publish: ["lapse.write.*.orders.*"], subscribe: ["_INBOX.u.>"] } }
	] }`})
	c, err := client.Connect(client.Options{
		Server: strings.Replace(url, "://", "://u:p@", 1), Login: credentials.NATS{InboxPrefix: inbox},
		Timeout: time.Hour, // so that only the denial can end an exchange
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// Each exchange that the server denies ends at once, with an error that names the subject.
//
// It goes red if a client waits for the answer: its timeout is an hour.
func TestDenied(t *testing.T) {
	t.Parallel()
	const inbox = "_INBOX.u"
	prefix := wire.DefaultPrefix
	for name, c := range map[string]struct {
		inbox   string
		do      func(*client.Client) error
		subject string
	}{
		"write": {inbox, func(c *client.Client) error {
			_, err := c.Write(t.Context(), client.Message{Subject: prefix.Write(wire.Upsert, "users", "1"), Body: []byte("{}")})
			return err
		}, "publish to lapse.write.upsert.users.1"},
		"get": {inbox, func(c *client.Client) error {
			_, err := c.Get(t.Context(), "orders", "1")
			return err
		}, "publish to lapse.read.get.orders.1"},
		"watch": {inbox, func(c *client.Client) error {
			return c.Watch(t.Context(), client.WatchOptions{}, func(client.Notification) error { return nil })
		}, "publish to $JS.API.STREAM.INFO.LAPSE_EVENTS"},
		"status": {inbox, func(c *client.Client) error {
			_, err := c.Status(t.Context())
			return err
		}, "publish to $JS.API.STREAM.INFO.LAPSE_LOG"},
		"pipeline": {inbox, func(c *client.Client) error {
			var each error
			p, err := c.Pipeline(func(_ int, _ client.Result, err error) { each = err })
			if err != nil {
				return err
			}
			err = p.Send(t.Context(), client.Message{Subject: prefix.Write(wire.Upsert, "users", "1"), Body: []byte("{}")}, 1)
			if err = errors.Join(err, p.Close(t.Context())); !errors.Is(each, client.ErrDenied) {
				err = fmt.Errorf("the message ended with %w", each)
			}
			return err
		}, "publish to lapse.write.upsert.users.1"},
		"write without an inbox": {"", func(c *client.Client) error {
			_, err := c.Write(t.Context(), client.Message{Subject: prefix.Write(wire.Upsert, "orders", "1"), Body: []byte("{}")})
			return err
		}, "subscribe to _INBOX."},
		"get without an inbox": {"", func(c *client.Client) error {
			_, err := c.Get(t.Context(), "orders", "1")
			return err
		}, "_INBOX."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := c.do(limited(t, c.inbox))
			if !errors.Is(err, client.ErrDenied) || !strings.Contains(err.Error(), c.subject) || !strings.Contains(err.Error(),
				"the NATS server does not permit this user to") {
				t.Errorf("error %v, want that it names %q", err, c.subject)
			}
		})
	}
}
