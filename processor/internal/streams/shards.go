package streams

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// ErrConfigsBehind: the stream of configurations does not have what a log has sourced from it.
var ErrConfigsBehind = fmt.Errorf("%w: the stream of configurations has lost its end", ErrMismatch)

// Sources reports whether the log was created as one that sources this stream.
func (s *Streams) Sources(configs *jetstream.StreamInfo) bool {
	return s.Log.CachedInfo().Config.Metadata[configsKey] == Identity(configs)
}

// LastConfig is the last sequence of the stream of configurations, by its leader.
func (s *Streams) LastConfig(ctx context.Context) (uint64, error) {
	m, err := s.lastOf(ctx, s.Configs, ">")
	if m == nil || err != nil {
		return 0, err
	}
	return m.Seq, nil
}

// A leader that was just elected may not have applied all that it has.
const (
	leaderAgain = 250 * time.Millisecond
	leaderFor   = 10 * time.Second
)

// configsAtOnce is how many configurations a call of CheckConfigs compares at most beside the last one.
const configsAtOnce = 256

// CheckConfigs compares what the log has sourced with the stream of configurations. If that has lost its end, it gives
// sequences to new messages that old ones had, and the logs pass over the new ones. So the last configuration and the
// last drop are compared, those that came since the last call, and the last one of before that, which was among the end
// if something was lost that had been compared. The first calls go through what was in the log before.
func (s *Streams) CheckConfigs(ctx context.Context) error {
	for _, filter := range s.Configs.CachedInfo().Config.Subjects {
		last, err := s.lastOf(ctx, s.Log, filter)
		if err != nil {
			return fmt.Errorf("read the last configuration of the log: %w", err)
		}
		if last == nil {
			continue
		}
		if err := s.compareConfig(ctx, last); err != nil {
			return err
		}
		before := s.compared[filter]
		if before != nil {
			if err := s.compareConfig(ctx, before); err != nil {
				return err
			}
		} else {
			before = &events.Stored{}
		}
		for range configsAtOnce {
			if before.Seq >= last.Seq {
				break
			}
			if before, err = s.Get(ctx, s.Log.CachedInfo().Config.Name,
				map[string]any{"seq": before.Seq + 1, "next_by_subj": filter}); err != nil {
				return fmt.Errorf("read the configurations of the log: %w", err)
			}
			if before == nil { // it was truncated
				break
			}
			if err := s.compareConfig(ctx, before); err != nil {
				return err
			}
			if s.compared == nil {
				s.compared = make(map[string]*events.Stored)
			}
			s.compared[filter] = before
		}
	}
	s.lagged = 0
	return nil
}

// compareConfig refuses a stream of configurations that does not have what the log has sourced from it. A leader that
// was just elected is asked again, for leaderFor. That may be longer than one call has: then the next call goes on.
func (s *Streams) compareConfig(ctx context.Context, have *events.Stored) error {
	for {
		same, err := s.sourced(ctx, have)
		if err != nil || same {
			return err
		}
		if s.Configs.CachedInfo().Config.Replicas <= 1 || s.lagged > leaderFor {
			return Refuse(ErrConfigsBehind, "restore it", "message %d of %s is from %s, which has another one in its place or "+
				"none", have.Seq, s.Log.CachedInfo().Config.Name, s.Configs.CachedInfo().Config.Name)
		}
		if backoff.Wait(ctx, leaderAgain) {
			s.lagged += leaderAgain
		}
	}
}

// sourced reports whether the stream of configurations has what the log has sourced from it, or
// somebody has deleted it there.
func (s *Streams) sourced(ctx context.Context, have *events.Stored) (bool, error) {
	header, err := nats.DecodeHeadersMsg(have.Header)
	if err != nil {
		return true, nil // a client has sent headers that cannot be read: it is not known which message it is
	}
	seq := wire.SourceSequence(header)
	if seq == 0 {
		return true, nil // nor is it where the client's headers have spoilt that of the server
	}
	there, err := s.Get(ctx, s.Configs.CachedInfo().Config.Name, map[string]any{"seq": seq})
	if err != nil {
		return false, fmt.Errorf("read message %d of the stream of configurations: %w", seq, err)
	}
	if there != nil {
		return there.Subject == have.Subject && bytes.Equal(there.Data, have.Data), nil
	}
	last, err := s.LastConfig(ctx)
	return last >= seq, err
}

// Copy is a copy, for the log, of the message with a sequence in the stream of configurations.
// The headers of JetStream do not go with it: a log drops what it has sourced if a write had the
// same Nats-Msg-Id.
func (s *Streams) Copy(ctx context.Context, log wire.Log, seq uint64) (*nats.Msg, error) {
	m, err := s.Get(ctx, s.Configs.CachedInfo().Config.Name, map[string]any{"seq": seq})
	if err != nil {
		return nil, fmt.Errorf("read message %d of the stream of configurations: %w", seq, err)
	}
	lost := &nats.Msg{Subject: log.Copy(seq, "")}
	if m == nil {
		return lost, nil
	}
	copied := &nats.Msg{Subject: log.Copy(seq, m.Subject), Header: nats.Header{}, Data: m.Data}
	if len(m.Header) > 0 {
		header, err := nats.DecodeHeadersMsg(m.Header)
		if err != nil {
			return lost, nil // shard 0 has rejected it, and nobody applies it
		}
		for name, values := range header {
			if !strings.HasPrefix(name, "Nats-") {
				copied.Header[name] = values
			}
		}
	}
	return copied, nil
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
	n, err := wire.ParseShards(root.CachedInfo().Config.Metadata)
	if err != nil {
		return 0, mismatch(prefix.ConfigStream(), "%w", err)
	}
	return n, nil
}

// ErrMapping: NATS does not bring the writes to the logs of their shards.
var ErrMapping = errors.New("NATS does not map the writes to their shards")

// probed stands in subjects for the operation and the collection of a write that is none.
const probed = "probe"

// CheckMapping finds out whether NATS maps the writes of a shard to its log. It publishes a message that no stream
// stores, and listens where the mapping has to bring it. If the connection is lost meanwhile, it does not know, and
// returns nats.ErrConnectionClosed.
func CheckMapping(ctx context.Context, nc *nats.Conn, log wire.Log) error {
	if log.Shards <= 1 {
		return nil
	}
	published := probe(log)
	fail := func(err error) error { return fmt.Errorf("check the mapping of writes: %w", err) }
	before := nc.Stats().Reconnects
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
	if arrived == 0 && nc.Stats().Reconnects != before {
		return fail(nats.ErrConnectionClosed)
	}
	if arrived == 0 {
		from, to := log.Prefix.Mapping(log.Shards)
		return fmt.Errorf("%w: add this line to the account of lapse (without accounts: at the top of nats-server's "+
			"configuration), and reload nats-server: mappings: { %q: %q }", ErrMapping, from, to)
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
