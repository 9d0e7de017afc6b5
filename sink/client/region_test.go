package client_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// region makes the streams of a region that takes no writes.
func (b *bench) region(t *testing.T, r wire.Region) {
	t.Helper()
	for _, name := range []string{wire.DefaultPrefix.LogStream(), wire.DefaultPrefix.EventsStream()} {
		if _, err := b.js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
			Name: name, Subjects: []string{"none." + name}, AllowDirect: true,
			Metadata: map[string]string{wire.RegionKey: r.String()},
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWritesWithoutTheFirstRegion: where nobody takes a write because the region follows another one, the error says
// so. The error of a read does not: reads are answered here.
func TestWritesWithoutTheFirstRegion(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	c := b.client(t, 8*time.Second)
	write := func() error {
		_, err := c.Write(t.Context(), client.Message{Subject: wire.DefaultPrefix.Write(wire.Upsert, "orders", "1"),
			Body: []byte("{}")})
		return err
	}
	b.region(t, wire.Region{Follows: "a"})
	const follows = `the first region (JetStream domain "a") does not answer: the region at nats://127.0.0.1`
	err := write()
	wantError(t, err, follows, "follows it, and takes no writes itself")
	if !errors.Is(err, client.ErrUnavailable) || errors.Is(err, client.ErrUnknownOutcome) {
		t.Errorf("a write that nobody took: %v", err)
	}
	p, err := c.Pipeline(make(collected).done)
	if err != nil {
		t.Fatal(err)
	}
	if err = p.Send(t.Context(), client.Message{Subject: "lapse.write.touch.orders.1"}, 1); err == nil {
		err = p.Close(t.Context())
	}
	wantError(t, err, follows)

	_, err = c.Get(t.Context(), "orders", "1")
	wantError(t, err, "no lapse answers")
	if strings.Contains(err.Error(), "first region") {
		t.Errorf("a read: %v", err)
	}
	b.region(t, wire.Region{Superseded: &wire.Promotion{Domain: "b", By: "me"}})
	wantError(t, write(), `the first region (JetStream domain "b") does not answer`, "is not the first any more", "by me")
	b.region(t, wire.Region{})
	wantError(t, write(), "no lapse answers")
}

// TestStatusOfRegions: the status says what the region has to do with others. What its processes have said before a
// promotion does not count.
func TestStatusOfRegions(t *testing.T) {
	t.Parallel()
	b := newBench(t, false)
	c := b.client(t, limit)
	behind := &wire.Following{Domain: "a", Behind: 3, AsOf: 5000, Down: 6000}
	b.put(t, "member.a", wire.Member{ID: "a", Name: "host/1", Owns: []int{0}, Following: behind})
	b.put(t, "member.b", wire.Member{ID: "b", Name: "host/2", Following: &wire.Following{Domain: "a", Behind: 9}})
	b.put(t, "lease.0", wire.Lease{Owner: "a", Name: "host/1"})
	check := func(want *client.RegionStatus) {
		t.Helper()
		got, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range got.Region.Followers {
			got.Region.Followers[i].SeenAgo = 0
		}
		if diff := cmp.Diff(want, got.Region); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	follower := wire.Region{Identity: 7, Follows: "a"}
	b.region(t, follower)
	check(&client.RegionStatus{Region: follower, Following: behind})

	promotion := wire.Promotion{Identity: 8, Domain: "b", From: "a", At: time.Unix(1769860800, 0).UTC(), By: "me"}
	first := wire.Region{Identity: 8, Former: []wire.Former{{Identity: 7, Last: 5, Promotion: promotion}}}
	b.region(t, first)
	for _, name := range []string{"d", "c"} {
		b.put(t, wire.FollowerKey(name), struct{}{})
	}
	check(&client.RegionStatus{Region: first, Followers: []client.FollowerStatus{{Domain: "c"}, {Domain: "d"}}})
}
