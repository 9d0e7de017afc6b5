package streams

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

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
func provisionReplies(ctx context.Context, js jetstream.JetStream, o Options, log jetstream.Stream, last func(context.Context) (uint64, error)) ([]wire.ReplyRule, error) {
	info := log.CachedInfo()
	name := info.Config.Name
	rules, err := replyRules(info)
	if err != nil {
		return nil, err
	}
	want := slices.Compact(sorted(o.ReplyPrefixes))
	var present []string
	if n := len(rules); n > 0 {
		present = rules[n-1].Prefixes
	}
	if slices.Equal(present, want) {
		return rules, nil
	}
	upTo, err := last(ctx)
	if err != nil {
		return nil, err
	}
	rules = append(rules, wire.ReplyRule{From: upTo + 1, Prefixes: want})
	for len(rules) > 1 && rules[1].From <= info.State.FirstSeq {
		rules = rules[1:] // no message that it counts for is left
	}
	text, err := json.Marshal(rules)
	if err != nil {
		return nil, err
	}
	change := info.Config
	change.Metadata = maps.Clone(change.Metadata)
	change.Metadata[repliesKey] = string(text)
	if _, err := js.UpdateStream(ctx, change); err != nil {
		return nil, fmt.Errorf("change the reply prefixes of stream %s: %w", name, err)
	}
	o.Logger.Info("changed the reply prefixes of stream", slog.String("stream", name), slog.Any("prefixes", want), slog.Uint64("from", upTo+1))
	return rules, nil
}
