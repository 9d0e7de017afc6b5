package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor"
)

const (
	serverEvery    = time.Second // a check, which may take as long
	serverFailures = 3           // checks, one after the other
	serverAgain    = 5 * time.Second
	serverAtMost   = time.Minute // between two changes of the server
)

// leaveServers connects to another server of a NATS cluster when JetStream does not answer through
// the present one: a network that splits a server off does not cut its connections to clients. It
// runs until ctx is done.
func leaveServers(ctx context.Context, nc *nats.Conn, log *slog.Logger) {
	tick := time.NewTicker(serverEvery)
	defer tick.Stop()
	_, answered := asksJetStream(ctx, nc)
	pause := serverAgain
	var notBefore time.Time
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !nc.IsConnected() {
			failures = 0
			continue
		}
		well, any := asksJetStream(ctx, nc)
		answered = answered || any // a user without the permission to ask never gets an answer
		if well {
			failures = 0
			if time.Since(notBefore) > serverAtMost {
				pause = serverAgain
			}
			continue
		}
		if failures++; failures < serverFailures || !answered || len(nc.Servers()) < 2 || time.Now().Before(notBefore) {
			continue
		}
		log.Warn("JetStream does not answer through this NATS server: connecting to another one",
			slog.String("server", nc.ConnectedUrlRedacted()))
		if err := nc.ForceReconnect(); err != nil {
			log.Warn("the NATS server could not be changed", slog.Any("error", err))
		}
		failures, notBefore, pause = 0, time.Now().Add(pause), min(2*pause, serverAtMost)
	}
}

// untilClosed is [processor.UntilClosed], and names the connection.
func untilClosed(ctx context.Context, nc *nats.Conn) error {
	if err := processor.UntilClosed(ctx, nc); err != nil {
		return fmt.Errorf("connection %q: %w", nc.Opts.Name, err)
	}
	return nil
}

// asksJetStream reports whether JetStream answers through the present server, and is well: it has a
// leader.
func asksJetStream(ctx context.Context, nc *nats.Conn) (well, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, serverEvery)
	defer cancel()
	reply, err := nc.RequestWithContext(ctx, "$JS.API.INFO", nil)
	if err != nil {
		return false, errors.Is(err, nats.ErrNoResponders)
	}
	var answer struct {
		Error *jetstream.APIError `json:"error"`
	}
	return json.Unmarshal(reply.Data, &answer) == nil && answer.Error == nil, true
}
