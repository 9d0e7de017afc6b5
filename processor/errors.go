package processor

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// Errors of Run, to be told apart with errors.Is.
var (
	// ErrNotOwner: another process is to own the shards now.
	ErrNotOwner = shard.ErrNotOwner
	// ErrRefused: a shard is damaged, and the log does not reach back to rebuild it.
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
	// ErrOrigin: the region to follow does not answer.
	ErrOrigin = streams.ErrOrigin
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

// Refusal is the error of Run and Check that would come again at once: lapse has lost what it needs to go on, or what
// the servers hold does not fit together. Nothing was changed that it is about. A person has to restore what is
// missing, or give it up: see [Processor.BeginAnew]. errors.As finds it; its Kind is one of the errors above, the
// ErrLost of package events, or an error of package store.
type Refusal = streams.Refusal

// Loss is what a person can give up.
type Loss = streams.Loss

// Losses are all kinds of losses.
var Losses = streams.Losses

// Accepted is what a person gives up.
type Accepted = shard.Accepted

// asRefusal makes a Refusal of an error about what is stored that a person has to resolve.
func asRefusal(err error) error {
	var r *Refusal
	if errors.As(err, &r) {
		return err
	}
	for _, kind := range []error{store.ErrForeign, store.ErrServer, wire.ErrFormat} {
		if errors.Is(err, kind) {
			return streams.Refuse(kind, "", "%w", err)
		}
	}
	return err
}

// UntilClosed waits until ctx is done. It returns an ErrConnectionClosed if the client library gives
// the connection up before.
func UntilClosed(ctx context.Context, nc *nats.Conn) error { return streams.UntilClosed(ctx, nc) }
