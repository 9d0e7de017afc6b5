package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// prompt is how soon lapse must go on when a connection is there again: sooner
// than the shortest of its timeouts for an answer.
const prompt = 8 * time.Second

// answersLost is lapse on a nats-server whose answers can be held up.
func answersLost(t *testing.T) (w *world, toNATS *harness.Proxy) {
	t.Helper()
	w = servers(t, harness.RedisOptions{})
	toNATS = harness.NewProxy(t, harness.Address(w.nats.Port))
	w.lapse = harness.StartLapse(t, "nats://"+toNATS.Address(), w.redis.Address(), "--duplicate-window", duplicateWindow.String())
	return w, toNATS
}

// An answer that was on its way when the connection was cut never comes: a
// partition that is being taken over asks again at once.
//
// It fails if a request waits out its timeout though its connection is gone.
func TestG1_TheAnswerToATakeoverIsLost(t *testing.T) {
	t.Parallel()
	w, toNATS := answersLost(t)
	w.Want(201, wire.Create, "c", "a", `{}`)
	toNATS.Hold(harness.ToClient)
	if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	harness.Until(t, harness.Limit, "the loss is noticed", func(ctx context.Context) error {
		if w.lapse.ReadyNow(ctx) == nil {
			return errors.New("lapse says that it is ready")
		}
		return nil
	})
	after(t, now()+1500) // and a takeover has begun
	toNATS.Cut()
	toNATS.Release()
	harness.Until(t, prompt, "lapse is ready again", w.lapse.ReadyNow)
	w.verify()
}

// Likewise the acknowledgement of a tick: the next one is not held up by it.
//
// It fails if a tick that is not acknowledged is waited for though its
// connection is gone.
func TestG9_TheAnswerToATickIsLost(t *testing.T) {
	t.Parallel()
	w, toNATS := answersLost(t)
	w.Configure("c", `{"defaultTtl":1}`)
	first := w.Want(201, wire.Create, "c", "a", `{}`)
	second := w.Want(201, wire.Create, "c", "b", `{"ttl":2}`)
	toNATS.Hold(harness.ToClient)
	after(t, *first.ExpiresAt+500)
	toNATS.Cut()
	toNATS.Release()
	w.ExpiryOf("c", "a", first.Etag, prompt)
	w.ExpiryOf("c", "b", second.Etag, prompt)
	w.verify()
}
