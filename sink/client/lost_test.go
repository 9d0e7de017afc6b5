package client

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/sink/wire"
)

// cached is a consumer of which the library knows some information.
type cached struct {
	jetstream.Consumer
	info *jetstream.ConsumerInfo
}

func (c cached) CachedInfo() *jetstream.ConsumerInfo { return c.info }

// TestWatchEndsWithoutAConnection: a watch that ends deletes its consumers. Without a connection it requests nothing, as
// it would wait for an answer; the server deletes them later.
func TestWatchEndsWithoutAConnection(t *testing.T) {
	srv := inprocess.Start(t, &server.Options{JetStream: true, StoreDir: t.TempDir()})
	c, err := Connect(Options{Server: srv.ClientURL(), Prefix: wire.DefaultPrefix, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	requests := func(info *jetstream.ConsumerInfo) uint64 {
		before := c.Conn().Stats().OutMsgs
		c.deleteConsumers("LAPSE_EVENTS", "watch", cached{info: info})
		return c.Conn().Stats().OutMsgs - before
	}
	second := &jetstream.ConsumerInfo{Name: "watch_2"}
	if n, none := requests(second), requests(nil); n != 2 || none != 0 {
		t.Errorf("%d requests for two consumers, and %d for none", n, none)
	}
	srv.Shutdown()
	srv.WaitForShutdown()
	lost := func() bool { return !c.Conn().IsConnected() }
	if err := poll.Met(time.Minute, "the connection is lost", lost); err != nil {
		t.Fatal(err)
	}
	if n := requests(second); n != 0 {
		t.Errorf("%d requests without a connection", n)
	}
}
