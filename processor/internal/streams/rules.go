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

// replyRules are the rules of a stream.
func replyRules(info *jetstream.StreamInfo) (rules []wire.ReplyRule, err error) {
	if text := info.Config.Metadata[repliesKey]; text != "" {
		if err := json.Unmarshal([]byte(text), &rules); err != nil {
			return nil, mismatch(info.Config.Name, "its metadata has no valid %s", repliesKey)
		}
	}
	return rules, nil
}

// ConfigReplies are the rules for the messages of the stream of configurations, by their sequence
// there. Another process may have added one since this one started.
func (s *Streams) ConfigReplies(ctx context.Context) ([]wire.ReplyRule, error) {
	info, err := s.Configs.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the reply prefixes: %w", err)
	}
	return replyRules(info)
}

// RepliesNow are the rules of the log, as they are now.
func (s *Streams) RepliesNow(ctx context.Context) ([]wire.ReplyRule, error) {
	info, err := s.Log.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the reply prefixes: %w", err)
	}
	return replyRules(info)
}

// AllowReplies adds a rule to the log if the prefixes of the options are not those of the last rule. It
// counts for the messages behind a sequence: that of a tick which the caller has appended behind its
// fences. A former owner, which does not know the rule, decides none of them.
func (s *Streams) AllowReplies(ctx context.Context, js jetstream.JetStream, o Options, behind uint64) (err error) {
	s.Replies, err = provisionReplies(ctx, js, o, s.Log, func(context.Context) (uint64, error) { return behind, nil })
	return err
}

// provisionReplies returns the rules of a stream. It adds a rule if the prefixes of the
// options are not those of the last rule. last finds the last sequence of the stream.
func provisionReplies(ctx context.Context, js jetstream.JetStream, o Options, stream jetstream.Stream,
	last func(context.Context) (uint64, error)) (rules []wire.ReplyRule, err error) {
	want, added := slices.Compact(sorted(o.ReplyPrefixes)), false
	name := stream.CachedInfo().Config.Name
	err = changeStream(ctx, js, o.Prefix.CheckpointBucket(), stream, func(ctx context.Context,
		info *jetstream.StreamInfo) (*jetstream.StreamConfig, error) {
		rules, err = replyRules(info)
		if err != nil {
			return nil, err
		}
		var present []string
		if n := len(rules); n > 0 {
			present = rules[n-1].Prefixes
		}
		if slices.Equal(present, want) {
			return nil, nil
		}
		upTo, err := last(ctx)
		if err != nil {
			return nil, err
		}
		rules, added = append(rules, wire.ReplyRule{From: upTo + 1, Prefixes: want}), true
		for len(rules) > 1 && rules[1].From <= info.State.FirstSeq {
			rules = rules[1:] // no message that it counts for is left
		}
		text, err := json.Marshal(rules)
		if err != nil {
			return nil, err
		}
		change := info.Config
		setMetadata(&change, repliesKey, string(text))
		return &change, nil
	})
	if err != nil {
		return nil, fmt.Errorf("change the reply prefixes of stream %s: %w", name, err)
	}
	if added {
		o.Logger.Info("changed the reply prefixes of stream", slog.String("stream", name), slog.Any("prefixes", want),
			slog.Uint64("from", rules[len(rules)-1].From))
	}
	return rules, nil
}

// RuleCollections appends the rule which collections exist ([wire.CollectionsRule]) to the log, or to the stream of
// configurations of several shards, unless the last rule there says the same. was is the rule of what is stored, which
// counts if the log has none any more; it is not always known. A message in the log needs no other place in which it is
// kept: whoever applies the log, at any time and in any region, finds the rule where it began to count. RuleCollections
// returns the sequence of the last rule; 0 if there is none.
func (s *Streams) RuleCollections(ctx context.Context, js jetstream.JetStream, o Options, was, known bool) (uint64,
	error) {
	for {
		seq, err := s.ruleCollections(ctx, js, o, was, known)
		if !isWrongLastSeq(err) || !backoff.Wait(ctx, leaderAgain) {
			return seq, err // else another process has just appended one
		}
	}
}

// ruleCollections is one attempt of RuleCollections.
func (s *Streams) ruleCollections(ctx context.Context, js jetstream.JetStream, o Options, was, known bool) (uint64,
	error) {
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
	o.Logger.Info("changed which collections exist", slog.Bool("open", o.OpenCollections),
		slog.Uint64("seq", ack.Sequence))
	return ack.Sequence, nil
}
