package streams

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
)

const (
	perAttempt = 5 * time.Second        // that Again waits for an answer
	between    = 100 * time.Millisecond // two attempts, after an answer
)

// Codes of the server's API.
const (
	noPeers      = 10005 // JSClusterNoPeersErrF
	notAvailable = 10008 // JSClusterNotAvailErr
)

// Again repeats requests to JetStream, until ctx is done, that get no answer or are refused for now.
// While the servers of a cluster learn of a new connection, of a new leader or of each other, a request
// or its answer can be lost, and a leader may not know yet who can store a stream.
func Again(ctx context.Context, logger *slog.Logger, ask func(context.Context) error) error {
	for told := false; ; {
		attempt, cancel := context.WithTimeout(ctx, perAttempt)
		err := ask(attempt)
		cancel()
		again := RefusedForNow(err)
		if again && !told {
			told = true
			logger.Warn("JetStream refuses a request, perhaps because its servers have just started: lapse repeats it", slog.Any("error", err))
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && (!again || !backoff.Wait(ctx, between)) {
			return err
		}
	}
}

// RefusedForNow reports whether a cluster refused a request for a reason that may pass: it has no leader,
// or its leader does not know enough servers that can store a stream.
func RefusedForNow(err error) bool {
	var refusal *jetstream.APIError
	return errors.As(err, &refusal) && (refusal.ErrorCode == notAvailable || refusal.ErrorCode == noPeers)
}
