package main

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
)

// startLimit is how long a server may take to be there.
const startLimit = 60 * time.Second

// process is a server in a process of its own, which ends when this program does.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	err  error
}

func goBuild(ctx context.Context, out, pkg string) error {
	if b, err := exec.CommandContext(ctx, "go", "build", "-o", out, pkg).CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s (from the folder of the module): %w: %s", pkg, err, b)
	}
	return nil
}

// folder makes a folder for a server.
func (b *bench) folder(name string) (string, error) {
	b.started++
	dir := filepath.Join(b.dir, fmt.Sprintf("%03d-%s", b.started, name))
	return dir, os.Mkdir(dir, 0o755)
}

func start(name, dir, binary string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(dir, "log"), done: make(chan struct{})}
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

// stop ends the process, gently at first. Stopping nil, or twice, is fine.
func (p *process) stop() {
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

// wait tries until the server is there.
func (p *process) wait(ctx context.Context, there func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := there(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			b, _ := os.ReadFile(p.log)
			return fmt.Errorf("%s ended (%w): %s", p.name, errors.Join(p.err, err), b[max(0, len(b)-1000):])
		case <-ctx.Done():
			return fmt.Errorf("%s is not there: %w", p.name, err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// cpu is the CPU time that the process has used, where /proc tells.
func (p *process) cpu() time.Duration { return cpuOf(p.cmd.Process.Pid) }

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

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// natsServer is a nats-server with JetStream, and a connection to it.
type natsServer struct {
	*process
	url string
	nc  *nats.Conn
	js  jetstream.JetStream
}

func (b *bench) startNATS(ctx context.Context) (*natsServer, error) {
	dir, err := b.folder("nats")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &natsServer{url: fmt.Sprintf("nats://127.0.0.1:%d", port)}
	s.process, err = start("nats-server", dir, b.nats, "-js", "-sd", dir, "-a", "127.0.0.1", "-p", strconv.Itoa(port))
	if err != nil {
		return nil, err
	}
	if err := s.connect(ctx); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *natsServer) connect(ctx context.Context) error {
	return s.wait(ctx, func(ctx context.Context) (err error) {
		if s.nc, err = nats.Connect(s.url); err != nil {
			return err
		}
		if s.js, err = publisher(s.nc); err == nil {
			_, err = s.js.AccountInfo(ctx)
		}
		if err != nil {
			s.nc.Close()
		}
		return err
	})
}

func (s *natsServer) stop() {
	if s.nc != nil {
		s.nc.Close()
	}
	s.process.stop()
}

// redisServer is a redis-server that stores nothing on disk, and a client to it.
type redisServer struct {
	*process
	addr   string
	client *redis.Client
}

func (b *bench) startRedis(ctx context.Context, args ...string) (*redisServer, error) {
	dir, err := b.folder("redis")
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &redisServer{addr: fmt.Sprintf("127.0.0.1:%d", port)}
	args = append([]string{"--bind", "127.0.0.1", "--port", strconv.Itoa(port), "--dir", dir, "--save", "", "--appendonly", "no"}, args...)
	if s.process, err = start("redis-server", dir, "redis-server", args...); err != nil {
		return nil, err
	}
	s.client = redis.NewClient(&redis.Options{Addr: s.addr, PoolSize: max(64, b.parallel), MaxRetries: -1})
	if err := s.wait(ctx, func(ctx context.Context) error { return s.client.Ping(ctx).Err() }); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

func (s *redisServer) stop() {
	_ = s.client.Close()
	s.process.stop()
}

// usedMemory is what the server says that it uses for data.
func (s *redisServer) usedMemory(ctx context.Context) (float64, error) {
	text, err := s.client.Info(ctx, "memory").Result()
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

// get asks a server's HTTP endpoint.
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
