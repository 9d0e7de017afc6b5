package processor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// answerRegion bounds an answer: a region that hands over first stores what waits in its streams.
const answerRegion = time.Minute

// AnswerRegions answers what lapse in other regions asks of this one ([wire.RegionRequest]), until ctx is done. Every
// process of a region carries out each request, whichever shards it owns, and the first answer counts: a request may be
// repeated. Without a JetStream domain there are no other regions.
func AnswerRegions(ctx context.Context, nc *nats.Conn, opts Options) error {
	if err := opts.complete(); err != nil {
		return err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	var account *jetstream.AccountInfo
	for {
		asking, cancel := context.WithTimeout(ctx, streams.AnswerTimeout)
		account, err = js.AccountInfo(asking)
		cancel()
		if err == nil {
			break
		}
		if !backoff.Wait(ctx, progressEvery) {
			return nil
		}
	}
	if account.Domain == "" {
		return nil
	}
	subject := opts.Prefix.Region(account.Domain)
	sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
		answering, cancel := context.WithTimeout(ctx, answerRegion)
		defer cancel()
		var request wire.RegionRequest
		if json.Unmarshal(m.Data, &request) != nil || m.Reply == "" {
			return // it is not from lapse
		}
		reply := streams.Answer(answering, js, opts.streams(nc.MaxPayload()), request)
		if request.Supersede != nil {
			opts.Logger.Warn("a region asks to be the first in place of this one", slog.String("by", request.Supersede.String()), slog.String("refused", reply.Error))
		}
		if body, err := json.Marshal(reply); err == nil {
			_ = m.Respond(body)
		}
	})
	if err != nil {
		return fmt.Errorf("answer other regions on %s: %w", subject, err)
	}
	<-ctx.Done()
	_ = sub.Unsubscribe()
	return nil
}

// ForgetFollower makes the region of a connection forget that the one in a JetStream domain has followed it. It reports
// whether that was remembered.
func ForgetFollower(ctx context.Context, nc *nats.Conn, prefix wire.Prefix, domain string) (known bool, err error) {
	js, err := jetstream.New(nc)
	if err != nil {
		return false, err
	}
	return streams.Forget(ctx, js, prefix, domain)
}
