package streams

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/wire"
)

// Rule appends the rules of the options ([wire.LogRules]) to the log, or to the stream of configurations of several
// shards. It appends nothing if the last rules there are what Rule appends for these options. If the log has no rules
// any more, Rule compares the options with was, the rules of what is stored, if these are known. It returns the
// sequence of the last rules; 0 if there are none.
//
// The rules are in the log and nowhere else. So whoever applies the log, at any time and in any region, finds them
// where they begin to count.
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
	want := wire.LogRulesBody{Open: o.OpenCollections, ReplyPrefixes: slices.Compact(sorted(o.ReplyPrefixes))}
	body, err := json.Marshal(want)
	if err != nil {
		return 0, err
	}
	seq, stand := uint64(0), known && want.Equal(was)
	if last != nil {
		seq, stand = last.Seq, isRule(last, body)
	}
	if stand {
		return seq, nil
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

// isRule reports whether a message is what rule appends with a body. A client may have written another one that says
// the same, and lapse may have rejected it.
func isRule(m *events.Stored, body []byte) bool {
	if !bytes.Equal(m.Data, body) {
		return false
	}
	header, err := nats.DecodeHeadersMsg(m.Header)
	for name := range header {
		if !strings.HasPrefix(name, "Nats-") {
			return false
		}
	}
	return err == nil
}
