// Package poll lets a test wait for something by asking for it again and again.
package poll

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The pause between two tries. A try that takes long is followed by a long pause, so that a wait
// takes no more than a fifth of a core from what it waits for.
const (
	atLeast = 10 * time.Millisecond
	atMost  = 500 * time.Millisecond
	share   = 4
)

// Hopeless marks an error after which trying again cannot help: [Until] returns it at once.
func Hopeless(err error) error { return &hopeless{err} }

type hopeless struct{ error }

func (h *hopeless) Unwrap() error { return h.error }

// atAll is how many limits a wait may take if it gets on all the time.
const atAll = 3

// Until calls try until it succeeds. It returns the last error when that has had the same text for the limit, when
// three limits are over, or when ctx is done. So on a busy machine a wait whose error says how far the work is takes
// longer as long as the work gets on. The context that it gives to try ends with the wait.
func Until(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, atAll*limit)
	defer cancel()
	stands := time.AfterFunc(limit, cancel)
	defer stands.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var last error
	for start := time.Now(); ; {
		began := time.Now()
		err := try(ctx)
		if err == nil {
			return nil
		}
		if _, is := errors.AsType[*hopeless](err); is {
			return err
		}
		if ctx.Err() != nil && last != nil {
			err = last // the reason, which the error of an expired context hides
		}
		if last != nil && err.Error() != last.Error() && ctx.Err() == nil {
			stands.Reset(limit)
		}
		last = err
		pause.Reset(min(max(atLeast, share*time.Since(began)), atMost))
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", time.Since(start).Round(time.Millisecond), err)
		case <-pause.C:
		}
	}
}

// Met waits until a condition is met, which what describes.
func Met(limit time.Duration, what string, met func() bool) error {
	return Until(context.Background(), limit, func(context.Context) error {
		if !met() {
			return errors.New("this is not so: " + what)
		}
		return nil
	})
}
