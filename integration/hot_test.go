package integration

import (
	"slices"
	"strconv"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/natscluster"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG9_RejectionsOfOneIDOnReplicas: on three replicas lapse rejects thousands of writes to one id, and the leader of
// the events stream is killed. Each write is rejected once, in the order of the log, and many rejections are in atomic
// batches.
//
// It fails if the replicated stream refuses a batch; if lapse publishes a batch again that
// may have been stored.
func TestG9_RejectionsOfOneIDOnReplicas(t *testing.T) {
	t.Parallel()
	cluster := natscluster.Start(t, 3)
	w := &world{t: t, redis: harness.StartRedis(t, harness.RedisOptions{})}
	url := cluster.URL()
	w.connect(url, w.redis.Address())
	w.lapse = harness.StartLapse(t, url, w.redis.Address(), "--replicas", "3")
	w.Want(201, wire.Create, "c", "hot", `{}`)
	const refused = 6000
	for i := range refused {
		w.SendLater(w.Prefix.Write(wire.Create, "c", "hot"), `{}`)
		if i%1000 == 0 {
			w.Flush()
		}
	}
	w.Flush()
	leader := cluster.Servers[cluster.Leader(w.JS, w.Prefix.EventsStream())]
	leader.Kill()
	leader.Start()
	w.lapse.Ready()
	w.Want(409, wire.Create, "c", "hot", `{}`)
	var sequences []int
	batched := 0
	for _, e := range w.verify().Events { // in the order of the stream
		seq, err := strconv.Atoi(e.Header.Get(wire.HeaderSeq))
		if err != nil {
			t.Fatal(err)
		}
		sequences = append(sequences, seq)
		if e.Header.Get("Nats-Batch-Id") != "" {
			batched++
		}
	}
	if !slices.IsSorted(sequences) || len(slices.Compact(sequences)) != refused+1 {
		t.Error("the rejections are not in the order of the log, or some are missing or there twice")
	}
	if batched == 0 {
		t.Error("no rejection was in a batch")
	}
	t.Logf("%d of %d rejections were in batches", batched, len(sequences))
}
