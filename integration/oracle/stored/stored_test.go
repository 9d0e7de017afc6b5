package stored_test

import (
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/oracle/stored"
)

// TestEndIsDeleted: the last messages of a stream may have been deleted. Fails if Read waits for them.
func TestEndIsDeleted(t *testing.T) {
	nc, err := nats.Connect(natstest.Start(t, natstest.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "S", Subjects: []string{"s"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if _, err := js.Publish(t.Context(), "s", nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, seq := range []uint64{3, 4} {
		if err := stream.DeleteMsg(t.Context(), seq); err != nil {
			t.Fatal(err)
		}
	}
	for from, want := range map[uint64]int{1: 2, 2: 1, 3: 0, 4: 0, 5: 0} {
		if all, err := stored.Read(t.Context(), js, "S", from); err != nil || len(all) != want {
			t.Errorf("from %d: %d messages, %v; want %d", from, len(all), err, want)
		}
	}
}
