//go:build held

package processor

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/sink/events"
)

// TestHeldSettled: the owners of shards store checkpoints while somebody reads those of all shards, one after the other.
// What is settled was committed by every shard when the answer comes: it is behind no place that a shard has reached
// by then, and a shard whose checkpoint moves on does not hide that another one stands (G3).
//
// It fails if the settled place is that of one shard alone.
func TestHeldSettled(t *testing.T) {
	held.Each(t, "processor.Settled", held.Write, func(t *testing.T, during func(func())) {
		const shards = 3
		js := natstest.Connect(t, natstest.Options{})
		bucket, err := js.CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: prefix.CheckpointBucket()})
		if err != nil {
			t.Fatal(err)
		}
		stored := [shards]shard.Checkpoint{}
		store := func(i int, end, log uint64) {
			stored[i] = shard.Checkpoint{Seq: log, Watermark: int64(log), From: events.Place{Seq: end}}
			value, err := json.Marshal(stored[i])
			if err == nil {
				_, err = bucket.Put(context.Background(), shard.CheckpointKey(i), value)
			}
			if err != nil {
				t.Error(err)
			}
		}
		store(0, 10, 100)
		store(1, 20, 200)
		store(2, 30, 300)
		was := stored
		during(func() {
			store(0, 40, 400)
			store(1, 15, 200) // a takeover knows less of the stream of events
			store(2, 50, 500)
		})
		reply, err := Settled(t.Context(), js.Conn(), prefix, shards)
		if err != nil {
			t.Fatal(err)
		}
		if reply.Settled > 15 || reply.Settled < 10 {
			t.Errorf("%d is settled", reply.Settled)
		}
		for i, one := range reply.Shards {
			if one.Seq != was[i].Seq && one.Seq != stored[i].Seq || int64(one.Watermark) != int64(one.Seq) {
				t.Errorf("shard %d is at %+v", i, one)
			}
		}
	})
}
