package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
	"github.com/seed18712806/lapse/sink/wire"
)

// open opens a collection on a lapse of the test's own.
func open[T any](t *testing.T, name string) (*clienttest.Lapse, *client.Collection[T]) {
	t.Helper()
	l := clienttest.Start(t, clienttest.OpenCollections)
	o, err := client.Open[T](l.Client(), name)
	if err != nil {
		t.Fatal(err)
	}
	return l, o
}

// A TTL in a collection whose TTL is off is a warning, of a batch's writes too.
func TestWarning(t *testing.T) {
	t.Parallel()
	_, fresh := open[Order](t, "fresh")
	ctx := t.Context()
	if w, err := fresh.Upsert(ctx, "1", Order{}); err != nil || !strings.HasPrefix(w.Warning, "collection fresh is not "+
		"configured") {
		t.Errorf("where the write makes the collection: %+v, %v", w, err)
	}
	if _, err := fresh.Configure(ctx, client.Config{}); err != nil {
		t.Fatal(err)
	}
	if w, err := fresh.Upsert(ctx, "1", Order{}); err != nil || w.Warning != "" {
		t.Errorf("without a TTL: %+v, %v", w, err)
	}
	const want = "TTL is off in collection fresh, so this document will not expire: "
	if w, err := fresh.Upsert(ctx, "1", Order{}, client.TTL(time.Hour)); err != nil || !strings.HasPrefix(w.Warning,
		want) {
		t.Errorf("with one: %+v, %v", w, err)
	}
	warnings := 0
	b, err := fresh.Batch(ctx, func(_ string, w client.Written, err error) {
		if err != nil {
			t.Error(err)
		}
		if strings.HasPrefix(w.Warning, want) {
			warnings++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, ttl := range []time.Duration{time.Hour, client.Never} {
		if err := b.Upsert(ctx, "2", Order{}, client.TTL(ttl)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(ctx); err != nil || warnings != 1 {
		t.Errorf("%d warnings of a batch, want 1; %v", warnings, err)
	}
}

func TestOperations(t *testing.T) {
	t.Parallel()
	l, orders := open[Order](t, "orders")
	ctx := t.Context()
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	config, err := orders.Config(ctx)
	if err != nil || !reflect.DeepEqual(config, client.Config{Indexing: wire.Consistent}) {
		t.Errorf("never configured: %+v, %v", config, err)
	}
	first, err := orders.Configure(ctx, client.Config{DefaultTTL: time.Minute})
	if err != nil || first.Etag == 0 {
		t.Errorf("%+v, %v", first, err)
	}
	_, err = orders.Configure(ctx, client.Config{DefaultTTL: client.Never, Indexing: wire.Lazy},
		client.IfMatch(first.Etag))
	if err != nil {
		t.Error(err)
	}
	_, err = orders.Configure(ctx, client.Config{}, client.IfMatch(first.Etag))
	wantIs(t, err, client.ErrPrecondition)
	if config, err = orders.Config(ctx); err != nil || config.DefaultTTL != client.Never || config.Indexing != wire.Lazy ||
		config.Etag == 0 {
		t.Errorf("%+v, %v", config, err)
	}

	created, err := orders.Create(ctx, "a.b/c", Order{Item: "<tea>"}, client.TTL(time.Hour), client.Traceparent(trace))
	if err != nil || !created.Created || created.Seq != uint64(created.Etag) ||
		created.ExpiresAt.Sub(created.Ts) != time.Hour {
		t.Errorf("%+v, %v", created, err)
	}
	doc, err := orders.Get(ctx, "a.b/c")
	if err != nil || doc.Value.Item != "<tea>" || doc.ID != "a.b/c" || doc.Etag != created.Etag ||
		!doc.Ts.Equal(created.Ts) || !doc.ExpiresAt.Equal(created.ExpiresAt) {
		t.Errorf("%+v, %v", doc, err)
	}
	replaced, err := orders.Replace(ctx, "a.b/c", Order{Item: "coffee"}, client.IfExists())
	if err != nil || replaced.Created || !replaced.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", replaced, err)
	}
	if _, err := orders.Patch(ctx, "a.b/c", json.RawMessage(`{"count":3}`), client.TTL(time.Minute)); err != nil {
		t.Error(err)
	}
	if touched, err := orders.Touch(ctx, "a.b/c"); err != nil || touched.ExpiresAt.Sub(touched.Ts) != time.Minute {
		t.Errorf("%+v, %v", touched, err)
	}
	if doc, err = orders.Get(ctx, "a.b/c"); err != nil || doc.Value != (Order{"coffee", 3}) {
		t.Errorf("%+v, %v", doc, err)
	}
	if n, err := orders.Count(ctx); err != nil || n.Live != 1 {
		t.Errorf("%+v, %v", n, err)
	}
	if buckets, err := orders.Forecast(ctx, time.Hour, 2); err != nil || buckets[0].Count != 1 || buckets[1].Count != 0 {
		t.Errorf("%+v, %v", buckets, err)
	}
	if deleted, err := orders.Delete(ctx, "a.b/c"); err != nil || deleted.Etag != 0 || deleted.Seq == 0 {
		t.Errorf("%+v, %v", deleted, err)
	}
	for name, call := range map[string]func() error{
		"get":     func() error { _, err := orders.Get(ctx, "a.b/c"); return err },
		"replace": func() error { _, err := orders.Replace(ctx, "a.b/c", Order{}); return err },
		"patch":   func() error { _, err := orders.Patch(ctx, "a.b/c", Order{}); return err },
		"touch":   func() error { _, err := orders.Touch(ctx, "a.b/c"); return err },
		"delete":  func() error { _, err := orders.Delete(ctx, "a.b/c"); return err },
	} {
		if err := call(); !errors.Is(err, client.ErrNotFound) || errors.Is(err, client.ErrUnavailable) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	w, err := orders.Upsert(ctx, "1", Order{}, client.AckOnly())
	if err != nil || w.Seq == 0 || w.Etag != 0 {
		t.Errorf("%+v, %v", w, err)
	}
	_, err = orders.Drop(ctx)
	if err != nil {
		t.Error(err)
	}
	all, err := l.Client().Collections(ctx, wire.CollectionsRequest{})
	if err != nil || len(all.Collections) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// An argument that is wrong is an ErrInvalid that says what is allowed; nothing is sent.
func TestInvalidArguments(t *testing.T) {
	t.Parallel()
	b := newBench(t, true)
	c := b.client(t, limit)
	for _, name := range []string{"", "a.b", "ä"} {
		_, err := client.Open[Order](c, name)
		wantIs(t, err, client.ErrInvalid)
	}
	ctx, orders := t.Context(), b.orders(t)
	for d, text := range map[time.Duration]string{
		0: "0s", 1: "1ns", time.Second + time.Millisecond: "1.001s", -time.Second: "-1s", -2: "-2ns",
		(math.MaxInt32 + 1) * time.Second: "596523h14m8s",
	} {
		_, err := orders.Upsert(ctx, "1", Order{}, client.TTL(d))
		wantIs(t, err, client.ErrInvalid)
		wantError(t, err, "orders/1: TTL "+text+" is not valid: use a whole number of seconds from 1 s to 2147483647 s, or "+
			"client.Never")
		if d == 0 {
			continue // off
		}
		_, err = orders.Configure(ctx, client.Config{DefaultTTL: d})
		wantIs(t, err, client.ErrInvalid)
		wantError(t, err, "orders: default TTL "+text+" is not valid", "or 0 for off")
	}
	raw, err := client.Open[json.RawMessage](c, "orders")
	if err != nil {
		t.Fatal(err)
	}
	invalid := func(_ any, err error) {
		t.Helper()
		wantIs(t, err, client.ErrInvalid)
	}
	for _, document := range []string{"", "[]", "null", "7", "{", "{} {}"} {
		invalid(raw.Upsert(ctx, "1", json.RawMessage(document)))
	}
	invalid(raw.Upsert(ctx, "1", json.RawMessage(`{"ttl":5}`), client.TTL(time.Second)))
	invalid(raw.Upsert(ctx, "", json.RawMessage(`{}`)))
	invalid(raw.Get(ctx, ""))
	invalid(orders.Patch(ctx, "1", func() {}))
	invalid(orders.Touch(ctx, "1", client.TTL(time.Second)))
	invalid(orders.Drop(ctx, client.TTL(time.Second)))
	invalid(orders.Touch(ctx, "1", client.IfMatch(0)))
	invalid(orders.Touch(ctx, "1", client.MessageID("")))
	invalid(orders.Touch(ctx, "1", client.MessageID("a\n")))
	invalid(orders.Touch(ctx, "1", client.Traceparent("00")))
	invalid(orders.Forecast(ctx, 0, 1))
	invalid(orders.Forecast(ctx, time.Hour, 0))
	invalid(orders.Forecast(ctx, time.Hour, 1001))
	if n := len(b.messages(t, "LAPSE_LOG")); n != 0 {
		t.Errorf("%d messages were sent", n)
	}
}

// A json.RawMessage comes back as it was, to the byte; a TTL is put in front of it.
func TestRawDocuments(t *testing.T) {
	t.Parallel()
	l, raw := open[json.RawMessage](t, "raw")
	const text = "{ \"b\" : 1.0e2,\n\t\"a\": \"<\\u0026>\" }"
	for id, want := range map[string]string{"plain": text, "ttl": `{"ttl":60,` + text[1:]} {
		var options []client.Option
		if id == "ttl" {
			options = append(options, client.TTL(time.Minute))
		}
		if _, err := raw.Upsert(t.Context(), id, json.RawMessage(text), options...); err != nil {
			t.Fatal(err)
		}
		doc, err := raw.Get(t.Context(), id)
		if err != nil || string(doc.Value) != want {
			t.Errorf("%s: %s, %v; want %s", id, doc.Value, err, want)
		}
	}
	// A document that is not a T is an error of this document alone.
	numbers, err := client.Open[map[string]int](l.Client(), "raw")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := numbers.Upsert(t.Context(), "numbers", map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	var good, bad []string
	for doc, err := range numbers.List(t.Context()) {
		if err != nil {
			bad = append(bad, doc.ID)
			continue
		}
		good = append(good, doc.ID)
	}
	if fmt.Sprint(good) != "[numbers]" || len(bad) != 2 {
		t.Errorf("good %v, bad %v", good, bad)
	}
}

// List reads page by page, ends where the caller ends, and yields the error of a page.
func TestListReadsAllPages(t *testing.T) {
	t.Parallel()
	l, orders := open[Order](t, "orders")
	batch, err := orders.Batch(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	const all = 2*wire.MaxListLimit + 1
	for i := range all {
		if err := batch.Upsert(t.Context(), fmt.Sprint(i), Order{Count: i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := batch.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for doc, err := range orders.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		seen[doc.ID] = true
	}
	if len(seen) != all {
		t.Errorf("%d documents, want %d", len(seen), all)
	}
	for range orders.List(t.Context()) {
		break
	}
	for _, err := range orders.List(t.Context(), client.ByDeadline(), client.WithPrefix("x")) {
		if refused := new(client.ReadError); !errors.As(err, &refused) || refused.Code != 400 {
			t.Errorf("options that contradict each other: %v", err)
		}
	}
	l.Client().Close()
	n := 0
	for _, err := range orders.List(t.Context()) {
		wantIs(t, err, client.ErrUnavailable)
		n++
	}
	if n != 1 {
		t.Errorf("%d errors", n)
	}
}
