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
		WarnBefore: []time.Duration{5 * time.Minute, time.Minute}, SlideOnRead: true}
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
	_, err = orders.Upsert(ctx, "1", Order{}, client.ExpiresAt(at.Add(time.Hour)))
	wantIs(t, err, client.ErrRejected)

	invalid := func(w client.Written, err error) {
		t.Helper()
		wantIs(t, err, client.ErrInvalid)
	}
	invalid(orders.Upsert(ctx, "1", Order{}, client.ExpiresAt(at), client.TTL(time.Hour)))
	invalid(orders.Delete(ctx, "1", client.ExpiresAt(at)))
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
