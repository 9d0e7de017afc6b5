package streams

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

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
