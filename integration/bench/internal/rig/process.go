// Package rig starts the sides that are compared: nats-server, redis-server and lapse, each
// as a process, on a free port of 127.0.0.1, with its own folder.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/bench/internal/load"
)

// startLimit is how long a server may take to start.
const startLimit = 60 * time.Second

// Rig starts servers.
type Rig struct {
	Dir      string                           // for the files of the servers
	Lapse    string                           // the lapse binary; "" runs the processor in a child of this program
	Profiles string                           // folder for CPU profiles of lapse; "" for none
	Clients  int                              // connections to Redis
	Shards   int                              // of lapse; one if 0
	Masters  int                              // of the Redis Cluster of lapse; one server without a cluster if 0 or 1
	Note     func(format string, args ...any) // records a remark beside the figures
	Problem  func(format string, args ...any) // records a fault that makes the figures of lapse void

	started int // the number of servers so far, to name their folders
}

// Build builds nats-server and lapse.
func (r *Rig) Build(ctx context.Context) error {
	if err := goBuild(ctx, r.natsServer(), "github.com/nats-io/nats-server/v2"); err != nil {
		return err
	}
	if r.Profiles != "" {
		r.Lapse = ""
		return os.MkdirAll(r.Profiles, 0o755)
	}
	if r.Lapse != "" {
		return nil
	}
	r.Lapse = filepath.Join(r.Dir, "lapse")
	return goBuild(ctx, r.Lapse, "github.com/seed18712806/lapse/cmd/lapse")
}

func (r *Rig) natsServer() string { return filepath.Join(r.Dir, "nats-server") }

// Process is a server process. It ends when this program ends.
type Process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

func goBuild(ctx context.Context, out, pkg string) error {
	if b, err := exec.CommandContext(ctx, "go", "build", "-o", out, pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s (run the bench from the folder of the module): %w: %s", pkg, err, b)
	}
	return nil
}

// Folder makes a folder for a server.
func (r *Rig) Folder(name string) (string, error) {
	r.started++
	dir := filepath.Join(r.Dir, fmt.Sprintf("%03d-%s", r.started, name))
	return dir, os.Mkdir(dir, 0o755)
}

func start(name, dir, binary string, args ...string) (*Process, error) {
	p := &Process{name: name, log: filepath.Join(dir, "log"), done: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(binary, args...)
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.SysProcAttr = diesWithParent()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Stop sends SIGTERM, and SIGKILL after 20 s. Stopping nil or twice is fine.
func (p *Process) Stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// wait tries until the server answers.
func (p *Process) wait(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			b, _ := os.ReadFile(p.log)
			return fmt.Errorf("%s ended (%w): %s", p.name, errors.Join(p.err, err), b[max(0, len(b)-1000):])
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer after %s: %w", p.name, startLimit, err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// cpu returns the CPU time that the process has used; 0 without /proc.
func (p *Process) cpu() time.Duration { return cpuOf(p.cmd.Process.Pid) }

func cpuOf(pid int) time.Duration {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	const perSecond = 100 // USER_HZ
	return time.Duration(user+system) * time.Second / perSecond
}

// Usage measures the CPU time of processes and of this one. The function that it returns
// notes it, and returns that of each process.
func (r *Rig) Usage(all ...*Process) func(what string) []time.Duration {
	measure := func() (cpu []time.Duration) {
		for _, p := range all {
			cpu = append(cpu, p.cpu())
		}
		return append(cpu, cpuOf(os.Getpid()))
	}
	before, began := measure(), time.Now()
	return func(what string) (used []time.Duration) {
		took, after := time.Since(began), measure()
		var s strings.Builder
		for i, p := range all {
			used = append(used, after[i]-before[i])
			fmt.Fprintf(&s, "%s %.2f s, ", p.name, used[i].Seconds())
		}
		r.Note("%s in %.2f s; CPU: %sclient %.2f s", what, took.Seconds(), s.String(), (after[len(all)] - before[len(all)]).Seconds())
		return used
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// NATS is a nats-server with JetStream, and a connection to it.
type NATS struct {
	*Process
	NC  *nats.Conn
	JS  jetstream.JetStream
	url string
}

// StartNATS starts a nats-server.
func (r *Rig) StartNATS(ctx context.Context) (*NATS, error) { return r.startNATS(ctx, 1) }

// startNATS starts a nats-server that maps writes to so many shards.
func (r *Rig) startNATS(ctx context.Context, shards int) (*NATS, error) {
	dir, err := r.Folder("nats")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &NATS{url: fmt.Sprintf("nats://127.0.0.1:%d", port)}
	args := []string{"-js", "-sd", dir, "-a", "127.0.0.1", "-p", strconv.Itoa(port)}
	if shards > 1 {
		from, to := prefix.Mapping(shards)
		config := filepath.Join(dir, "nats.conf")
		if err := os.WriteFile(config, fmt.Appendf(nil, "mappings: { %q: %q }\n", from, to), 0o644); err != nil {
			return nil, err
		}
		args = append(args, "-c", config)
	}
	s.Process, err = start("nats-server", dir, r.natsServer(), args...)
	if err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func (s *NATS) connect(ctx context.Context) error {
	return s.wait(ctx, func(ctx context.Context) (err error) {
		if s.NC, err = nats.Connect(s.url); err != nil {
			return err
		}
		if s.JS, err = load.Publisher(s.NC); err == nil {
			_, err = s.JS.AccountInfo(ctx)
		}
		if err != nil {
			s.NC.Close()
		}
		return err
	})
}

// Stop closes the connection and stops the server.
func (s *NATS) Stop() {
	if s.NC != nil {
		s.NC.Close()
	}
	s.Process.Stop()
}

// Bucket makes a key-value bucket in which keys can have a TTL.
func (s *NATS) Bucket(ctx context.Context, name string) (jetstream.KeyValue, error) {
	return s.JS.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: name, History: 1, LimitMarkerTTL: time.Hour, Storage: jetstream.FileStorage,
	})
}

// Redis is a redis-server without persistence, and a client of it.
type Redis struct {
	*Process
	Client *redis.Client
	addr   string
}

// StartRedis starts a redis-server with more arguments.
func (r *Rig) StartRedis(ctx context.Context, args ...string) (*Redis, error) {
	dir, err := r.Folder("redis")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &Redis{addr: fmt.Sprintf("127.0.0.1:%d", port)}
	args = append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "no"}, args...)
	if s.Process, err = start("redis-server", dir, "redis-server", args...); err != nil {
		return nil, err
	}
	s.Client = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: max(64, r.Clients), MaxRetries: -1})
	if err := s.wait(ctx, func(ctx context.Context) error { return s.Client.Ping(ctx).Err() }); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// startMasters starts the servers of lapse: one, or the masters of a cluster.
func (r *Rig) startMasters(ctx context.Context) (all []*Redis, err error) {
	if r.Masters <= 1 {
		one, err := r.StartRedis(ctx)
		return []*Redis{one}, err
	}
	create := []string{"--cluster", "create"}
	for range r.Masters {
		bus, err := freePort()
		if err != nil {
			return all, err
		}
		one, err := r.StartRedis(ctx, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus))
		if err != nil {
			return all, err
		}
		all, create = append(all, one), append(create, one.addr)
	}
	if out, err := exec.CommandContext(ctx, "redis-cli", append(create, "--cluster-yes")...).CombinedOutput(); err != nil {
		return all, fmt.Errorf("make a Redis Cluster: %w: %s", err, out)
	}
	for _, one := range all {
		err := one.wait(ctx, func(ctx context.Context) error {
			info, err := one.Client.ClusterInfo(ctx).Result()
			if err == nil && !strings.Contains(info, "cluster_state:ok") {
				err = errors.New("the cluster is not ready")
			}
			return err
		})
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// Stop closes the connections and stops the server.
func (s *Redis) Stop() {
	_ = s.Client.Close()
	s.Process.Stop()
}

// UsedMemory returns the used_memory of INFO.
func (s *Redis) UsedMemory(ctx context.Context) (float64, error) {
	text, err := s.Client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, err
	}
	for l := range strings.Lines(text) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(l), "used_memory:"); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, errors.New("INFO memory has no used_memory")
}

// get requests an HTTP endpoint.
func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, resp.Status, strings.TrimSpace(string(body)))
	}
	return body, err
}
