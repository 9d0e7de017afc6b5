package deployed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// StartCluster starts three nats-servers that map writes to four shards, and a Redis Cluster of
// six nodes, until the test ends: what compose.cluster.yaml starts.
func StartCluster(t testing.TB) *Deployment {
	t.Helper()
	d := New(t)
	d.shards = 4
	d.UseShards("shards-4.conf")
	d.startNATS(3)
	d.startNodes(6)
	return d
}

// UseShards puts another file in the place of shards.conf, for nats-servers that start later.
func (d *Deployment) UseShards(file string) { d.t.Helper(); d.use(file, "shards.conf") }

// use puts a file of deploy/nats in the place of another one, for nats-servers that start later.
func (d *Deployment) use(file, as string) {
	d.t.Helper()
	conf := filepath.Join(d.t.TempDir(), "nats")
	err := os.CopyFS(conf, os.DirFS(d.conf))
	if err == nil {
		err = os.Rename(filepath.Join(conf, file), filepath.Join(conf, as))
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.conf = conf
}

// startNodes starts the nodes, and makes a cluster of them.
func (d *Deployment) startNodes(n int) {
	d.t.Helper()
	dir := d.t.TempDir()
	for _, file := range []string{"redis.conf", "cluster.conf", "create-cluster"} {
		text, err := os.ReadFile(filepath.Join(harness.DeployDir(d.t), "redis", file))
		if err == nil {
			text := strings.NewReplacer("/run/secrets", d.Dir, "/etc/redis", dir).Replace(string(text))
			err = os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	command := []string{filepath.Join(dir, "create-cluster")}
	for i := range n {
		port, bus := harness.FreePort(d.t), harness.FreePort(d.t)
		d.Buses = append(d.Buses, bus)
		d.Nodes = append(d.Nodes, harness.CustomRedis(d.t, harness.Custom{Name: fmt.Sprintf("redis-%d", i+1),
			Port: port, Args: []string{
				filepath.Join(dir, "cluster.conf"), "--cluster-announce-hostname", "localhost", "--bind", "127.0.0.1",
				"--tls-port", strconv.Itoa(port), "--cluster-port", strconv.Itoa(bus), "--dir", d.t.TempDir(),
			}}))
		command = append(command, harness.Address(port))
	}
	for _, node := range d.Nodes {
		harness.Until(d.t, harness.Limit, "a node of Redis answers",
			func(ctx context.Context) error { return d.OperatorOf(node).Ping(ctx).Err() })
	}
	ctx, cancel := context.WithTimeout(d.t.Context(), harness.Limit)
	defer cancel()
	if out, err := exec.CommandContext(ctx, "sh", command...).CombinedOutput(); err != nil {
		d.t.Fatalf("%v: %v\n%s", command, err, out)
	}
	for _, node := range d.Nodes {
		harness.Until(d.t, harness.Limit, "each node is a master with slots, or has what its master has",
			func(ctx context.Context) error {
				text, err := d.OperatorOf(node).Info(ctx, "replication").Result()
				if err == nil && !strings.Contains(text, "connected_slaves:1") &&
					!strings.Contains(text, "master_link_status:up") {
					err = errors.New(text)
				}
				return err
			})
	}
}

// FailedOver waits until the nodes that run have three masters again.
func (d *Deployment) FailedOver() {
	d.t.Helper()
	harness.Until(d.t, harness.Limit, "replicas have become masters", func(ctx context.Context) error {
		masters := 0
		for _, node := range d.Nodes {
			if !node.Running() {
				continue
			}
			text, err := d.OperatorOf(node).Info(ctx, "replication").Result()
			if err != nil {
				return err
			}
			if strings.Contains(text, "role:master") {
				masters++
			}
		}
		if masters != 3 {
			return fmt.Errorf("there are %d masters", masters)
		}
		return nil
	})
}

// redisURLs are the URLs by which lapse finds Redis.
func (d *Deployment) redisURLs() string {
	if d.Redis != nil {
		return "rediss://" + d.Redis.Address()
	}
	var urls []string
	for _, node := range d.Nodes[:3] {
		urls = append(urls, fmt.Sprintf("rediss://localhost:%d", node.Port))
	}
	return strings.Join(urls, ",")
}

// Denied are the commands that Redis has denied a user.
func (d *Deployment) Denied(user string) (all []string) {
	d.t.Helper()
	for _, node := range d.Nodes {
		if !node.Running() {
			continue
		}
		entries, err := d.OperatorOf(node).ACLLog(d.t.Context(), 100).Result()
		if err != nil {
			d.t.Fatal(err)
		}
		for _, e := range entries {
			if e.Username == user {
				all = append(all, fmt.Sprintf("%s %s", e.Reason, e.Object))
			}
		}
	}
	return all
}
