package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/seed18712806/lapse/sink/wire"
)

// ErrMapping: NATS does not bring the writes to the logs of their shards.
var ErrMapping = errors.New("NATS does not map the writes to their shards")

// probed stands in subjects for the operation and the collection of a write that is none.
const probed = "probe"

// CheckMapping finds out whether NATS maps a write to the log of its shard. For each shard it
// publishes a message that no stream stores, and listens where the mapping has to bring it.
func CheckMapping(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, shards int) error {
	if shards <= 1 {
		return nil
	}
	at := string(prefix) + ".shard."
	sub, err := nc.SubscribeSync(at + "*.write." + probed + "." + probed + ".*")
	if err != nil {
		return fmt.Errorf("check the mapping of writes: %w", err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	nonce := nuid.Next()
	expected := make(map[string]bool, shards)
	for i := 0; len(expected) < shards; i++ {
		id := nonce + "-" + strconv.Itoa(i)
		shard, _ := wire.Shape{Shards: shards, Partitions: 1}.Place(probed, id)
		published := prefix.Write(probed, probed, id)
		mapped := prefix.Log(shard, shards).Mapped(published)
		if has(expected, at+strconv.Itoa(shard)+".") {
			continue
		}
		expected[mapped] = true
		// The stream that the message comes to refuses it, because it has another name.
		msg := &nats.Msg{Subject: published, Header: nats.Header{jetstream.ExpectedStreamHeader: {"-"}}}
		if err := nc.PublishMsg(msg); err != nil {
			return fmt.Errorf("check the mapping of writes: %w", err)
		}
	}
	// The server sends what it maps before it answers.
	if err := nc.FlushWithContext(ctx); err != nil {
		return fmt.Errorf("check the mapping of writes: %w", err)
	}
	arrived, _, err := sub.Pending()
	if err != nil {
		return fmt.Errorf("check the mapping of writes: %w", err)
	}
	for range arrived {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return fmt.Errorf("check the mapping of writes: %w", err)
		}
		delete(expected, m.Subject)
	}
	if len(expected) > 0 {
		return unmapped(prefix, shards)
	}
	return nil
}

func has(subjects map[string]bool, beginning string) bool {
	for s := range subjects {
		if strings.HasPrefix(s, beginning) {
			return true
		}
	}
	return false
}

// unmapped tells what is missing, as the configuration of nats-server has it.
func unmapped(prefix wire.Prefix, shards int) error {
	from, to := prefix.Mapping(shards)
	return fmt.Errorf("%w: add this line to the block mappings of the account of lapse's clients, or at the top of the configuration of nats-server if it has no accounts, and reload it (nats-server --signal reload): mappings: { %q: %q }", ErrMapping, from, to)
}
