package feed

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG7_TruncatedBeforeItIsRead: an owner has found that the log reaches back, and the log is truncated
// before it is read, by the main reader or for the partition alone. Fails if the reading ends with an
// error, so that the process does, or if the owner is not told to take the partition over anew.
func TestG7_TruncatedBeforeItIsRead(t *testing.T) {
	for name, read := range map[string]func(*Reader, context.Context) error{
		"by the main reader":      (*Reader).Run,
		"for the partition alone": func(r *Reader, ctx context.Context) error { return r.CatchUp(ctx, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTruncated(t, slog.DiscardHandler)
			inboxes := r.inboxes
			b := inboxes[0]
			b.Rewind(3, 0)
			ctx, cancel := context.WithCancel(t.Context())
			var reading sync.WaitGroup
			reading.Go(func() {
				if err := read(r, ctx); err != nil {
					t.Errorf("the reading ends with %v", err)
				}
			})
			eventually(t, "the owner is told", func() bool { return b.Truncated() != nil })
			if !errors.Is(b.Truncated(), streams.ErrLogTruncated) {
				t.Error(b.Truncated())
			}
			b.Rewind(8, 0)
			r.Rewind()
			eventually(t, "what is left is read", func() bool { n, _ := b.Len(); return n > 0 })
			if why := b.Truncated(); why != nil {
				t.Error(why)
			}
			cancel()
			inboxes.Close()
			reading.Wait()
		})
	}
}

// TestAnInterruptionIsNoTruncation: a partition that reads for itself while NATS is away neither ends the
// process nor is taken over anew.
func TestAnInterruptionIsNoTruncation(t *testing.T) {
	warned := make(warnings, 100)
	r := newTruncated(t, warned)
	r.inboxes[0].Rewind(8, 0)
	r.nc.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.CatchUp(ctx, 0) }()
	eventually(t, "the interruption is noticed", func() bool { return len(warned)+len(ended) > 0 || r.inboxes[0].Truncated() != nil })
	cancel()
	if err := <-ended; err != nil || r.inboxes[0].Truncated() != nil || len(warned) == 0 {
		t.Errorf("%v; the partition lacks messages: %v; %d warnings", err, r.inboxes[0].Truncated(), len(warned))
	}
}

// warnings are what is logged as a warning.
type warnings chan string

func (w warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w warnings) Handle(_ context.Context, r slog.Record) error {
	w <- r.Message
	return nil
}

func (w warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

func (w warnings) WithGroup(string) slog.Handler { return w }

// newTruncated is the reader of a log of ten messages that has lost the first seven.
func newTruncated(t *testing.T, handler slog.Handler) *Reader {
	t.Helper()
	js := natstest.Connect(t, natstest.Options{})
	logger := slog.New(handler)
	s, err := streams.Provision(t.Context(), js, streams.Options{Prefix: wire.DefaultPrefix, Partitions: 1, MaxPayload: 1 << 20, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if _, err := js.Publish(t.Context(), wire.DefaultPrefix.Write(wire.Upsert, "c", strconv.Itoa(i)), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Log.Purge(t.Context(), jetstream.WithPurgeSequence(8)); err != nil {
		t.Fatal(err)
	}
	l, stop := streams.WatchLink(js.Conn())
	t.Cleanup(stop)
	inboxes, backlog, board, names := NewInboxes(1, 100), &Backlog{}, health.New(logger), wire.DefaultPrefix.Log(0, 1)
	return NewReader(Options{
		NATS: js.Conn(), Link: l, Log: streams.NewLog(s, l), Health: board, Logger: logger,
		Guard:   NewClockGuard(time.Hour, Clocks{Own: time.Now}, board),
		Decoder: fold.Decoder{Log: names, Partitions: 1, MaxBody: 1000, MaxLevels: 10},
	}, inboxes, NewTicker(js, l, names.Tick(), inboxes, backlog, board), backlog)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if err := poll.Met(time.Minute, what, ok); err != nil {
		t.Fatal(err)
	}
}
