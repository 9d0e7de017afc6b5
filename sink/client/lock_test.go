package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/proxy"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// openLocks opens a collection for locks.
func openLocks(t *testing.T) (c *client.Client, locks *client.Collection[json.RawMessage], expire func(name string)) {
	t.Helper()
	l, locks := open[json.RawMessage](t, "locks")
	if _, err := locks.Configure(t.Context(), client.Config{DefaultTTL: client.Never}); err != nil {
		t.Fatal(err)
	}
	return l.Client(), locks, func(name string) { l.Expire("locks", name) }
}

// A lock has one owner at a time, is renewed while the work goes on, is free afterwards, and the token grows.
func TestLock(t *testing.T) {
	t.Parallel()
	c, locks, _ := openLocks(t)
	opts := client.LockOptions{TTL: time.Minute, Renew: 5 * time.Millisecond}
	var tokens []wire.Etag
	for range 2 {
		err := c.Lock(t.Context(), "locks", "report", opts, func(ctx context.Context, token wire.Etag) error {
			tokens = append(tokens, token)
			err := c.Lock(ctx, "locks", "report", opts, func(context.Context, wire.Etag) error {
				t.Error("two have the lock")
				return nil
			})
			if !errors.Is(err, client.ErrExists) {
				t.Error(err)
			}
			harness.Until(t, harness.Limit, "the lock is renewed", func(context.Context) error {
				doc, err := locks.Get(ctx, "report")
				if err == nil && doc.Etag == token {
					err = errors.New("it has its first etag")
				}
				return err
			})
			return context.Cause(ctx)
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := locks.Get(t.Context(), "report"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("after the work: %v", err)
		}
	}
	if len(tokens) != 2 || tokens[1] <= tokens[0] {
		t.Errorf("the tokens are %v", tokens)
	}
}

// Who loses the lock hears of it, and leaves that of the next owner alone.
func TestLockIsLost(t *testing.T) {
	t.Parallel()
	c, locks, expire := openLocks(t)
	lose := map[string]func(name string){
		"expired": expire,
		"deleted": func(name string) {
			if _, err := locks.Delete(t.Context(), name); err != nil {
				t.Error(err)
			}
		},
		"another": func(name string) {
			if _, err := locks.Upsert(t.Context(), name, json.RawMessage(`{"owner":"another"}`)); err != nil {
				t.Error(err)
			}
		},
	}
	for name, lose := range lose {
		opts := client.LockOptions{TTL: time.Minute, Renew: time.Second}
		err := c.Lock(t.Context(), "locks", name, opts, func(ctx context.Context, _ wire.Etag) error {
			lose(name)
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), client.ErrLockLost) {
				t.Error(context.Cause(ctx))
			}
			return ctx.Err()
		})
		if !errors.Is(err, client.ErrLockLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	doc, err := locks.Get(t.Context(), "another")
	if err != nil || string(doc.Value) != `{"owner":"another"}` {
		t.Errorf("the lock of another owner is %s: %v", doc.Value, err)
	}
}

// The error of the work is that of Lock, and a panic of the work releases the lock too.
func TestLockAfterTheWork(t *testing.T) {
	t.Parallel()
	c, locks, _ := openLocks(t)
	broken := errors.New("broken")
	err := c.Lock(t.Context(), "locks", "1", client.LockOptions{}, func(context.Context,
		wire.Etag) error {
		return broken
	})
	if !errors.Is(err, broken) {
		t.Error(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = c.Lock(t.Context(), "locks", "1", client.LockOptions{}, func(context.Context, wire.Etag) error { panic("no") })
	}()
	ctx, cancel := context.WithCancel(t.Context())
	err = c.Lock(ctx, "locks", "1", client.LockOptions{}, func(ctx context.Context, _ wire.Etag) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrLockLost) {
		t.Error(err)
	}
	if _, err := locks.Get(t.Context(), "1"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("after the work: %v", err)
	}
}

// What could never be free again is no lock.
func TestLockThatWouldStay(t *testing.T) {
	t.Parallel()
	c, locks, _ := openLocks(t)
	never := func(context.Context, wire.Etag) error { t.Error("it has the lock"); return nil }
	for _, opts := range []client.LockOptions{
		{TTL: -1}, {TTL: 1500 * time.Millisecond}, {TTL: time.Second, Renew: time.Second}, {Renew: -1},
	} {
		if err := c.Lock(t.Context(), "locks", "1", opts, never); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	if _, err := locks.Configure(t.Context(), client.Config{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Lock(t.Context(), "locks", "1", client.LockOptions{}, never); !errors.Is(err, client.ErrInvalid) {
		t.Error(err)
	}
	if _, err := locks.Get(t.Context(), "1"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("it stays: %v", err)
	}
}

// Who cannot renew the lock within its TTL has lost it, although nobody says so.
func TestLockWithoutAConnection(t *testing.T) {
	t.Parallel()
	l, locks := open[json.RawMessage](t, "locks")
	if _, err := locks.Configure(t.Context(), client.Config{DefaultTTL: client.Never}); err != nil {
		t.Fatal(err)
	}
	c, err := client.Connect(client.Options{Server: l.URL()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	opts := client.LockOptions{TTL: 2 * time.Second, Renew: 100 * time.Millisecond}
	err = c.Lock(t.Context(), "locks", "1", opts, func(ctx context.Context, _ wire.Etag) error {
		c.Close()
		<-ctx.Done()
		return nil
	})
	if !errors.Is(err, client.ErrLockLost) {
		t.Error(err)
	}
}

// TestLockWithoutAnOutcomeWhereTTLIsOff: the outcome of the write of a lock is lost, and TTL is off in the collection.
// The lock is refused and given back, as if the outcome had come: that of a dead process would stay.
func TestLockWithoutAnOutcomeWhereTTLIsOff(t *testing.T) {
	t.Parallel()
	l, locks := open[json.RawMessage](t, "locks")
	if _, err := locks.Configure(t.Context(), client.Config{}); err != nil {
		t.Fatal(err)
	}
	p := proxy.New(t, strings.TrimPrefix(l.URL(), "nats://"))
	c, err := client.Connect(client.Options{Server: "nats://" + p.Address(), Timeout: short})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	p.Hold(proxy.ToClient) // until the client has given up to wait for the outcome, and reads the lock
	var reads atomic.Bool
	p.CutReply(func(request []byte) bool {
		if bytes.Contains(request, []byte(".read.get.locks.")) && !reads.Swap(true) {
			go p.Release()
		}
		return false
	}, 0)
	err = c.Lock(t.Context(), "locks", "1", client.LockOptions{}, func(context.Context, wire.Etag) error {
		t.Error("it has the lock")
		return nil
	})
	wantIs(t, err, client.ErrInvalid)
	if !reads.Load() {
		t.Error("the outcome was not lost: the test shows nothing")
	}
	if _, err := locks.Get(t.Context(), "1"); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("after that: %v", err)
	}
}
