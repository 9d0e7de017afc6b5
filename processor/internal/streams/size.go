package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nats-io/nats.go/jetstream"
)

// defaultEventsBytes bounds the stream of events, so that no client fills the disk of NATS with them.
const defaultEventsBytes = 4 << 30

// fewerEventsBytes are the bounds that are tried where NATS has no room for that; -1 is for none.
var fewerEventsBytes = []int64{1 << 30, 256 << 20, -1}

// noRoom are the codes of NATS where it has no room for the bound of a stream, which it reserves: insufficient
// resources, insufficient storage, and no server of a cluster that has it.
var noRoom = []jetstream.ErrorCode{10023, 10047, 10005}

func hasNoRoom(err error) bool {
	var api *jetstream.APIError
	return errors.As(err, &api) && slices.Contains(noRoom, api.ErrorCode)
}

// create creates a stream. If it has a bound of bytes by default, it gets less where NATS has no room for that, or would
// have next to none for other streams then: so the stream is created with a quarter more, which it gives back.
func create(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig, isDefault bool) (jetstream.Stream, error) {
	if !isDefault || want.MaxBytes <= 0 {
		return js.CreateStream(ctx, want)
	}
	for _, most := range append([]int64{want.MaxBytes}, fewerEventsBytes...) {
		if want.MaxBytes = most; most > 0 {
			want.MaxBytes += most / 4
		}
		stream, err := js.CreateStream(ctx, want)
		if err == nil && most > 0 {
			want.MaxBytes = most
			return js.UpdateStream(ctx, want)
		}
		if !hasNoRoom(err) {
			return stream, err
		}
	}
	return js.CreateStream(ctx, want)
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
