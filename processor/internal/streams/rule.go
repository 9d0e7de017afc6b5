package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/wire"
)

// RuleCollections appends the rule which collections exist ([wire.CollectionsRule]) to the log, or to the stream of
// configurations of several shards, unless the last rule there says the same. was is the rule of what is stored, which
// counts if the log has none any more; it is not always known. A message in the log needs no other place in which it is kept: whoever applies
// the log, at any time and in any region, finds the rule where it began to count. RuleCollections returns the sequence
// of the last rule; 0 if there is none.
func (s *Streams) RuleCollections(ctx context.Context, js jetstream.JetStream, o Options, was, known bool) (uint64, error) {
	for {
		seq, err := s.ruleCollections(ctx, js, o, was, known)
		if api := (*jetstream.APIError)(nil); !errors.As(err, &api) || api.ErrorCode != jetstream.JSErrCodeStreamWrongLastSequence || !backoff.Wait(ctx, leaderAgain) {
			return seq, err // else another process has just appended one
		}
	}
}

// ruleCollections is one attempt of RuleCollections.
func (s *Streams) ruleCollections(ctx context.Context, js jetstream.JetStream, o Options, was, known bool) (uint64, error) {
	stream := s.Log
	if s.Configs != nil {
		stream = s.Configs
	}
	name, subject := stream.CachedInfo().Config.Name, o.Prefix.Config(wire.CollectionsRule)
	last, err := s.lastOf(ctx, stream, subject)
	if err != nil {
		return 0, fmt.Errorf("read the rule of the collections: %w", err)
	}
	seq := uint64(0)
	if last != nil {
		var rule wire.CollectionsRuleBody
		seq = last.Seq
		if json.Unmarshal(last.Data, &rule) == nil { // else lapse rejects it, and the rule is appended anew below
			was, known = rule.Open, true
		}
	}
	if known && was == o.OpenCollections {
		return seq, nil
	}
	body, err := json.Marshal(wire.CollectionsRuleBody{Open: o.OpenCollections})
	if err != nil {
		return 0, err
	}
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{
		jetstream.ExpectedStreamHeader:      {name},
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(seq, 10)},
	}}
	ack, err := js.PublishMsg(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("append the rule of the collections to stream %s: %w", name, err)
	}
	o.Logger.Info("changed which collections exist", slog.Bool("open", o.OpenCollections), slog.Uint64("seq", ack.Sequence))
	return ack.Sequence, nil
}
