package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// prompt is how soon lapse must go on once a connection is there again. If it waited out
// the timeouts of the lost answers, it would take 30 seconds or more.
const prompt = 25 * time.Second

// promptly calls an attempt that returns how long lapse took to go on. A busy machine may
// be slow once, so that one prompt attempt of three is enough.
func promptly(t *testing.T, attempt func(n int) time.Duration) {
	t.Helper()
	var took time.Duration
	for n := range 3 {
		if took = attempt(n); took < prompt {
			return
		}
	}
	t.Errorf("lapse went on after %v, want less than %v", took, prompt)
}

// answersLost starts lapse on a nats-server whose answers a proxy can hold.
func answersLost(t *testing.T) (w *world, toNATS *harness.Proxy) {
	t.Helper()
	w = servers(t, harness.RedisOptions{})
	toNATS = harness.NewProxy(t, harness.Address(w.nats.Port))
	w.lapse = harness.StartLapse(t, "nats://"+toNATS.Address(), w.redis.Address(), "--duplicate-window",
		duplicateWindow.String())
	return w, toNATS
}

// TestG1_TheAnswerToATakeoverIsLost: the connection to NATS is cut while lapse takes a shard over. The answer to its
// request never comes, and it must ask again at once.
//
// It fails if a request waits out its timeout after its connection is lost.
func TestG1_TheAnswerToATakeoverIsLost(t *testing.T) {
	t.Parallel()
	w, toNATS := answersLost(t)
	w.Want(201, wire.Create, "c", "a", `{}`)
	promptly(t, func(int) time.Duration {
		toNATS.Hold(harness.ToClient)
		if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, harness.Limit, "lapse finds the loss", func(ctx context.Context) error {
			if w.lapse.ReadyNow(ctx) == nil {
				return errors.New("/readyz answers 200")
			}
			return nil
		})
		after(t, now()+1500) // by then it takes over
		toNATS.Cut()
		toNATS.Release()
		began := time.Now()
		w.lapse.Ready()
		return time.Since(began)
	})
	w.verify()
}

// TestG9_TheAnswerToATickIsLost: the connection to NATS is cut before a tick is acknowledged. The next tick must not
// wait for that acknowledgement.
//
// It fails if lapse waits for the acknowledgement of a tick after its connection is lost.
func TestG9_TheAnswerToATickIsLost(t *testing.T) {
	t.Parallel()
	w, toNATS := answersLost(t)
	w.Configure("c", `{"defaultTtl":1}`)
	promptly(t, func(n int) time.Duration {
		id := string(rune('a' + n))
		first := w.Want(201, wire.Create, "c", id+"1", `{}`)
		second := w.Want(201, wire.Create, "c", id+"2", `{"ttl":2}`)
		toNATS.Hold(harness.ToClient)
		after(t, *first.ExpiresAt+500)
		toNATS.Cut()
		toNATS.Release()
		began := time.Now()
		w.ExpiryOf("c", id+"1", first.Etag, harness.Limit)
		w.ExpiryOf("c", id+"2", second.Etag, harness.Limit)
		return time.Since(began)
	})
	w.verify()
}
