package processor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	// supersedeWithin bounds an answer: a region that hands over first stores what waits in its streams.
	supersedeWithin = time.Minute
	answersAtOnce   = 16
)

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
	var answering errgroup.Group // at the same time: NATS may not answer one of them
	answering.SetLimit(answersAtOnce)
	sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
		var request wire.RegionRequest
		if json.Unmarshal(m.Data, &request) != nil || m.Reply == "" {
			return // it is not from lapse
		}
		answering.TryGo(func() error { // who gets no answer asks again
			answerRegion(ctx, nc, js, opts, m, request)
			return nil
		})
	})
	if err != nil {
		return fmt.Errorf("answer other regions on %s: %w", subject, err)
	}
	<-ctx.Done()
	_ = sub.Unsubscribe()
	return answering.Wait()
}

// answerRegion carries out a request of another region, and answers it.
func answerRegion(ctx context.Context, nc *nats.Conn, js jetstream.JetStream, opts Options, m *nats.Msg,
	request wire.RegionRequest) {
	limit := streams.AnswerTimeout
	if request.Supersede != nil {
		limit = supersedeWithin
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	reply := streams.Answer(ctx, js, opts.streams(nc.MaxPayload()), request)
	if request.Supersede != nil {
		opts.Logger.Warn("a region asks to be the first in place of this one", slog.String("by", request.Supersede.String()),
			slog.String("refused", reply.Error))
	}
	if body, err := json.Marshal(reply); err == nil {
		_ = m.Respond(body)
	}
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
