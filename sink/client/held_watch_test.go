//go:build held

package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// followers are the ways to follow events without a durable name. Each calls begun, and then f with the id of each
// event.
var followers = map[string]func(ctx context.Context, c *client.Client, begun func(), f func(id string) error) error{
	"Client.Watch": func(ctx context.Context, c *client.Client, begun func(), f func(id string) error) error {
		return c.Watch(ctx, client.WatchOptions{Watching: func([]string) { begun() }}, func(n client.Notification) error {
			return f(n.ID)
		})
	},
	"Client.Tail": func(ctx context.Context, c *client.Client, begun func(), f func(id string) error) error {
		return c.Tail(ctx, func(uint64) { begun() }, func(m *jetstream.RawStreamMsg) error {
			about, err := wire.ParseEvent(wire.DefaultPrefix, m.Subject, m.Header, m.Data)
			return errors.Join(err, f(about.ID))
		})
	},
}

// follow follows the events, of which one is published before, one within, and two once the follower has begun. It has
// to get these three, in their order.
func (b *bench) follow(
	t *testing.T, c *client.Client, follow func(context.Context, *client.Client, func(), func(string) error) error,
) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var got []string
	err := follow(ctx, c, func() { b.event(t, "orders", "begun"); b.event(t, "orders", "last") }, func(id string) error {
		if got = append(got, id); id == "last" {
			stop()
		}
		return nil
	})
	if want := []string{"within", "begun", "last"}; err != nil || !slices.Equal(got, want) && !slices.Equal(got, want[1:]) {
		t.Errorf("%v, %v: want %v", got, err, want)
	} else if len(got) == 2 && b.published(t) == 4 {
		t.Errorf("%v: the event that was published within is missing", got)
	}
}

// published is how many events there are.
func (b *bench) published(t *testing.T) uint64 {
	t.Helper()
	stream, err := b.js.Stream(t.Context(), wire.DefaultPrefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	return stream.CachedInfo().State.Msgs
}

// TestHeldFollow: while a watch begins, an event is published and the connection is lost, or somebody deletes the
// consumer. The watch has each event behind its beginning once.
func TestHeldFollow(t *testing.T) {
	deleted := func(b *bench, _ *client.Proxied) {
		stream, err := b.js.Stream(context.Background(), wire.DefaultPrefix.EventsStream())
		for name := range stream.ConsumerNames(context.Background()).Name() {
			err = errors.Join(err, stream.DeleteConsumer(context.Background(), name))
		}
		if err != nil {
			panic(err)
		}
	}
	for name, happens := range map[string]struct {
		kind held.Kind
		f    func(*bench, *client.Proxied)
	}{
		"reconnected": {held.Reconnection, func(_ *bench, c *client.Proxied) { c.Reconnect() }},
		"deleted":     {held.Write, deleted},
	} {
		for follower, follow := range followers {
			for _, operation := range []string{follower, "Client.readOn"} {
				t.Run(fmt.Sprintf("%s %s in %s", follower, name, operation), func(t *testing.T) {
					held.Each(t, "sink/client."+operation, happens.kind, func(t *testing.T, during func(func())) {
						b := newBench(t, true)
						b.event(t, "orders", "before")
						c := client.NewProxied(t, b.url, limit)
						during(func() { b.event(t, "orders", "within"); happens.f(b, c) })
						b.follow(t, c.Client, follow)
					})
				})
			}
		}
	}
}

// TestHeldDeleteConsumers: the connection is lost while a watch deletes its consumers at its end. It ends all the same,
// and leaves none.
func TestHeldDeleteConsumers(t *testing.T) {
	held.Each(t, "sink/client.Client.deleteConsumers", held.Reconnection, func(t *testing.T, during func(func())) {
		b := newBench(t, true)
		c := client.NewProxied(t, b.url, limit)
		ctx, stop := context.WithTimeout(t.Context(), limit)
		defer stop()
		var got []string
		err := c.Watch(ctx, client.WatchOptions{Watching: func([]string) { b.event(t, "orders", "first") }},
			func(n client.Notification) error {
				switch got = append(got, n.ID); n.ID {
				case "first":
					c.Reconnect() // then the watch has a second consumer
					b.event(t, "orders", "last")
				case "last":
					during(c.Reconnect)
					stop()
				}
				return nil
			})
		if err != nil || !slices.Equal(got, []string{"first", "last"}) {
			t.Errorf("%v, %v", got, err)
		}
		harness.Until(t, byServer, "no consumer is left", func(context.Context) error {
			if !b.hasConsumers(t, 0, byWatch) {
				return errors.New("one is")
			}
			return nil
		})
	})
}
