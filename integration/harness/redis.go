package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisOptions say what redis-server is started with.
type RedisOptions struct {
	// Persistent keeps an append-only file, so that nothing is lost by a kill.
	// Without it all is lost.
	Persistent bool
	Args       []string // more arguments, such as "--maxmemory-policy", "allkeys-lru"
}

// Redis is a redis-server in a process of its own. Its port and its directory
// outlive it: see [Redis.Start].
type Redis struct {
	*Process
	Port int
}

// StartRedis starts a redis-server and waits until it is ready.
func StartRedis(t testing.TB, opts RedisOptions) *Redis {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is needed, 7.0 or newer (Debian: apt-get install redis-server): %v", err)
	}
	r := &Redis{Port: FreePort(t)}
	r.Process = newProcess(t, "redis-server", path)
	r.args = []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(r.Port), "--dir", r.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
		"--loglevel", "warning",
	}
	if opts.Persistent {
		r.args = append(r.args, "--appendonly", "yes", "--appendfsync", "everysec")
	}
	r.args = append(r.args, opts.Args...)
	r.Start()
	return r
}

// Start starts it (again), on the same port and directory, and waits until it
// answers.
func (r *Redis) Start() {
	r.t.Helper()
	r.start()
	client := redis.NewClient(redisOptions(r.Address()))
	defer client.Close()
	Until(r.t, Limit, "redis-server is ready", func(ctx context.Context) error {
		if err := r.ended(); err != nil {
			return err
		}
		return client.Ping(ctx).Err()
	})
}

// Address is where it listens.
func (r *Redis) Address() string { return Address(r.Port) }

// URL is where it listens, as a URL.
func (r *Redis) URL() string { return "redis://" + r.Address() }

// Client connects to it for as long as the test runs.
func (r *Redis) Client() *redis.Client { return RedisClient(r.t, r.Address()) }

// Snapshot saves what it holds to a file, for Restore.
func (r *Redis) Snapshot() string {
	r.t.Helper()
	if err := r.Client().Save(r.t.Context()).Err(); err != nil {
		r.t.Fatalf("save: %v", err)
	}
	b, err := os.ReadFile(filepath.Join(r.dir, "dump.rdb"))
	if err != nil {
		r.t.Fatal(err)
	}
	path := filepath.Join(r.t.TempDir(), "snapshot.rdb")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// Restore kills it and starts it with what a snapshot holds. It is for one
// that is not persistent, since an append-only file would count before a snapshot.
func (r *Redis) Restore(snapshot string) {
	r.t.Helper()
	b, err := os.ReadFile(snapshot)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Kill()
	if err := os.WriteFile(filepath.Join(r.dir, "dump.rdb"), b, 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.Start()
}

// RedisClient connects to a Redis for as long as the test runs. It repeats no
// command and keeps to deadlines.
func RedisClient(t testing.TB, address string) *redis.Client {
	client := redis.NewClient(redisOptions(address))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func redisOptions(address string) *redis.Options {
	return &redis.Options{
		Addr: address, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
	}
}
