package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
)

// denial is the error that nats.go hands over when the server denies something: "Publish" or "Subscription".
func denial(what, subject string) error {
	return fmt.Errorf("%w: Permissions Violation for %s to %q", nats.ErrPermissionViolation, what, subject)
}

// TestDenialsEnd: a denial is a problem until it was not repeated for deniedFor. A connection that may not subscribe
// does so again once, after subscribeAgain.
func TestDenialsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, nc := newPermissions(), &nats.Conn{}
		if p.Note(nc, nats.ErrSlowConsumer) {
			t.Error("another error is a denial")
		}
		for _, err := range []error{denial("Publish", "a"), denial("Subscription", "b"), denial("Subscription", "c")} {
			if !p.Note(nc, err) {
				t.Errorf("no denial: %v", err)
			}
		}
		began := time.Now()
		for _, c := range []struct {
			after  time.Duration
			again  int // connections that subscribe again
			denied bool
		}{
			{0, 0, true}, {subscribeAgain, 0, true}, {subscribeAgain + 1, 1, true}, {subscribeAgain + 2, 0, true},
			{deniedFor, 0, true}, {deniedFor + 1, 0, false},
		} {
			again, err := p.check(began.Add(c.after))
			if len(again) != c.again || (err != nil) != c.denied {
				t.Errorf("after %s: %d connections subscribe again, %v", c.after, len(again), err)
			}
		}
	})
}

// TestDenialsAreNamed: three subjects are named, in their order, and the others counted; they are not kept without end.
func TestDenialsAreNamed(t *testing.T) {
	p := newPermissions()
	for i := range deniedAtMost + 1 {
		if !p.Note(nil, denial("Publish", fmt.Sprintf("s%03d", i))) {
			t.Errorf("denial %d is none", i)
		}
	}
	_, err := p.check(time.Now())
	if text := fmt.Sprint(err); strings.Count(text, "\n") != 3 || !strings.Contains(text, "publish to s000: give") ||
		!strings.Contains(text, "publish to s002: give") || !strings.HasSuffix(text, "\nand 97 more") {
		t.Errorf("%s", text)
	}
}

// TestADenialEndsTheStart: what the server denies while lapse starts ends the start, and is the reason. Afterwards it
// ends nothing.
func TestADenialEndsTheStart(t *testing.T) {
	p := newPermissions()
	start := func(part func(context.Context) error) error { return p.Start(t.Context(), part) }
	err := start(func(ctx context.Context) error {
		p.Note(nil, denial("Publish", "a"))
		<-ctx.Done()
		return ctx.Err()
	})
	wantError(t, err, "publish to a: give lapse this permission")
	if p.starting != nil {
		t.Error("a later denial would end the start, which is over")
	}
	failed := errors.New("failed")
	if err := start(func(context.Context) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("without a denial: %v", err)
	}
}

// TestWatch: a process says in /readyz what the NATS server denies to it, and ends when one of its connections is
// closed for good.
func TestWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, ended := serving(t, ctx, options(t))
	wait(t, "the denial is a problem", func() bool {
		p.opts.permissions.Note(nil, denial("Publish", "a"))
		resp, err := http.Get(p.at.HTTP + "/readyz")
		if err != nil {
			return false
		}
		defer http.DefaultClient.CloseIdleConnections()
		defer func() { _ = resp.Body.Close() }()
		text, _ := io.ReadAll(resp.Body)
		return strings.Contains(string(text), "permissions in NATS: the NATS server does not permit")
	})
	p.reads.nats.Close()
	select {
	case err := <-ended:
		wantError(t, err, "closed for good")
	case <-time.After(limit):
		t.Error("the process goes on without its connection for reads")
		cancel()
		<-ended
	}
}
