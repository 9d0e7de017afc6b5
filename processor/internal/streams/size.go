package streams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// eventsBytes bound the stream of events, so that no client fills the disk of NATS with them: the first one by default,
// a later one where NATS has no room for that, which it reserves; -1 is for none. Each is 1/64 below 4 GiB, 1 GiB or
// 256 MiB, so that a store of such a size has room for the other streams.
var eventsBytes = []int64{4032 << 20, 1008 << 20, 252 << 20, -1}

// hasNoRoom reports whether NATS has no room for the bound of a stream: it has too few resources, too little storage,
// or no server of a cluster has that.
func hasNoRoom(err error) bool {
	var refusal *jetstream.APIError
	return errors.As(err, &refusal) && slices.Contains([]jetstream.ErrorCode{10023, 10047, 10005}, refusal.ErrorCode)
}

// createEvents creates the stream of events with the first of eventsBytes for which NATS has room.
func createEvents(ctx context.Context, js jetstream.JetStream, want jetstream.StreamConfig) (stream jetstream.Stream, err error) {
	for _, want.MaxBytes = range eventsBytes {
		if stream, err = js.CreateStream(ctx, want); !hasNoRoom(err) {
			break
		}
	}
	return stream, err
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

// Limits are those of streams as they were provisioned, by which messages are removed or refused.
type Limits map[string]jetstream.StreamConfig

// Limits are the limits of the log, of the stream of events and of the stream of configurations.
func (s *Streams) Limits() Limits {
	all := Limits{}
	for _, stream := range []jetstream.Stream{s.Log, s.Events, s.Configs} {
		if stream != nil {
			c := stream.CachedInfo().Config
			all[c.Name] = c
		}
	}
	return all
}

// Check returns an error if somebody has changed a limit of a stream.
func (l Limits) Check(have jetstream.StreamConfig) error {
	was, changed := l[have.Name], []string(nil)
	for _, one := range []struct {
		name      string
		have, was any
	}{
		{"max_age", have.MaxAge, was.MaxAge}, {"max_bytes", have.MaxBytes, was.MaxBytes}, {"max_msgs", have.MaxMsgs, was.MaxMsgs},
		{"max_msgs_per_subject", have.MaxMsgsPerSubject, was.MaxMsgsPerSubject}, {"max_msg_size", have.MaxMsgSize, was.MaxMsgSize}, {"discard", have.Discard, was.Discard},
	} {
		if one.have != one.was {
			changed = append(changed, fmt.Sprintf("%s is %v, and was %v", one.name, one.have, one.was))
		}
	}
	if was.Name == "" || changed == nil {
		return nil
	}
	return fmt.Errorf("somebody has changed the limits of stream %s while lapse runs: %s", have.Name, strings.Join(changed, "; "))
}
