package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// Of three nats-servers with three replicas of each stream, the leader of the log is killed
// again and again under load. Every write takes effect once, and every event is published
// once.
//
// It fails if lapse does not go on with the remaining servers; if a replicated stream
// refuses the way in which lapse publishes.
func TestG1_ReplicatedServersAreKilled(t *testing.T) {
	t.Parallel()
	cluster := harness.StartCluster(t, 3)
	w := &world{t: t, redis: harness.StartRedis(t, harness.RedisOptions{})}
	var urls []string
	for _, n := range cluster {
		urls = append(urls, n.URL())
	}
	url := strings.Join(urls, ",")
	w.connect(url, w.redis.Address())
	w.lapse = harness.StartLapse(t, url, w.redis.Address(), "--replicas", "3")
	w.Configure("c0", `{"defaultTtl":1}`)
	l := startLoad(t, w.Client, 5)
	for range 3 {
		l.wait(t, 300)
		leader := cluster[leads(t, w, w.Prefix.LogStream())]
		leader.Kill()
		l.wait(t, 300)
		leader.Start()
	}
	l.end()
	w.lapse.Ready()
	w.verify()
	l.verifyStored(t)
}

// leads returns the index of the server that leads a stream.
func leads(t *testing.T, w *world, stream string) int {
	t.Helper()
	leader := -1
	harness.Until(t, harness.Limit, "the stream has a leader", func(ctx context.Context) error {
		s, err := w.JS.Stream(ctx, stream)
		if err != nil {
			return err
		}
		if _, err := fmt.Sscanf(s.CachedInfo().Cluster.Leader, "nats-server-%d", &leader); err != nil {
			return fmt.Errorf("leader %q: %w", s.CachedInfo().Cluster.Leader, err)
		}
		leader--
		return nil
	})
	return leader
}
