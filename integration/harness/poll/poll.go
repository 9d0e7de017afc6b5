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

// Until calls try until it succeeds. After the limit, or when ctx is done, it returns the
// last error. The context that it gives to try ends with the limit.
func Until(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var last error
	for {
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
		last = err
		pause.Reset(min(max(atLeast, share*time.Since(began)), atMost))
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %v: %w", limit, err)
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
