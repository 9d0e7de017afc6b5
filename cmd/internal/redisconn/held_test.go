//go:build held

package redisconn

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/rediscluster"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink/credentials"
)

// sentinelLogin is a login with the password of the Sentinels.
func sentinelLogin(t *testing.T) credentials.Redis {
	t.Helper()
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(rediscluster.SentinelPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return credentials.Redis{SentinelPasswordFile: file}
}

// TestHeldSentinels: while a process asks one Sentinel after the other, one that it has not asked yet starts, and the
// one that would have answered ends. Fails if the process does not ask the one that is there now, or believes one that
// is gone.
func TestHeldSentinels(t *testing.T) {
	s, gap := rediscluster.StartSentinels(t), 0
	held.Each(t, "cmd/internal/redisconn.target.anySentinel", held.Restart, func(t *testing.T, during func(happen func())) {
		var ways []*harness.Proxy
		var addresses []string
		for _, d := range s.Daemons {
			ways = append(ways, harness.NewProxy(t, d.Address()))
			addresses = append(addresses, ways[len(ways)-1].Address())
		}
		ways[0].Down()
		ways[1].Down()
		answers := true
		gap++
		during(func() {
			ways[1].Up()
			ways[2].Down()
			answers = gap == 1 // in the second gap, the second Sentinel was asked already
		})
		to, err := Options{URL: "redis+sentinel://" + strings.Join(addresses, ",") + "/" + rediscluster.MasterName,
			Login: sentinelLogin(t)}.parse()
		if err != nil {
			t.Fatal(err)
		}
		// A busy machine may take longer than a Sentinel has for its answer.
		harness.Until(t, harness.Limit, "the Sentinels answer as they are", func(ctx context.Context) error {
			err := to.askSentinels(ctx)
			if answers {
				return err
			}
			answers = true // for the next time, the second one is there
			wantError(t, err, "no Sentinel answers", ways[0].Address())
			return nil
		})
	})
}

// TestHeldFailover: the Sentinels fail over between the look for the master and the first command. Fails if the process
// takes the former master, now a replica, for the master. It may give up: a failover takes about as long as a start.
func TestHeldFailover(t *testing.T) {
	s := rediscluster.StartSentinels(t)
	opts := Options{URL: s.URL(), Login: sentinelLogin(t)}
	held.Each(t, "cmd/internal/redisconn.Options.Connect", held.Takeover, func(t *testing.T, during func(happen func())) {
		_, next, err := s.Master(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		during(func() {
			if err := s.Daemon(0).Failover(t.Context(), rediscluster.MasterName).Err(); err != nil {
				t.Error(err)
			}
			s.Promoted(next)
		})
		client, err := opts.Connect(t.Context(), 1)
		if err != nil {
			wantError(t, err, "--redis "+s.URL())
			return
		}
		defer func() { _ = client.Close() }()
		if err := client.Set(t.Context(), "k", "v", 0).Err(); err != nil {
			t.Errorf("the server that it is connected to: %v", err)
		}
	})
}

// TestHeldPingAll: the masters of a cluster end while they are pinged. Fails if a master that is gone counts as
// reachable, or if one that is back does not.
func TestHeldPingAll(t *testing.T) {
	held.Each(t, "cmd/internal/redisconn.PingAll", held.Restart, func(t *testing.T, during func(happen func())) {
		var masters []*harness.Redis
		for range 2 {
			masters = append(masters, harness.StartRedis(t, harness.RedisOptions{}))
		}
		slots := func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{Start: 0, End: 8191, Nodes: []redis.ClusterNode{{Addr: masters[0].Address()}}},
				{Start: 8192, End: 16383, Nodes: []redis.ClusterNode{{Addr: masters[1].Address()}}},
			}, nil
		}
		client := clusterClient(&redis.ClusterOptions{ClusterSlots: slots, DialTimeout: time.Minute,
			ReadTimeout: time.Minute}, 1)
		defer func() { _ = client.Close() }()
		gone := false
		during(func() {
			for _, m := range masters {
				m.Kill()
			}
			gone = true
		})
		err := PingAll(t.Context(), client)
		if !gone {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if wantError(t, err, "master "); err == nil {
			return
		}
		for _, m := range masters {
			m.Start()
		}
		harness.Until(t, harness.Limit, "the masters are back", func(ctx context.Context) error {
			return PingAll(ctx, client)
		})
	})
}
