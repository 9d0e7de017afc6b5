package processor

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// Errors of Run, to be told apart with errors.Is.
var (
	// ErrNotOwner: another process is to own the partitions now.
	ErrNotOwner = shard.ErrNotOwner
	// ErrRefused: a partition is damaged, and the log does not reach back to rebuild it.
	ErrRefused = streams.ErrRefused
	// ErrLogTruncated: messages that were never applied are no longer in the log.
	ErrLogTruncated = streams.ErrLogTruncated
	// ErrLogBehind: the log ends before what was applied.
	ErrLogBehind = streams.ErrLogBehind
	// ErrLogChanged: what is stored was computed from another log, or from an end of this
	// one that it has lost.
	ErrLogChanged = streams.ErrLogChanged
	// ErrLogGap: messages are missing from the middle of the log, and nobody has decided to go on
	// without them.
	ErrLogGap = streams.ErrLogGap
	// ErrSuperseded: another region was promoted, and this one is not the first any more.
	ErrSuperseded = streams.ErrSuperseded
	// ErrPromotion: this region is being promoted, or was promoted a moment ago.
	ErrPromotion = streams.ErrPromotion
	// ErrStreamGone: somebody has deleted a stream that lapse needs.
	ErrStreamGone = streams.ErrStreamGone
	// ErrMismatch: a stream is not as lapse needs it. A person has to decide what becomes
	// of the stream.
	ErrMismatch = streams.ErrMismatch
	// ErrConnectionClosed: the client library has given up the connection to NATS.
	ErrConnectionClosed = streams.ErrConnectionClosed
)

// IsFinal reports whether the error that Run has returned would come again at once: a
// person has to do something before. Any other error may be over at the next try.
func IsFinal(err error) bool {
	for _, one := range []error{store.ErrForeign, store.ErrServer, ErrMismatch, ErrConnectionClosed} {
		if errors.Is(err, one) {
			return true
		}
	}
	return streams.MustStop(err)
}

// IsRefusal reports whether the error that Run or Check has returned means that lapse has lost what it
// needs to go on, or that what is stored does not fit together. Nothing was changed. A person has to
// restore what is missing, or give it up: see Decision.
func IsRefusal(err error) bool {
	for _, one := range []error{store.ErrForeign, streams.ErrStranger, streams.ErrConfigsBehind} {
		if errors.Is(err, one) {
			return true
		}
	}
	return streams.MustStop(err)
}

// Decision is the token with which a person gives up what a refusal says is missing, by
// [Processor.BeginAnew]; empty if the refusal has none.
func Decision(err error) string { return streams.Decision(err) }

// UntilClosed waits until ctx is done. It returns an ErrConnectionClosed if the client library gives
// the connection up before.
func UntilClosed(ctx context.Context, nc *nats.Conn) error { return streams.UntilClosed(ctx, nc) }
