package streams

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
)

// TestAChangeWithoutRoom: the bucket of checkpoints takes nothing, and a process starts with limits that make room.
//
// It fails if the limits wait for the lock, for which there is no room.
func TestAChangeWithoutRoom(t *testing.T) {
	t.Parallel()
	js, o := natstest.Connect(t, natstest.Options{}), options()
	if _, err := Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	bucket, err := js.Stream(t.Context(), o.Prefix.CheckpointStream())
	if err != nil {
		t.Fatal(err)
	}
	c := bucket.CachedInfo().Config
	c.MaxBytes = 1
	if _, err := js.UpdateStream(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), o.Prefix.CheckpointSubject("x"), []byte("x")); err == nil {
		t.Fatal("the bucket takes something")
	}
	age, none := time.Hour, int64(-1)
	o.LogMaxAge, o.EventsMaxAge, o.LogMaxBytes = &age, &age, &none
	s, err := Provision(t.Context(), js, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, stream := range []jetstream.Stream{s.Log, s.Events} {
		if c := stream.CachedInfo().Config; c.MaxAge != age {
			t.Errorf("stream %s keeps messages for %s", c.Name, c.MaxAge)
		}
	}
}
