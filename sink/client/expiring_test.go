package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// warn publishes a warning, 5 s before 2026-01-31T12:00:30Z.
func (b *bench) warn(t *testing.T, collection, id, document string) {
	t.Helper()
	e := wire.Expiring{ID: id, Collection: collection, Document: []byte(document), Omitted: document == "", Etag: 7,
		Ts: 1769860800000, TTL: 30, ExpiresAt: 1769860830000, Before: 5}
	if err := harness.Warn(t.Context(), b.nc, e, trace); err != nil {
		t.Fatal(err)
	}
}

// TestOnExpiring: the warnings of the collection come, with all that they say, and nothing else does. An
// error comes back; a document of another type counts as one; Discard ends a warning.
//
// Goes red if a warning is read as an expiry event, or if the consumer has another filter.
func TestOnExpiring(t *testing.T) {
	b := newBench(t, true)
	b.event(t, "orders", "expired")
	b.reject(t, "orders.rejected")
	b.warn(t, "carts", "other", `{}`)
	b.warn(t, "orders", "discarded", `{}`)
	b.warn(t, "orders", "unfit", `{"item":7}`)
	b.warn(t, "orders", "omitted", "")
	b.warn(t, "orders", "last", `{"item":"tea"}`)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	var got []client.Expiring[Order]
	err := b.orders(t).OnExpiring(ctx, "test", func(_ context.Context, e client.Expiring[Order]) error {
		got = append(got, e)
		switch {
		case e.ID == "discarded":
			return client.Discard(errors.New("of no interest"))
		case e.ID == "last" && e.Attempt == 1:
			return errors.New("not yet")
		case e.ID == "last":
			stop()
		}
		return nil
	}, fromTheFirst, client.Concurrency(1), client.Backoff(10*time.Millisecond, 20*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	ts := time.UnixMilli(1769860800000).UTC()
	whole := func(id string, attempt int, value Order, omitted bool) client.Expiring[Order] {
		return client.Expiring[Order]{Collection: "orders", ID: id, Value: value, Omitted: omitted, Etag: 7, Ts: ts,
			TTL:       30 * time.Second,
			ExpiresAt: ts.Add(30 * time.Second), Before: 5 * time.Second, Traceparent: trace, Attempt: attempt}
	}
	want := []client.Expiring[Order]{whole("discarded", 1, Order{}, false), whole("omitted", 1, Order{}, true),
		whole("last", 1, Order{Item: "tea"}, false), whole("last", 2, Order{Item: "tea"}, false)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Its name is for warnings alone.
	err = b.orders(t).OnExpired(t.Context(), "test", nil)
	wantIs(t, err, client.ErrInvalid)
	wantError(t, err, "is for [lapse.expiring.orders.>] instead of [lapse.expired.orders.>]")
}

// TestWatchWarnings: a watch has warnings if it is asked for them, beside the events and in the order of
// the stream, also of one document.
func TestWatchWarnings(t *testing.T) {
	b := newBench(t, true)
	all := func() {
		b.warn(t, "orders", "a.b", `{"a": "<"}`)
		b.reject(t, "orders.a%2Eb")
		b.event(t, "orders", "a.b")
		b.warn(t, "orders", "c", `{}`)
		b.warn(t, "carts", "c", `{}`)
		b.event(t, "orders", "last")
	}
	for name, c := range map[string]struct {
		opts client.WatchOptions
		want []string
	}{
		"all": {client.WatchOptions{Warnings: true}, []string{"expiring orders/a.b", "expired orders/a.b",
			"expiring orders/c", "expiring carts/c", "expired orders/last"}},
		"collection": {client.WatchOptions{Collection: "orders", Warnings: true, Rejected: true},
			[]string{"expiring orders/a.b", "rejected lapse.write.upsert.orders.a%2Eb", "expired orders/a.b",
				"expiring orders/c", "expired orders/last"}},
		"document": {client.WatchOptions{Collection: "orders", ID: "a.b", Warnings: true}, []string{"expiring orders/a.b",
			"expired orders/a.b"}},
		"without": {client.WatchOptions{}, []string{"expired orders/a.b", "expired orders/last"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, b.watch(t, c.opts, len(c.want), all)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	_, err := b.js.Publish(t.Context(), "lapse.expiring.orders.x", []byte("rubbish"))
	if err == nil {
		err = b.client(t, limit).Watch(t.Context(), client.WatchOptions{Warnings: true, Since: new(time.Unix(0, 0))},
			func(client.Notification) error { return nil })
	}
	wantError(t, err, "warning ", "on lapse.expiring.orders.", "is not valid")
}
