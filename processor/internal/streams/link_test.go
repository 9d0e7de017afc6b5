package streams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// A request to JetStream is lost, or a cluster that has just started refuses it. It fails if lapse
// waits for the answer as long as it waits for JetStream in all, asks again after another error, or
// ends when the leader does not know all servers yet.
func TestAgain(t *testing.T) {
	errOther := errors.New("another error")
	offline := &jetstream.APIError{Code: 400, ErrorCode: 10005, Description: "no suitable peers for placement, peer " +
		"offline"}
	unavailable := &jetstream.APIError{Code: 503, ErrorCode: 10008, Description: "JetStream system temporarily " +
		"unavailable"}
	lost := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	refuses := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
	const all = 5 * perAttempt
	for _, test := range []struct {
		name  string
		first func(context.Context) error
		times int
		then  error
		want  error
		took  time.Duration
		told  bool
	}{
		{"lost once", lost, 1, nil, nil, perAttempt, false},
		{"lost twice", lost, 2, nil, nil, 3 * perAttempt, false},
		{"always lost", lost, 1000, nil, context.DeadlineExceeded, all, false},
		{"another error", nil, 0, errOther, errOther, 0, false},
		{"lost, then another error", lost, 1, errOther, errOther, perAttempt, false},
		{"a server is not known yet", refuses(offline), 5, nil, nil, 5 * between, true},
		{"a server is not known", refuses(offline), 1000, nil, offline, all, true},
		{"there is no leader yet", refuses(unavailable), 2, nil, nil, 2 * between, true},
		{"the connection is made again", refuses(nats.ErrReconnectBufExceeded), 2, nil, nil, 2 * between, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), all)
				defer cancel()
				began, asked := time.Now(), 0
				var log strings.Builder
				err := Again(ctx, slog.New(slog.NewTextHandler(&log, nil)), func(ctx context.Context) error {
					if asked++; asked > test.times {
						return test.then
					}
					return fmt.Errorf("create: %w", test.first(ctx))
				})
				if !errors.Is(err, test.want) || time.Since(began) != test.took {
					t.Errorf("%v after %d requests and %v, want %v after %v", err, asked, time.Since(began), test.want, test.took)
				}
				if n := strings.Count(log.String(), "refuses a request"); n > 1 || n == 1 != test.told {
					t.Errorf("the log tells %d times of a refusal, want %v", n, test.told)
				}
			})
		})
	}
}

// TestLink: the connection is lost while an answer is waited for. The request ends at once, and the link is made again
// for the next ones. A request that changes nothing is repeated while no answer comes, until its time is up. After the
// connection is closed for good nothing waits for it.
func TestLink(t *testing.T) {
	t.Parallel()
	server := natstest.NewServer(t, "")
	server.Start()
	nc := connected(t, server.URL).Conn()
	l, stop := WatchLink(nc)
	defer stop()
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for range 2 {
		lost := l.Lost()
		select {
		case <-lost:
			t.Fatal("the connection is lost before it is")
		default:
		}
		ended := make(chan error)
		for _, ask := range []func(context.Context, func(context.Context) error) error{l.Ask, l.Query} {
			go func() {
				ended <- ask(t.Context(), func(ctx context.Context) error {
					ended <- nil // it is under way
					return silent(ctx)
				})
			}()
			<-ended
		}
		server.Kill()
		for range 2 {
			if err := <-ended; !errors.Is(err, ErrDisconnected) {
				t.Errorf("the connection is lost, and a request ends with %v", err)
			}
		}
		<-lost
		server.Start()
		if err := l.Query(t.Context(), func(ctx context.Context) error {
			return nc.FlushWithContext(ctx)
		}); err != nil {
			t.Errorf("the connection is made again: %v", err)
		}
	}
	errOther := errors.New("another error")
	if err := l.Query(t.Context(), func(context.Context) error { return errOther }); !errors.Is(err, errOther) {
		t.Errorf("a refusal: %v", err)
	}
	lost := l.Lost()
	nc.Close()
	<-lost
	if err := UntilClosed(t.Context(), nc); !errors.Is(err, ErrConnectionClosed) {
		t.Errorf("the connection is closed for good: %v", err)
	}
}

// TestUntilClosedLeavesNothing: each session of a process waits for the end of the same connection. A session that has
// ended leaves nothing at the connection.
func TestUntilClosedLeavesNothing(t *testing.T) {
	natstest.LeavesNoListener(t, func(ended context.Context, nc *nats.Conn) {
		if err := UntilClosed(ended, nc); err != nil {
			t.Fatal(err)
		}
	})
}

// TestQuery: a request that gets no answer is repeated in time, and the last attempt has what is left of it.
func TestQuery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up, lose := context.WithCancel(context.Background())
		defer lose()
		l := &Link{up: up, lose: lose}
		for _, row := range []struct {
			answered int // by which attempt
			asked    int
			took     time.Duration
			want     error
		}{
			{1, 1, 0, nil},
			{3, 3, 2 * AnswerTimeout, nil},
			{4, 3, 3 * AnswerTimeout, context.DeadlineExceeded},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 3*AnswerTimeout)
			began, asked := time.Now(), 0
			err := l.Query(ctx, func(ctx context.Context) error {
				if asked++; asked == row.answered {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			if !errors.Is(err, row.want) || asked != row.asked || time.Since(began) != row.took {
				t.Errorf("answered at attempt %d: %v after %d and %v", row.answered, err, asked, time.Since(began))
			}
			cancel()
		}
	})
}
