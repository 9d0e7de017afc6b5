package streams

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/backoff"
	"github.com/seed18712806/lapse/sink/events"
)

const (
	// CallTimeout is the limit of one call to Redis or NATS.
	CallTimeout = 10 * time.Second
	// AnswerTimeout is the limit of one attempt at a request that changes nothing, which
	// is then repeated.
	AnswerTimeout = 3 * time.Second
)

// ErrDisconnected: the connection to NATS was lost before the answer came.
var ErrDisconnected = errors.New("the connection to NATS was lost")

// ErrConnectionClosed: the client library has given up the connection to NATS, and does
// not connect again.
var ErrConnectionClosed = errors.New("the connection to NATS is closed for good: restart lapse")

// UntilClosed waits until ctx is done, or until the connection is closed for good, which
// is an error. The server closes the connection of a client that sends more than
// max_payload, and does not tell its clients if that was lowered while it runs.
func UntilClosed(ctx context.Context, nc *nats.Conn) error {
	closed := nc.StatusChanged(nats.CLOSED)
	defer nc.RemoveStatusListener(closed)
	if !nc.IsClosed() {
		select {
		case <-ctx.Done():
			return nil
		case <-closed:
		}
	}
	return fmt.Errorf("%w: %w", ErrConnectionClosed, cmp.Or(nc.LastError(), nats.ErrConnectionClosed))
}

// Link is the connection to NATS as requests see it, so that none waits for an answer that can no longer come. When the
// connection is lost, the answers to requests under way never come, so the link ends those requests. A request made
// while the connection is down goes out when it is up again.
type Link struct {
	mu   sync.Mutex
	up   context.Context // done when the connection is lost; then another takes its place
	lose context.CancelFunc
}

// WatchLink watches a connection until stop is called.
func WatchLink(nc *nats.Conn) (l *Link, stop func()) {
	l = &Link{}
	l.up, l.lose = context.WithCancel(context.Background())
	changes := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	var watching sync.WaitGroup
	watching.Go(func() {
		for range changes {
			l.mu.Lock()
			l.lose()
			l.up, l.lose = context.WithCancel(context.Background())
			l.mu.Unlock()
		}
	})
	return l, func() { nc.RemoveStatusListener(changes); watching.Wait(); l.lose() }
}

// Ask makes a request. It returns ErrDisconnected if the connection is lost meanwhile.
func (l *Link) Ask(ctx context.Context, request func(context.Context) error) error {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stop := context.AfterFunc(up, func() { cancel(ErrDisconnected) })
	defer stop()
	err := request(ctx)
	if err != nil && errors.Is(context.Cause(ctx), ErrDisconnected) {
		err = ErrDisconnected
	}
	return err
}

// Query makes a request that changes nothing, and repeats it while no answer comes: where
// a stream has just lost its leader nobody answers, and soon another server does.
func (l *Link) Query(ctx context.Context, request func(context.Context) error) error {
	for {
		if limit, ok := ctx.Deadline(); ok && time.Until(limit) <= AnswerTimeout {
			return l.Ask(ctx, request) // the last attempt
		}
		attempt, cancel := context.WithTimeout(ctx, AnswerTimeout)
		err := l.Ask(attempt, request)
		late := attempt.Err() != nil
		cancel()
		if err == nil || !late || ctx.Err() != nil {
			return err
		}
	}
}

// Lost is closed when the present connection is lost.
func (l *Link) Lost() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up.Done()
}

// Stamp is the instant (Unix nanoseconds) at which the log stored a message. found is
// false if the log does not have the message any more. The leader of the log answers.
func (s *Streams) Stamp(ctx context.Context, seq uint64) (at int64, found bool, err error) {
	m, err := s.Get(ctx, s.Log.CachedInfo().Config.Name, map[string]any{"seq": seq})
	if m == nil || err != nil {
		return 0, false, err
	}
	return m.Time.UnixNano(), true, nil
}

// Next is the sequence of the first message of the log after another, 0 if there is none. The leader of the
// log answers.
func (s *Streams) Next(ctx context.Context, after uint64) (uint64, error) {
	m, err := s.Get(ctx, s.Log.CachedInfo().Config.Name, map[string]any{"seq": after + 1, "next_by_subj": ">"})
	if m == nil || err != nil {
		return 0, err
	}
	return m.Seq, nil
}

// Value is the value under a key of the bucket of checkpoints, nil if there is none or it
// was deleted. The revision is that of the last change, 0 if there was none. The leader of the
// bucket's stream answers. One that was deposed and does not know it may answer too: the value
// may be old, and a change of the revision is refused then.
func (s *Streams) Value(ctx context.Context, key string) (value []byte, revision uint64, err error) {
	bucket := s.Checkpoints.Bucket()
	m, err := s.Get(ctx, "KV_"+bucket, map[string]any{"last_by_subj": "$KV." + bucket + "." + key})
	switch {
	case m == nil || err != nil:
		return nil, 0, err
	case bytes.Contains(m.Header, []byte("KV-Operation:")):
		return nil, m.Seq, nil
	}
	return m.Data, m.Seq, nil
}

// lastOf is the last message of a stream whose subject matches a filter, nil if there is none.
func (s *Streams) lastOf(ctx context.Context, stream jetstream.Stream, filter string) (*events.Stored, error) {
	return s.Get(ctx, stream.CachedInfo().Config.Name, map[string]any{"last_by_subj": filter})
}

// Get asks the leader of a stream for a message, and returns nil if there is none.
func (s *Streams) Get(ctx context.Context, stream string, request any) (*events.Stored, error) {
	return events.GetMessage(ctx, s.nc, stream, request)
}

const (
	perAttempt = 5 * time.Second        // that Again gives to its first attempt
	between    = 100 * time.Millisecond // two attempts, after an answer
)

// Codes of the server's API.
const (
	noPeers      = 10005 // JSClusterNoPeersErrF
	notAvailable = 10008 // JSClusterNotAvailErr
)

// Again repeats requests to NATS, until ctx is done, that get no answer or are refused for now.
// While the servers of a cluster learn of a new connection, of a new leader or of each other, a request
// or its answer can be lost, and a leader may not know yet who can store a stream. An attempt that got no
// answer in time is followed by one with twice the time, as servers that are busy may need it.
func Again(ctx context.Context, logger *slog.Logger, ask func(context.Context) error) error {
	within := perAttempt
	for told := false; ; {
		attempt, cancel := context.WithTimeout(ctx, within)
		err := ask(attempt)
		cancel()
		late, again := errors.Is(err, context.DeadlineExceeded), MayPass(err)
		if late {
			within *= 2
		}
		if again && !told {
			told = true
			logger.Warn("NATS refuses a request or is not there, perhaps because its servers have just started: "+
				"lapse repeats the request",
				slog.Any("error", err))
		}
		if ctx.Err() != nil || !late && (!again || !backoff.Wait(ctx, between)) {
			return err
		}
	}
}

// MayPass reports whether a request failed for a reason that may pass: the connection is lost, which the client makes
// again, or a cluster refused it for now.
func MayPass(err error) bool {
	return RefusedForNow(err) || errors.Is(err, nats.ErrConnectionClosed) ||
		errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrDisconnected)
}

// RefusedForNow reports whether a cluster refused a request for a reason that may pass: it has no leader,
// or its leader does not know enough servers that can store a stream.
func RefusedForNow(err error) bool {
	var refusal *jetstream.APIError
	return errors.As(err, &refusal) && (refusal.ErrorCode == notAvailable || refusal.ErrorCode == noPeers)
}
