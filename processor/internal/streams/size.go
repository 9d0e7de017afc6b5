package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// defaultEventsBytes bounds the stream of events, so that no client fills the disk of NATS with them.
	defaultEventsBytes = 4 << 30
	// leastEventsBytes is the smallest bound that is tried where NATS has no room for that.
	leastEventsBytes = 16 << 20
)

// noRoom are the codes of NATS where it has no room for the bound of a stream, which it reserves: insufficient
// resources, insufficient storage, and no server of a cluster that has it.
var noRoom = []jetstream.ErrorCode{10023, 10047, 10005}

// create creates a stream. If its bound of bytes is a default, it is halved until NATS has room for it.
func create(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, isDefault bool) (jetstream.Stream, error) {
	for {
		stream, err := js.CreateStream(ctx, want)
		var api *jetstream.APIError
		if !isDefault || want.MaxBytes < leastEventsBytes || !errors.As(err, &api) || !slices.Contains(noRoom, api.ErrorCode) {
			return stream, err
		}
		if want.MaxBytes /= 2; want.MaxBytes < leastEventsBytes {
			want.MaxBytes = -1
		}
	}
}

// CheckSize returns an error if a stream has 80 % of the bytes that it may have. It removes its oldest messages then,
// soon before their age.
func CheckSize(info *jetstream.StreamInfo) error {
	size, most := info.State.Bytes, info.Config.MaxBytes
	if most <= 0 || size < uint64(most)/10*8 {
		return nil
	}
	return fmt.Errorf("stream %s has %d MiB of the %d MiB that it may have: at the limit it removes the oldest messages, before they are %s old",
		info.Config.Name, size>>20, most>>20, info.Config.MaxAge)
}
