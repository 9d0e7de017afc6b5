package integration

import (
	"context"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// Three nats-servers, with three replicas of everything, lose one after the other in the
// middle of the work, the leader of the log among them: every write takes effect once,
// and every event is said once.
//
// It fails if lapse does not go on with the servers that are left; if what it asks of
// the streams is refused where they are replicated.
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
	l := startBoundedLoad(t, w.Client, 5)
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
	l.verifyStored(t, w.Log())
}

// leads is which server of a cluster leads a stream.
func leads(t *testing.T, w *world, stream string) int {
	t.Helper()
	leader := -1
	harness.Until(t, harness.Limit, "the stream has a leader", func(ctx context.Context) error {
		s, err := w.JS.Stream(ctx, stream)
		if err != nil {
			return err
		}
		leader = int(s.CachedInfo().Cluster.Leader[len("nats-server-")] - '1')
		return nil
	})
	return leader
}
