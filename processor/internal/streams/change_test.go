package streams

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
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

// TestALockOfADeadProcess: a process has died with the lock of a stream, and each of the others waits for less time than
// the lock counts for. One of them gets it in the end.
//
// It fails if a process counts from when it has seen the lock.
func TestALockOfADeadProcess(t *testing.T) {
	shortLocks(t)
	js, o := natstest.Connect(t, natstest.Options{}), options()
	o.Objects = false
	if _, err := Provision(t.Context(), js, o); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), o.Prefix.EventsStream())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockStream(t.Context(), js, o.Prefix.CheckpointBucket(), stream); err != nil {
		t.Fatal(err)
	}
	if err := poll.Until(t.Context(), time.Minute, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lockFor/2)
		defer cancel()
		other, err := lockStream(ctx, js, o.Prefix.CheckpointBucket(), stream)
		if err == nil {
			other.release(t.Context())
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// shortLocks lets locks end soon, as a test lets others wait for one within the process that has it.
func shortLocks(t *testing.T) {
	was := lockFor
	lockFor = time.Second
	t.Cleanup(func() { lockFor = was })
}
