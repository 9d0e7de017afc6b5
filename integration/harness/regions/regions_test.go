package regions

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

func TestMirrorFollows(t *testing.T)           { mirrorFollows(t, 1) }
func TestMirrorOfClustersFollows(t *testing.T) { mirrorFollows(t, 3) }

func mirrorFollows(t *testing.T, servers int) {
	r := Start(t, Options{Servers: servers})
	a, b, aFromB := r.A.JetStream(), r.B.JetStream(), r.B.Of(r.A)
	if _, err := a.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"},
		Replicas: servers}); err != nil {
		t.Fatal(err)
	}
	mirror := jetstream.StreamConfig{Name: "S", Mirror: &jetstream.StreamSource{Name: "S", Domain: r.A.Name},
		Replicas: servers}
	if _, err := b.CreateStream(t.Context(), mirror); err != nil {
		t.Fatal(err)
	}
	publish(t, a, 10)
	complete(t, b, 10)

	r.Link.Down()
	harness.Until(t, harness.Limit, "nobody in region b reaches region a", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err := aFromB.Stream(ctx, "none"); !errors.Is(err, jetstream.ErrJetStreamNotEnabled) &&
			!errors.Is(err, nats.ErrNoResponders) {
			return fmt.Errorf("want no responders, got %v", err)
		}
		return nil
	})
	publish(t, a, 10)
	if last := lastSeq(t, b); last != 10 {
		t.Errorf("the mirror has %d messages while the link is down", last)
	}
	r.Link.Up()
	r.Linked(t)
	complete(t, b, 20)

	r.Link.Flap(t, 2, 500*time.Millisecond)
	publish(t, a, 1)
	complete(t, b, 21)

	const d = 100 * time.Millisecond
	r.Link.Delay(d)
	began := time.Now()
	if _, err := aFromB.Stream(t.Context(), "none"); !errors.Is(err, jetstream.ErrStreamNotFound) ||
		time.Since(began) < 2*d {
		t.Errorf("a request took %v, with a delay of %v each way: %v", time.Since(began), d, err)
	}
}

func publish(t *testing.T, js jetstream.JetStream, messages int) {
	t.Helper()
	for range messages {
		if _, err := js.Publish(t.Context(), "s", nil); err != nil {
			t.Fatal(err)
		}
	}
}

// complete waits until the mirror has everything. A server may notice only after 10 s that it has lost its
// consumer in the other region, and then waits up to 40 s.
func complete(t *testing.T, js jetstream.JetStream, messages uint64) {
	t.Helper()
	harness.Until(t, 2*harness.Limit, "the mirror is complete", func(context.Context) error {
		if last := lastSeq(t, js); last != messages {
			return fmt.Errorf("its last sequence is %d, want %d", last, messages)
		}
		return nil
	})
}

func lastSeq(t *testing.T, js jetstream.JetStream) uint64 {
	t.Helper()
	s, err := js.Stream(t.Context(), "S")
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo().State.LastSeq
}
