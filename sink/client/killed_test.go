package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/processor"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// killable is a NATS server that a test kills, and lapse on it, which a test starts.
type killable struct {
	t     *testing.T
	nats  *harness.NATS
	redis *harness.Redis
	lapse *harness.Processor

	options processor.Options
}

func newKillable(t *testing.T) *killable {
	k := &killable{t: t, nats: harness.StartNATS(t, harness.NATSOptions{}), redis: harness.StartRedis(t,
		harness.RedisOptions{})}
	k.start()
	return k
}

func (k *killable) start() {
	k.t.Helper()
	k.lapse = harness.StartProcessor(k.t, k.nats.URL(), k.redis.Address(), k.options)
}

func (k *killable) stop() {
	k.t.Helper()
	if err := k.lapse.Stop(); err != nil {
		k.t.Fatal(err)
	}
}

func (k *killable) orders(timeout time.Duration) *client.Collection[Order] {
	return k.noticing(timeout, nil)
}

func (k *killable) noticing(timeout time.Duration, notice func(string)) *client.Collection[Order] {
	k.t.Helper()
	c, err := client.Connect(client.Options{Server: k.nats.URL(), Timeout: timeout, Notice: notice})
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(c.Close)
	orders, err := client.Open[Order](c, "orders")
	if err != nil {
		k.t.Fatal(err)
	}
	return orders
}

func wantIs(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, w := range want {
		if !errors.Is(err, w) {
			t.Errorf("error %v: want one that is %q", err, w)
		}
	}
}

// TestABatchWaitsForLapse: a batch that begins before lapse on an external NATS does waits for it, as one write does.
//
// It fails if the batch ends because nobody has the log yet.
func TestABatchWaitsForLapse(t *testing.T) {
	t.Parallel()
	k := &killable{t: t, nats: harness.StartNATS(t, harness.NATSOptions{}), redis: harness.StartRedis(t,
		harness.RedisOptions{})}
	orders, ended := k.orders(limit), make(chan error, 1)
	go func() {
		b, err := orders.Batch(t.Context(), nil)
		if err == nil {
			err = errors.Join(b.Upsert(t.Context(), "1", Order{}), b.Close(t.Context()))
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		t.Fatalf("without lapse the batch has ended: %v", err)
	case <-time.After(time.Second):
	}
	k.lapse = harness.StartProcessor(t, k.nats.URL(), k.redis.Address(), processor.Options{OpenCollections: true})
	// A write may come before lapse lets writes make collections. Then its outcome says so.
	if err := <-ended; err != nil && !errors.Is(err, client.ErrNoCollection) {
		t.Error(err)
	}
}

// A server that was killed has the message or not, and the client does not know. Repeated with
// the same message id, the write takes effect once.
func TestUnknownOutcomes(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	orders := k.orders(short)

	// The server receives the message, and dies before it stores it.
	k.nats.Stop()
	_, err := orders.Upsert(t.Context(), "1", Order{Item: "tea"}, client.MessageID("a"))
	wantIs(t, err, client.ErrUnknownOutcome, client.ErrUnavailable)
	wantError(t, err, "orders/1: no acknowledgement within 3s", "if it has a message id, you can send it again")
	k.nats.Kill()
	k.nats.Start()
	patient := k.orders(limit)
	w, err := patient.Upsert(t.Context(), "1", Order{Item: "tea"}, client.MessageID("a"))
	if err != nil || w.Duplicate || !w.Created {
		t.Errorf("repeated: %+v, %v", w, err)
	}

	// The log has the message, and no outcome comes.
	k.stop()
	first, err := orders.Patch(t.Context(), "1", map[string]int{"count": 1}, client.MessageID("b"))
	wantIs(t, err, client.ErrUnknownOutcome, client.ErrUnavailable)
	wantError(t, err, "the message is durable")
	k.start()
	again, err := patient.Patch(t.Context(), "1", map[string]int{"count": 1}, client.MessageID("b"))
	if err != nil || !again.Duplicate || again.Seq != first.Seq || first.Seq == 0 {
		t.Errorf("repeated: %+v, %v; first %+v", again, err, first)
	}

	// The caller does not wait.
	k.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = orders.Touch(ctx, "1")
	wantIs(t, err, client.ErrUnknownOutcome, context.DeadlineExceeded)
	k.start()
}

// Without a connection nothing is sent: a write waits for one, and then takes effect, or has
// certainly not.
func TestWriteWithoutAConnection(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	orders, patient := k.orders(short), k.orders(limit)
	k.nats.Kill()
	_, err := orders.Upsert(t.Context(), "1", Order{})
	for errors.Is(err, client.ErrUnknownOutcome) { // the client had not noticed yet
		_, err = orders.Upsert(t.Context(), "1", Order{})
	}
	wantIs(t, err, client.ErrUnavailable)
	_, err = orders.Get(t.Context(), "1")
	wantIs(t, err, client.ErrUnavailable)

	ended := make(chan error, 1)
	go func() {
		_, err := patient.Upsert(t.Context(), "1", Order{})
		ended <- err
	}()
	k.nats.Start()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The outcome of a message that the log has comes after the server was killed and has started
// again, while the client still waits.
func TestTheOutcomeComesAfterAReconnect(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	again := make(chan struct{})
	orders := k.noticing(limit, func(text string) {
		if strings.HasPrefix(text, "connected again") {
			close(again)
		}
	})
	k.stop()
	type result struct {
		client.Written
		err error
	}
	ended := make(chan result, 1)
	go func() {
		w, err := orders.Upsert(t.Context(), "1", Order{})
		ended <- result{w, err}
	}()
	js := harness.NewClient(t, k.nats.URL(), "").JS
	harness.Until(t, limit, "the log has the write", func(ctx context.Context) error {
		stream, err := js.Stream(ctx, "LAPSE_LOG")
		if err != nil {
			return err
		}
		_, err = stream.GetLastMsgForSubject(ctx, "lapse.write.upsert.orders.1")
		return err
	})
	k.nats.Kill()
	k.nats.Start()
	<-again // lapse does not store outcomes
	k.start()
	if r := <-ended; r.err != nil || !r.Created || r.Etag == 0 {
		t.Errorf("%+v", r)
	}
}

// A batch during which the server is killed loses no write silently: what ended without an
// error is in the log, with or without outcomes.
func TestBatchAcrossAKill(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]client.Option{"outcomes": nil, "acknowledgements": {client.AckOnly()}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newKillable(t)
			orders := k.orders(10 * time.Second)
			var mu sync.Mutex
			done := map[string]error{}
			batch, err := orders.Batch(t.Context(), func(id string, _ client.Written, err error) {
				mu.Lock()
				defer mu.Unlock()
				if _, again := done[id]; again {
					t.Errorf("%s is done twice", id)
				}
				done[id] = err
			}, options...)
			if err != nil {
				t.Fatal(err)
			}
			const all, killAt = 6000, 2000
			sent := 0
			for ; sent < all; sent++ {
				if sent == killAt {
					k.nats.Kill()
					k.nats.Start()
				}
				if err := batch.Upsert(t.Context(), fmt.Sprint(sent), Order{Count: sent}); err != nil {
					t.Logf("the batch has failed at %d: %v", sent, err)
					break
				}
			}
			closeErr := batch.Close(t.Context())
			in := map[string]bool{}
			for _, m := range harness.NewClient(t, k.nats.URL(), "").Log() {
				in[m.Subject] = true
			}
			failed := 0
			for id, err := range done {
				switch {
				case err == nil && !in[wire.DefaultPrefix.Write(wire.Upsert, "orders", id)]:
					t.Fatalf("%s ended without an error, and the log does not have it", id)
				case err != nil:
					failed++
					wantIs(t, err, client.ErrUnavailable)
					if in[wire.DefaultPrefix.Write(wire.Upsert, "orders", id)] {
						wantIs(t, err, client.ErrUnknownOutcome)
					}
				}
			}
			t.Logf("%d sent, %d failed, close: %v", sent, failed, closeErr)
			if len(done) < sent || len(done) > sent+1 {
				t.Errorf("%d of %d are done", len(done), sent)
			}
			if sent < killAt || len(done)-failed < killAt/2 {
				t.Errorf("only %d of %d ended well", len(done)-failed, sent)
			}
		})
	}
}

// OnExpired goes on after the server was killed, and misses nothing.
func TestOnExpiredAcrossAKill(t *testing.T) {
	t.Parallel()
	k := newKillable(t)
	orders := k.orders(limit)
	operator := harness.NewClient(t, k.nats.URL(), "")
	publish := func(from, to int) {
		for i := from; i < to; i++ {
			body := fmt.Sprintf(`{"id":"%d","collection":"orders","document":{},"etag":"7","ts":"2026-01-31T12:00:00.000Z",`+
				`"ttl":5,"expiredAt":"2026-01-31T12:00:05.000Z"}`, i)
			if _, err := operator.JS.Publish(t.Context(), wire.DefaultPrefix.Expired("orders", fmt.Sprint(i)), []byte(body),
				jetstream.WithRetryAttempts(1000)); err != nil {
				t.Fatal(err)
			}
		}
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	const all = 400
	var mu sync.Mutex
	seen := map[string]int{}
	half := make(chan struct{})
	ended := make(chan error, 1)
	publish(0, all/2)
	go func() {
		ended <- orders.OnExpired(ctx, "test", func(_ context.Context, e client.Expired[Order]) error {
			mu.Lock()
			defer mu.Unlock()
			if seen[e.ID]++; len(seen) == all/4 && seen[e.ID] == 1 {
				close(half)
			}
			if len(seen) == all {
				stop()
			}
			return nil
		}, client.Since(time.Time{}), client.Concurrency(4), client.AckWait(2*time.Second))
	}()
	<-half
	k.nats.Kill()
	k.nats.Start()
	harness.Until(t, limit, "the test is connected", func(context.Context) error {
		if !operator.NC.IsConnected() {
			return errors.New("it is not")
		}
		return nil
	})
	publish(all/2, all)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	again := 0
	for _, n := range seen {
		again += n - 1
	}
	if len(seen) != all {
		t.Errorf("%d events came, want %d", len(seen), all)
	}
	t.Logf("%d came again", again)
}
