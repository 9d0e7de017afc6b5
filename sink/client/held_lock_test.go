//go:build held

package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// others lets the lock "1" expire, and another owner take it; it returns the etag.
func others(t *testing.T, locks *client.Collection[json.RawMessage], expire func(string)) (etag wire.Etag) {
	ctx := context.WithoutCancel(t.Context())
	if _, err := locks.Get(ctx, "1"); err == nil {
		expire("1")
	}
	w, err := locks.Create(ctx, "1", json.RawMessage(`{"owner":"another"}`), client.TTL(time.Hour))
	if err != nil {
		t.Error(err)
	}
	return w.Etag
}

// checkOthers checks that the other owner has the lock as it took it.
func checkOthers(t *testing.T, locks *client.Collection[json.RawMessage], etag wire.Etag) {
	t.Helper()
	doc, err := locks.Get(t.Context(), "1")
	if err != nil || doc.Etag != etag {
		t.Errorf("the lock of the other owner: %+v, %v, want its etag %d", doc, err, etag)
	}
}

// TestHeldLock: between two steps of a lock it expires, and another owner takes it: before the first one releases it,
// between two renewals, and between the two tries of a release. The token of the other owner is greater, its lock stays,
// and who still works hears that the lock is lost.
func TestHeldLock(t *testing.T) {
	for operation, work := range map[string]func(context.Context, *client.Collection[json.RawMessage]) error{
		"Client.Lock": func(context.Context, *client.Collection[json.RawMessage]) error { return nil },
		"heldLock.keep": func(ctx context.Context, _ *client.Collection[json.RawMessage]) error {
			<-ctx.Done()
			return context.Cause(ctx)
		},
		// A renewal whose outcome was lost: the owner does not know the etag.
		"heldLock.release": func(ctx context.Context, locks *client.Collection[json.RawMessage]) error {
			_, err := locks.Touch(ctx, "1")
			return err
		},
	} {
		t.Run(operation, func(t *testing.T) {
			held.Each(t, "sink/client."+operation, held.Takeover, func(t *testing.T, during func(func())) {
				c, locks, expire := openLocks(t)
				var token, other wire.Etag
				during(func() { other = others(t, locks, expire) })
				opts := client.LockOptions{TTL: time.Minute, Renew: 30 * time.Second}
				if operation == "heldLock.keep" {
					opts.Renew = 10 * time.Millisecond
				}
				err := c.Lock(t.Context(), "locks", "1", opts, func(ctx context.Context, etag wire.Etag) error {
					token = etag
					return work(ctx, locks)
				})
				switch lost := errors.Is(err, client.ErrLockLost); {
				case other == 0:
					return // there are fewer gaps
				case operation == "heldLock.keep" && !lost, operation != "heldLock.keep" && err != nil:
					t.Errorf("the lock ends with %v", err)
				case other <= token:
					t.Errorf("the token of the other owner is %d, that of the first one %d", other, token)
				}
				checkOthers(t, locks, other)
			})
		})
	}
}

// TestHeldTakeIsUndone: a lock in a collection whose TTL is off is given back. Before that, another owner has taken it:
// its lock stays.
func TestHeldTakeIsUndone(t *testing.T) {
	held.Each(t, "sink/client.heldLock.take", held.Takeover, func(t *testing.T, during func(func())) {
		c, locks, _ := openLocks(t)
		if _, err := locks.Configure(t.Context(), client.Config{}); err != nil {
			t.Fatal(err)
		}
		var other wire.Etag
		during(func() {
			ctx := context.WithoutCancel(t.Context())
			_, err := locks.Delete(ctx, "1")
			if err == nil {
				_, err = locks.Configure(ctx, client.Config{DefaultTTL: client.Never})
			}
			if err != nil {
				t.Error(err)
			}
			other = others(t, locks, nil)
		})
		err := c.Lock(t.Context(), "locks", "1", client.LockOptions{}, func(context.Context, wire.Etag) error {
			t.Error("it has the lock")
			return nil
		})
		wantIs(t, err, client.ErrInvalid)
		if other != 0 { // otherwise there are fewer gaps
			checkOthers(t, locks, other)
		}
	})
}

// TestHeldRenewal: between two renewals the connection is lost, and with the next one the outcome. The owner goes on:
// nobody else has the lock, and it knows the etag again by the time it releases the lock.
func TestHeldRenewal(t *testing.T) {
	held.Each(t, "sink/client.heldLock.keep", held.Reconnection, func(t *testing.T, during func(func())) {
		l, locks := open[json.RawMessage](t, "locks")
		if _, err := locks.Configure(t.Context(), client.Config{DefaultTTL: client.Never}); err != nil {
			t.Fatal(err)
		}
		c := client.NewProxied(t, l.URL(), short)
		cut := make(chan wire.Etag, 1)
		during(func() {
			doc, err := locks.Get(context.WithoutCancel(t.Context()), "1")
			if err != nil {
				t.Error(err)
			}
			c.Reconnect()
			c.Proxy.CutReply(nil, 0)
			cut <- doc.Etag
		})
		opts := client.LockOptions{TTL: 10 * time.Minute, Renew: 50 * time.Millisecond}
		err := c.Lock(t.Context(), "locks", "1", opts, func(ctx context.Context, _ wire.Etag) error {
			before := <-cut
			harness.Until(t, limit, "the lock is renewed twice more", func(context.Context) error {
				doc, err := locks.Get(t.Context(), "1")
				if err == nil && doc.Etag <= before+2 {
					err = errors.New("it is not")
				}
				return err
			})
			return context.Cause(ctx)
		})
		if err != nil {
			t.Error(err)
		}
		if _, err := locks.Get(t.Context(), "1"); !errors.Is(err, client.ErrNotFound) {
			t.Errorf("after the work: %v", err)
		}
	})
}
