package rediscluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
)

// MasterName is the name by which Sentinels know the master.
const MasterName = "lapse-redis"

// SentinelPassword is the password of the Sentinels' default user.
const SentinelPassword = "the-password-of-the-sentinels"

// DownAfter is how long the master may not answer before the Sentinels fail over.
const DownAfter = 2 * time.Second

// Sentinels are a master with one replica, and Sentinels that watch them.
type Sentinels struct {
	Servers []*harness.Redis // a master, and a replica, in the beginning
	Daemons []*harness.Redis
	t       testing.TB
}

// StartSentinels starts two servers and three Sentinels.
func StartSentinels(t testing.TB) *Sentinels {
	t.Helper()
	s := &Sentinels{t: t}
	for i := range 2 {
		args := []string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}
		if i == 1 {
			host, port, _ := net.SplitHostPort(s.Servers[0].Address())
			args = append(args, "--replicaof", host+" "+port)
		}
		s.Servers = append(s.Servers, harness.StartRedis(t, harness.RedisOptions{Args: args}))
	}
	caughtUp(t, s.Servers[1], s.Servers[0])
	host, port, _ := net.SplitHostPort(s.Servers[0].Address())
	for i := range 3 {
		at := harness.FreePort(t)
		dir := t.TempDir()
		config := filepath.Join(dir, "sentinel.conf")
		text := fmt.Sprintf(`bind 127.0.0.1
port %d
dir %s
requirepass %s
sentinel sentinel-pass %s
sentinel monitor %s %s %s 2
sentinel down-after-milliseconds %s %d
sentinel failover-timeout %s 5000
`, at, dir, SentinelPassword, SentinelPassword, MasterName, host, port, MasterName, DownAfter.Milliseconds(), MasterName)
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Daemons = append(s.Daemons, harness.CustomRedis(t,
			harness.Custom{Name: fmt.Sprintf("sentinel-%d", i+1), Port: at, Args: []string{config, "--sentinel"}}))
	}
	for i := range s.Daemons {
		one := s.Daemon(i)
		harness.Until(t, harness.Limit, "the Sentinels know each other, and the replica",
			func(ctx context.Context) error {
				if err := one.CkQuorum(ctx, MasterName).Err(); err != nil {
					return err
				}
				m, err := one.Master(ctx, MasterName).Result()
				if err == nil && (m["num-other-sentinels"] != "2" || m["num-slaves"] != "1") {
					err = fmt.Errorf("%s other Sentinels, %s replicas", m["num-other-sentinels"], m["num-slaves"])
				}
				return err
			})
	}
	return s
}

// Daemon connects to a Sentinel until the test ends.
func (s *Sentinels) Daemon(i int) *redis.SentinelClient {
	client := redis.NewSentinelClient(&redis.Options{Addr: s.Daemons[i].Address(), Password: SentinelPassword,
		MaxRetries: -1})
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// URL is the URL of the Sentinels for lapse, without passwords.
func (s *Sentinels) URL() string {
	var addresses []string
	for _, d := range s.Daemons {
		addresses = append(addresses, d.Address())
	}
	return "redis+sentinel://" + strings.Join(addresses, ",") + "/" + MasterName
}

// Options are those of a client of the master.
func (s *Sentinels) Options() *redis.FailoverOptions {
	o := &redis.FailoverOptions{MasterName: MasterName, SentinelPassword: SentinelPassword, MaxRetries: -1,
		ContextTimeoutEnabled: true}
	for _, d := range s.Daemons {
		o.SentinelAddrs = append(o.SentinelAddrs, d.Address())
	}
	return o
}

// Master returns the server that a Sentinel names as the master, and the other one.
func (s *Sentinels) Master(ctx context.Context) (master, replica *harness.Redis, err error) {
	for i, d := range s.Daemons {
		if !d.Running() {
			continue
		}
		at, err := s.Daemon(i).GetMasterAddrByName(ctx, MasterName).Result()
		if err != nil {
			return nil, nil, err
		}
		for j, server := range s.Servers {
			if server.Address() == net.JoinHostPort(at[0], at[1]) {
				return server, s.Servers[1-j], nil
			}
		}
	}
	return nil, nil, errors.New("no Sentinel names a master")
}

// Promoted waits until the Sentinels name a server as the master, and it has become that.
func (s *Sentinels) Promoted(server *harness.Redis) {
	s.t.Helper()
	client := server.Client()
	harness.Until(s.t, harness.Limit, "the Sentinels have failed over", func(ctx context.Context) error {
		master, _, err := s.Master(ctx)
		if err == nil && master != server {
			err = errors.New("they name another master")
		}
		if err == nil {
			var has map[string]string
			if has, err = info(ctx, client); err == nil && has["role"] != "master" {
				err = errors.New("it is no master yet")
			}
		}
		return err
	})
}

// CaughtUp waits until a server is a replica of another one, and has all that it has.
func (s *Sentinels) CaughtUp(replica, master *harness.Redis) {
	s.t.Helper()
	caughtUp(s.t, replica, master)
}
