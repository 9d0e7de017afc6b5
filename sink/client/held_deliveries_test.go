//go:build held

package client

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/held"
)

// TestHeldDeliveries (W2): a message comes back while its acknowledgement is on its way, and once more before that of
// the second delivery is. It is handled once, and each delivery is acknowledged.
func TestHeldDeliveries(t *testing.T) {
	held.Each(t, "sink/client.worker.begin", held.Reconnection, func(t *testing.T, during func(func())) {
		handled := 0
		w := &worker{handlers: t.Context(), slots: make(chan struct{}, 3), jobs: make(map[uint64]*job), opts: workOptions{
			AckWait: time.Hour,
			Handle:  func(context.Context, jetstream.Msg, *jetstream.MsgMetadata) error { handled++; return nil },
		}}
		var all [3]delivery
		for i := range all {
			all[i] = delivery{acking: make(chan struct{}), sent: make(chan struct{})}
		}
		begin := func(d delivery) {
			w.slots <- struct{}{}
			w.begin(d)
		}
		close(all[1].sent)
		close(all[2].sent)
		happened := false
		during(func() { happened = true; begin(all[2]) })
		begin(all[0])
		<-all[0].acking
		begin(all[1])
		close(all[0].sent)
		w.running.Wait()
		last := all[1]
		if happened {
			last = all[2]
		}
		select {
		case <-last.acking:
		default:
			t.Error("the last delivery is not acknowledged")
		}
		if handled != 1 || len(w.jobs) != 0 || len(w.slots) != 0 {
			t.Errorf("handled %d times, %d jobs and %d slots are left", handled, len(w.jobs), len(w.slots))
		}
	})
}
