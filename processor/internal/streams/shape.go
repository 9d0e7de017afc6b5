package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// Partitions is the number of partitions with which the logs were created; 0 if there is none, or
// a stream that is not lapse's.
func Partitions(ctx context.Context, js jetstream.JetStream, o Options) (int, error) {
	root, err := js.Stream(ctx, o.root())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", o.root(), err)
	}
	text := root.CachedInfo().Config.Metadata[wire.PartitionsKey]
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, mismatch(o.root(), "its metadata has no valid %s", wire.PartitionsKey)
	}
	return n, nil
}

// Shards is the number of logs of a prefix; 1 if there is none.
func Shards(ctx context.Context, js jetstream.JetStream, prefix wire.Prefix) (int, error) {
	root, err := js.Stream(ctx, prefix.ConfigStream())
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 1, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look up stream %s: %w", prefix.ConfigStream(), err)
	}
	n, err := strconv.Atoi(root.CachedInfo().Config.Metadata[wire.ShardsKey])
	if err != nil || n < 1 || n > wire.MaxShards {
		return 0, mismatch(prefix.ConfigStream(), "its metadata has no valid %s", wire.ShardsKey)
	}
	return n, nil
}
