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
	const all = 3 * perAttempt
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
