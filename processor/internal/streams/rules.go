package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/wire"
)

// Rule appends the rules of the options ([wire.LogRules]) to the log, or to the stream of configurations of several
// shards, unless the last ones there say the same. If the log has none any more, it compares them with was, the rules
// of what is stored, if these are known. A message in the log needs no other place in which it is kept: whoever applies
// the log, at any time and in any region, finds the rules where they began to count. Rule returns the sequence of the
// last ones; 0 if there are none.
func (s *Streams) Rule(ctx context.Context, js jetstream.JetStream, o Options, was wire.LogRulesBody, known bool) (
	uint64, error) {
	for {
		seq, err := s.rule(ctx, js, o, was, known)
		if !isWrongLastSeq(err) || !backoff.Wait(ctx, leaderAgain) {
			return seq, err // else another process has just appended some
		}
	}
}

// rule is one attempt of Rule.
func (s *Streams) rule(ctx context.Context, js jetstream.JetStream, o Options, was wire.LogRulesBody, known bool) (
	uint64, error) {
	stream := s.Log
	if s.Configs != nil {
		stream = s.Configs
	}
	name, subject := stream.CachedInfo().Config.Name, o.Prefix.Config(wire.LogRules)
	last, err := s.lastOf(ctx, stream, subject)
	if err != nil {
		return 0, fmt.Errorf("read the rules of the log: %w", err)
	}
	seq := uint64(0)
	if last != nil {
		var rules wire.LogRulesBody
		seq = last.Seq
		if json.Unmarshal(last.Data, &rules) == nil { // else lapse rejects them, and the rules are appended anew below
			was, known = rules, true
		}
	}
	want := wire.LogRulesBody{Open: o.OpenCollections, ReplyPrefixes: slices.Compact(sorted(o.ReplyPrefixes))}
	if known && want.Equal(was) {
		return seq, nil
	}
	body, err := json.Marshal(want)
	if err != nil {
		return 0, err
	}
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{
		jetstream.ExpectedStreamHeader:      {name},
		jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(seq, 10)},
	}}
	ack, err := js.PublishMsg(ctx, m)
	if err != nil {
		return 0, fmt.Errorf("append the rules of the log to stream %s: %w", name, err)
	}
	o.Logger.Info("changed the rules of the log", slog.Bool("openCollections", want.Open),
		slog.Any("replyPrefixes", want.ReplyPrefixes), slog.Uint64("seq", ack.Sequence))
	return ack.Sequence, nil
}
