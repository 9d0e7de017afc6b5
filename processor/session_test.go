package processor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A request to JetStream is lost. It fails if lapse waits for the answer as long as it waits for
// JetStream in all, or asks again after another error.
func TestALostRequestIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), checkTimeout)
		defer cancel()
		asked := 0
		lost := func(times int, then error) func(context.Context) error {
			asked = 0
			return func(ctx context.Context) error {
				if asked++; asked <= times {
					<-ctx.Done()
					return fmt.Errorf("create: %w", ctx.Err())
				}
				return then
			}
		}
		began := time.Now()
		if err := again(ctx, lost(1, nil)); err != nil || asked != 2 || time.Since(began) != checkTimeout/checkAttempts {
			t.Errorf("%v after %d requests and %v", err, asked, time.Since(began))
		}
		if err := again(ctx, lost(0, errFail)); !errors.Is(err, errFail) || asked != 1 {
			t.Errorf("%v after %d requests", err, asked)
		}
		if err := again(ctx, lost(5, nil)); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != checkTimeout {
			t.Errorf("%v after %d requests and %v", err, asked, time.Since(began))
		}
	})
}
