package client_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestClocks: deadlines and kept clocks by the options, and the properties of a configuration.
func TestClocks(t *testing.T) {
	t.Parallel()
	_, orders := open[Order](t, "orders")
	ctx := t.Context()
	want := client.Config{DefaultTTL: time.Hour, Indexing: wire.Consistent, MinTTL: time.Minute, MaxTTL: 2 * time.Hour,
		WarnBefore: []time.Duration{5 * time.Minute, time.Minute}, SlideOnRead: true, NoEventBody: true, Changes: true}
	w, err := orders.Configure(ctx, want)
	want.Etag = w.Etag
	if got, readErr := orders.Config(ctx); err != nil || readErr != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, %v", got, err, readErr)
	}
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: time.Hour, MinTTL: 1500 * time.Millisecond})
	wantIs(t, err, client.ErrInvalid)
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: time.Hour, WarnBefore: []time.Duration{client.Never}})
	wantIs(t, err, client.ErrInvalid)

	at := time.Now().Add(90 * time.Minute).Truncate(time.Millisecond)
	expires := func(w client.Written, err error) time.Time {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
		return w.ExpiresAt
	}
	if got := expires(orders.Create(ctx, "1", Order{}, client.ExpiresAt(at.Add(-time.Microsecond)))); !got.Equal(at) {
		t.Errorf("expires at %s, want %s", got, at)
	}
	if got := expires(orders.Touch(ctx, "1")); !got.Equal(at) {
		t.Errorf("after a touch it expires at %s, want %s", got, at)
	}
	if got := expires(orders.Touch(ctx, "1", client.ExpiresAt(at.Add(time.Second)))); !got.Equal(at.Add(time.Second)) {
		t.Errorf("expires at %s, a second after %s", got, at)
	}
	first := expires(orders.Upsert(ctx, "1", Order{}))
	if got := expires(orders.Patch(ctx, "1", json.RawMessage(`{}`), client.KeepClock())); !got.Equal(first) {
		t.Errorf("expires at %s, want %s", got, first)
	}
	begin := time.Now().Add(-10 * time.Minute).Truncate(time.Millisecond)
	if got := expires(orders.Upsert(ctx, "1", Order{}, client.ClockFrom(begin),
		client.TTL(time.Hour))); !got.Equal(begin.Add(time.Hour)) {
		t.Errorf("from %s it expires at %s", begin, got)
	}
	if got := expires(orders.Touch(ctx, "1",
		client.ClockFrom(begin.Add(time.Minute)))); !got.Equal(begin.Add(time.Hour + time.Minute)) {
		t.Errorf("touched, a minute after %s, it expires at %s", begin, got)
	}
	if w, err := orders.Create(ctx, "over", Order{}, client.ClockFrom(begin), client.TTL(time.Minute)); err != nil ||
		w.ExpiresAt.After(w.Ts) {
		t.Errorf("one that is over: %+v, %v", w, err)
	}
	_, err = orders.Upsert(ctx, "1", Order{}, client.ClockFrom(at))
	wantIs(t, err, client.ErrRejected)
	_, err = orders.Upsert(ctx, "1", Order{}, client.ExpiresAt(at.Add(time.Hour)))
	wantIs(t, err, client.ErrRejected)
	testLimited(t, orders, at)

	invalid := func(w client.Written, err error) {
		t.Helper()
		wantIs(t, err, client.ErrInvalid)
	}
	invalid(orders.Upsert(ctx, "1", Order{}, client.ExpiresAt(at), client.TTL(time.Hour)))
	invalid(orders.Delete(ctx, "1", client.ExpiresAt(at)))
	invalid(orders.Delete(ctx, "1", client.ClockFrom(begin)))
	invalid(orders.Create(ctx, "1", Order{}, client.KeepClock()))
	invalid(orders.Touch(ctx, "1", client.KeepClock()))
	invalid(orders.Drop(ctx, client.KeepClock()))
	invalid(orders.Configure(ctx, client.Config{}, client.ExpiresAt(at)))
	if _, err := orders.Batch(ctx, nil, client.KeepClock()); err == nil {
		t.Error("a batch takes the option")
	}
	batch, err := orders.Batch(ctx, func(id string, w client.Written, err error) {
		if err != nil || !w.ExpiresAt.Equal(at) {
			t.Errorf("%s in a batch expires at %s, %v; want %s", id, w.ExpiresAt, err, at)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := batch.Upsert(ctx, "2", Order{}, client.ExpiresAt(at), client.KeepClock()); err != nil {
		t.Error(err)
	}
	if err := batch.Close(ctx); err != nil {
		t.Error(err)
	}
}

// testLimited: a limit ends a document whatever renews its TTL.
func testLimited(t *testing.T, orders *client.Collection[Order], at time.Time) {
	t.Helper()
	ctx := t.Context()
	for _, c := range []struct {
		write func() (client.Written, error)
		want  bool // the limit is the deadline
	}{
		{func() (client.Written, error) {
			return orders.Upsert(ctx, "1", Order{}, client.TTL(2*time.Hour), client.NotAfter(at.Add(-time.Microsecond)))
		}, true},
		{func() (client.Written, error) { return orders.Touch(ctx, "1") }, true},
		{func() (client.Written, error) { return orders.Patch(ctx, "1", json.RawMessage(`{"ttl":3600}`)) }, false},
		{func() (client.Written, error) { return orders.Patch(ctx, "1", json.RawMessage(`{"ttl":null}`)) }, true},
		{func() (client.Written, error) {
			return orders.Replace(ctx, "1", Order{}, client.TTL(time.Hour), client.NotAfter(at))
		}, false},
	} {
		if w, err := c.write(); err != nil || w.ExpiresAt.Equal(at) != c.want {
			t.Errorf("expires at %s, %v; the limit is %s", w.ExpiresAt, err, at)
		}
	}
	_, err := orders.Upsert(ctx, "1", Order{}, client.NotAfter(at))
	wantIs(t, err, client.ErrRejected)
	invalid := func(_ client.Written, err error) {
		t.Helper()
		wantIs(t, err, client.ErrInvalid)
	}
	invalid(orders.Upsert(ctx, "1", Order{}, client.ExpiresAt(at), client.NotAfter(at)))
	invalid(orders.Patch(ctx, "1", json.RawMessage(`{"ttl":60}`), client.NotAfter(at)))
	invalid(orders.Touch(ctx, "1", client.NotAfter(at)))
	invalid(orders.Configure(ctx, client.Config{}, client.NotAfter(at)))
	invalid(orders.Upsert(ctx, "1", Order{}, client.TTL(time.Hour), client.NotAfter(time.Date(10000, 1, 1, 0, 0, 0, 0,
		time.UTC))))
}
