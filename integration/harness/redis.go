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

// RedisOptions are the settings of a redis-server.
type RedisOptions struct {
	// Persistent keeps an append-only file, so that a kill loses nothing, or what Redis has not written while an fsync
	// takes long. Otherwise a kill loses everything.
	Persistent bool
	Args       []string // more arguments, such as "--maxmemory-policy", "allkeys-lru"
	OwnUsers   bool     // Args have users; otherwise they are those of deploy/
	Denies     bool     // a client without a user; otherwise that may do everything
}

// Redis is a redis-server in a process of its own. Its port and its directory outlive the
// process, so that it can be started again.
type Redis struct {
	*Process
	Port   int
	denies bool
}

// StartRedis starts a redis-server and waits until it is ready.
func StartRedis(t testing.TB, opts RedisOptions) *Redis {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is needed, 7.0 or newer (Debian: apt-get install redis-server): %v", err)
	}
	r := &Redis{Port: FreePort(t), denies: opts.Denies}
	r.Process = newProcess(t, "redis-server", path)
	r.args = []string{
		"--bind", "127.0.0.1", "--port", strconv.Itoa(r.Port), "--dir", r.dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no",
		"--loglevel", "warning",
	}
	if opts.Persistent {
		r.args = append(r.args, "--appendonly", "yes", "--appendfsync", "everysec")
	}
	if !opts.OwnUsers {
		r.args = append(r.args, r.redisRoles(opts.Denies)...)
	}
	r.args = append(r.args, opts.Args...)
	r.Start()
	return r
}

// CustomRedis starts a redis-server that a test configures by itself, and does not wait.
func CustomRedis(t testing.TB, c Custom) *Redis {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	if err != nil {
		t.Fatalf("redis-server is needed: %v", err)
	}
	r := &Redis{Process: newProcess(t, c.Name, path), Port: c.Port}
	r.args = c.Args
	r.start()
	return r
}

// Start starts the server (again) on the same port and directory, and waits until it
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
		err := client.Ping(ctx).Err()
		if r.denies && redis.HasErrorPrefix(err, "NOAUTH") {
			return nil
		}
		return err
	})
}

// Address returns the address of the server.
func (r *Redis) Address() string { return Address(r.Port) }

// URL returns the URL of the server.
func (r *Redis) URL() string { return "redis://" + r.Address() }

// Client connects to the server until the test ends.
func (r *Redis) Client() *redis.Client { return RedisClient(r.t, r.Address()) }

// Snapshot saves the data to a file, for Restore.
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

// Restore kills the server and starts it with a snapshot. The server must not be
// Persistent: Redis would load the append-only file instead.
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

// RedisClient connects to a Redis until the test ends. The client repeats no command and
// obeys the deadline of a context.
func RedisClient(t testing.TB, address string) *redis.Client {
	client := redis.NewClient(redisOptions(address))
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func redisOptions(address string) *redis.Options {
	return &redis.Options{
		Addr: address, MaxRetries: -1, ContextTimeoutEnabled: true, DisableIdentity: true,
		DialTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second,
	}
}
