package integration

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/wire"
)

// One of three Redis masters stands still. The partitions on the others go on: their
// documents are read and their events are published. When the master continues, so do its
// partitions.
//
// It fails if a script that waits for one master holds up the scripts of another.
func TestG9_OneRedisMasterStandsStill(t *testing.T) {
	t.Parallel()
	const slots, masters = 16384, 3
	var nodes []*harness.Redis
	var urls []string
	var firstBus int
	for i := range masters {
		// The default port of the bus may be one that an outgoing connection has.
		bus := harness.FreePort(t)
		if i == 0 {
			firstBus = bus
		}
		n := harness.StartRedis(t, harness.RedisOptions{Args: []string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
			"--cluster-node-timeout", "120000", "--cluster-require-full-coverage", "no",
		}})
		nodes, urls = append(nodes, n), append(urls, "redis://"+n.Address())
		client := n.Client()
		if err := client.ClusterAddSlotsRange(t.Context(), i*slots/masters, (i+1)*slots/masters-1).Err(); err != nil {
			t.Fatal(err)
		}
		host, port, _ := strings.Cut(nodes[0].Address(), ":")
		if err := client.Do(t.Context(), "CLUSTER", "MEET", host, port, firstBus).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		harness.Until(t, harness.Limit, "the cluster serves all slots", func(ctx context.Context) error {
			text, err := n.Client().ClusterInfo(ctx).Result()
			if err == nil && (!strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, fmt.Sprint("cluster_slots_ok:", slots)) || !strings.Contains(text, fmt.Sprint("cluster_known_nodes:", masters))) {
				err = errors.New(text)
			}
			return err
		})
	}
	nats := harness.StartNATS(t, harness.NATSOptions{})
	w := &world{t: t, nats: nats}
	w.connect(nats.URL(), nodes[0].Address())
	w.lapse = harness.PrepareLapse(t, "--nats", nats.URL(), "--redis", strings.Join(urls, ","), "--duplicate-window", duplicateWindow.String())
	w.lapse.Start()
	w.Configure("c", `{"defaultTtl":-1}`)
	const partitions = 16
	var there, elsewhere []string // ids on the master that stands still, and on another
	for i := 0; len(there) < 30 || len(elsewhere) < 30; i++ {
		id := fmt.Sprint(i)
		if p := wire.Partition(partitions, "c", id); p*masters/partitions == 0 && (p+1)*masters/partitions == 0 {
			there = append(there, id)
		} else if p*masters/partitions == 2 {
			elsewhere = append(elsewhere, id)
		}
	}
	for _, id := range append(there[:30:30], elsewhere[:30]...) {
		w.Want(201, wire.Upsert, "c", id, `{}`)
	}
	nodes[0].Stop()
	for _, id := range there[:30] {
		w.Write(wire.Upsert, "c", id, `{"ttl":1}`)
	}
	etags := map[string]wire.Etag{}
	for _, id := range elsewhere[:30] {
		if !w.Found("c", id) {
			t.Errorf("c/%s on another master is not found", id)
		}
		etags[id] = w.Want(200, wire.Upsert, "c", id, `{"ttl":1}`).Etag
	}
	for id, etag := range etags {
		w.ExpiryOf("c", id, etag, harness.Limit)
	}
	unready(t, w.lapse, "Redis: it does not answer")
	if n := len(w.Events()); n != 30 {
		t.Errorf("%d events, want the 30 of another master", n)
	}
	nodes[0].Continue()
	w.lapse.Ready()
	harness.Until(t, harness.Limit, "the events of the master are published", func(context.Context) error {
		if n := len(w.Events()); n != 60 {
			return fmt.Errorf("%d events, want 60", n)
		}
		return nil
	})
}
