package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestRegion_APersonRemovesAMirror: the first region loses the end of its stream of events, and publishes those events
// again. The account of lapse must not remove a stream, so /readyz of the second region names the mirror and the
// command that removes it. Once the operator has run that, lapse makes the mirror again and goes on by itself. The
// durable consumer of the mirror gets each event that it has not acknowledged.
//
// It fails if lapse waits for a permission that nobody is to give it, or if a durable consumer is lost with its mirror.
func TestRegion_APersonRemovesAMirror(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.follow(r.b, r.a)
	r.a.Configure("c", `{"defaultTtl":-1}`)
	expire := func(name string) {
		for i := range 3 {
			id := fmt.Sprint(name, i)
			r.a.ExpiryOf("c", id, r.a.Want(201, wire.Upsert, "c", id, `{"ttl":1}`).Etag, harness.Limit)
		}
	}
	expire("kept")
	r.a.nats.Stop()
	copied := r.a.nats.Copy()
	r.a.nats.Continue()
	expire("lost")
	r.mirroredEvents(7) // with the fence
	events := r.a.Prefix.EventsStream()
	consumer, err := r.b.JS.CreateConsumer(t.Context(), events, jetstream.ConsumerConfig{Durable: "d",
		AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: string(r.b.Prefix) + ".expired.>"})
	if err != nil {
		t.Fatal(err)
	}
	if got := takeEvents(t, consumer, 2); got[0] != "kept0" || got[1] != "kept1" {
		t.Fatalf("the consumer gets %v first", got)
	}

	r.Link.Down()
	r.a.nats.RestoreStream(copied, events)
	r.a.lapse.Ready()
	r.Link.Up()
	r.Linked(t)
	command := "nats --js-domain b stream rm " + events
	unready(t, r.b.lapse, command)
	if why := r.b.lapse.ReadyNow(t.Context()); why != nil && strings.Contains(why.Error(), "permission") {
		t.Errorf("/readyz names a permission: %v", why)
	}
	if err := r.B.JetStream().DeleteStream(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	r.b.lapse.Ready()
	r.sameStreams()
	harness.Until(t, harness.Limit, "the durable consumer is there again", func(ctx context.Context) (err error) {
		consumer, err = r.b.JS.Consumer(ctx, events, "d")
		return err
	})
	got := map[string]bool{}
	for _, id := range takeEvents(t, consumer, 4) {
		got[id] = true
	}
	for _, id := range []string{"kept2", "lost0", "lost1", "lost2"} {
		if !got[id] {
			t.Errorf("the durable consumer has not got the event of %s: %v", id, got)
		}
	}
	r.same()
	expire("later")
	r.same()
}

// takeEvents takes some events from a consumer, and acknowledges them. It returns the ids of their documents.
func takeEvents(t *testing.T, consumer jetstream.Consumer, n int) (ids []string) {
	t.Helper()
	for len(ids) < n {
		m, err := consumer.Next(jetstream.FetchMaxWait(30 * time.Second))
		if err != nil {
			t.Fatalf("after the events of %v: %v", ids, err)
		}
		if err := m.DoubleAck(t.Context()); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, m.Headers().Get("ce-subject"))
	}
	return ids
}

// mirroredEvents waits until region b has mirrored a number of events.
func (r *twoRegions) mirroredEvents(n uint64) {
	r.t.Helper()
	harness.Until(r.t, 3*harness.Limit, "region b has the events", func(ctx context.Context) error {
		stream, err := r.b.JS.Stream(ctx, r.b.Prefix.EventsStream())
		if err == nil && stream.CachedInfo().State.Msgs < n {
			err = errors.New("not yet")
		}
		return err
	})
}
