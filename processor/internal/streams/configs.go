package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/wire"
)

// ErrConfigsBehind: the stream of configurations does not have what a log has sourced from it.
var ErrConfigsBehind = errors.New("the stream of configurations has lost its end")

// Sources reports whether the log was created as one that sources this stream.
func (s *Streams) Sources(configs *jetstream.StreamInfo) bool {
	return s.Log.CachedInfo().Config.Metadata[configsKey] == Identity(configs)
}

// lastConfig is the last sequence of the stream of configurations, by its leader.
func (s *Streams) lastConfig(ctx context.Context) (uint64, error) {
	m, err := s.lastOf(ctx, s.Configs, ">")
	if m == nil || err != nil {
		return 0, err
	}
	return m.Seq, nil
}

// checkConfigs compares the last configuration and the last drop that the log has with the
// messages of the stream that it sources. If that stream has lost its end, it gives sequences
// to new messages that old ones had, and the logs would pass over the new ones.
func (s *Streams) checkConfigs(ctx context.Context, o Options) error {
	for _, filter := range o.Prefix.ConfigSubjects() {
		have, err := s.lastOf(ctx, s.Log, filter)
		if err != nil {
			return fmt.Errorf("read the last configuration of the log: %w", err)
		}
		if have == nil {
			continue
		}
		header, err := nats.DecodeHeadersMsg(have.Header)
		if err != nil {
			return fmt.Errorf("read the last configuration of the log: %w", err)
		}
		seq := wire.SourceSequence(header)
		there, err := s.get(ctx, s.Configs.CachedInfo().Config.Name, map[string]any{"seq": seq})
		if err != nil {
			return fmt.Errorf("read message %d of the stream of configurations: %w", seq, err)
		}
		last, err := s.lastConfig(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("read the last message of the stream of configurations: %w", err)
		case there == nil && last >= seq: // somebody deleted it
		case there == nil || there.Subject != have.Subject || !bytes.Equal(there.Data, have.Data):
			return mismatch(o.Prefix.ConfigStream(), "%w: message %d of %s is its message %d, and it has another one there or none: restore it", ErrConfigsBehind, have.Seq, o.log().Stream(), seq)
		}
	}
	return nil
}
