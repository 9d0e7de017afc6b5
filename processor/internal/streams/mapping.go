package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/seed18712806/lapse/sink/wire"
)

// ErrMapping: NATS does not bring the writes to the logs of their shards.
var ErrMapping = errors.New("NATS does not map the writes to their shards")

// probed stands in subjects for the operation and the collection of a write that is none.
const probed = "probe"

// CheckMapping finds out whether NATS maps the writes of a shard to its log. It publishes a message
// that no stream stores, and listens where the mapping has to bring it.
func CheckMapping(ctx context.Context, nc *nats.Conn, log wire.Log) error {
	if log.Shards <= 1 {
		return nil
	}
	published := probe(log)
	fail := func(err error) error { return fmt.Errorf("check the mapping of writes: %w", err) }
	sub, err := nc.SubscribeSync(log.Mapped(published))
	if err != nil {
		return fail(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	// The stream that the message comes to refuses it, because it has another name.
	msg := &nats.Msg{Subject: published, Header: nats.Header{jetstream.ExpectedStreamHeader: {"-"}}}
	if err := nc.PublishMsg(msg); err != nil {
		return fail(err)
	}
	// The server sends what it maps before it answers.
	if err := nc.FlushWithContext(ctx); err != nil {
		return fail(err)
	}
	arrived, _, err := sub.Pending()
	if err != nil {
		return fail(err)
	}
	if arrived == 0 {
		from, to := log.Prefix.Mapping(log.Shards)
		return fmt.Errorf("%w: add this line to the account of lapse (without accounts: at the top of nats-server's configuration), and reload nats-server: mappings: { %q: %q }", ErrMapping, from, to)
	}
	return nil
}

// probe is the subject of a write that is none, of a document that belongs to a shard.
func probe(log wire.Log) string {
	nonce := nuid.Next()
	for i := 0; ; i++ {
		id := nonce + "-" + strconv.Itoa(i)
		if wire.ShardOf(log.Shards, probed, id) == log.Shard {
			return log.Prefix.Write(probed, probed, id)
		}
	}
}
