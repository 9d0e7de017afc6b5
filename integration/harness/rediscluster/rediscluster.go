// Package rediscluster runs a Redis Cluster, or a Redis with Sentinels, for a test.
package rediscluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
)

// Slots is the number of slots of a cluster.
const Slots = 16384

// Cluster is a Redis Cluster. It fails over only when a test tells it to.
type Cluster struct {
	Nodes   []*Node // the masters of the beginning, then their replicas in the same order
	masters int
	t       testing.TB
}

// Node is a redis-server of a cluster.
type Node struct {
	*harness.Redis
	ID  string
	bus int
	c   *redis.Client
}

// Start starts a cluster of masters with equal parts of the slots, each with one replica or
// none.
func Start(t testing.TB, masters int, replicas bool) *Cluster {
	t.Helper()
	c := &Cluster{t: t, masters: masters}
	n := masters
	if replicas {
		n *= 2
	}
	for i := range n {
		// The default port of the bus may be one that an outgoing connection has.
		node := &Node{bus: harness.FreePort(t)}
		node.Redis = harness.StartRedis(t, harness.RedisOptions{Args: []string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(node.bus),
			"--cluster-node-timeout", "120000", "--cluster-require-full-coverage", "no",
			"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1",
		}})
		node.c = node.Client()
		c.Nodes = append(c.Nodes, node)
		var err error
		if node.ID, err = node.c.ClusterMyID(t.Context()).Result(); err != nil {
			t.Fatal(err)
		}
		if i < masters {
			c.do(node, "CLUSTER", "ADDSLOTSRANGE", i*Slots/masters, (i+1)*Slots/masters-1)
		}
		// Two nodes with the same epoch would settle that first.
		c.do(node, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
		host, port, _ := net.SplitHostPort(c.Nodes[0].Address())
		c.do(node, "CLUSTER", "MEET", host, port, c.Nodes[0].bus)
	}
	for _, node := range c.Nodes {
		harness.Until(t, harness.Limit, "the cluster serves all slots", func(ctx context.Context) error {
			text, err := node.c.ClusterInfo(ctx).Result()
			for _, want := range []string{"cluster_state:ok", fmt.Sprint("cluster_slots_ok:", Slots),
				fmt.Sprint("cluster_known_nodes:", n)} {
				if err == nil && !strings.Contains(text, want) {
					err = errors.New(text)
				}
			}
			return err
		})
	}
	for i, node := range c.Nodes[masters:] {
		c.Follow(node, c.Nodes[i])
	}
	for i, node := range c.Nodes[masters:] {
		c.Follows(node, c.Nodes[i])
	}
	for _, node := range c.Nodes {
		harness.Until(t, harness.Limit, "every node knows the replicas", func(ctx context.Context) error {
			nodes, err := node.c.ClusterNodes(ctx).Result()
			if known := strings.Count(nodes, "slave "); err == nil && known != n-masters {
				err = fmt.Errorf("it knows %d", known)
			}
			return err
		})
	}
	return c
}

func (c *Cluster) do(n *Node, args ...any) {
	c.t.Helper()
	if err := n.c.Do(c.t.Context(), args...).Err(); err != nil {
		c.t.Fatalf("%v: %v", args, err)
	}
}

// URL is the URL of the cluster for lapse.
func (c *Cluster) URL() string {
	var urls []string
	for _, n := range c.Nodes[:c.masters] {
		urls = append(urls, n.URL())
	}
	return strings.Join(urls, ",")
}

// Client connects to the cluster until the test ends.
func (c *Cluster) Client() *redis.ClusterClient {
	o := &redis.ClusterOptions{MaxRetries: -1, ContextTimeoutEnabled: true, ClusterStateReloadInterval: 1e9}
	for _, n := range c.Nodes {
		o.Addrs = append(o.Addrs, n.Address())
	}
	client := redis.NewClusterClient(o)
	c.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Replica is the replica that a master had in the beginning.
func (c *Cluster) Replica(i int) *Node { return c.Nodes[c.masters+i] }

// Follow makes a node a replica of another one. It may take a while until the node knows it.
func (c *Cluster) Follow(n, master *Node) {
	c.t.Helper()
	harness.Until(c.t, harness.Limit, "a replica has a master", func(ctx context.Context) error {
		return n.c.ClusterReplicate(ctx, master.ID).Err()
	})
}

// Follows waits until a node has all that its master has.
func (c *Cluster) Follows(n, master *Node) {
	c.t.Helper()
	caughtUp(c.t, n.Redis, master.Redis)
}

// caughtUp waits until a replica has all that its master had.
func caughtUp(t testing.TB, n, master *harness.Redis) {
	t.Helper()
	replica, client := n.Client(), master.Client()
	first := int64(-1)
	harness.Until(t, harness.Limit, "a replica has caught up with its master", func(ctx context.Context) error {
		if first < 0 {
			has, err := info(ctx, client)
			if err != nil {
				return err
			}
			if has["connected_slaves"] == "0" {
				return errors.New("the master has no replica")
			}
			first, _ = strconv.ParseInt(has["master_repl_offset"], 10, 64)
		}
		has, err := info(ctx, replica)
		if err != nil {
			return err
		}
		at, _ := strconv.ParseInt(has["slave_repl_offset"], 10, 64)
		if has["master_link_status"] != "up" || at < first {
			return fmt.Errorf("its link is %q, it is at %d of %d", has["master_link_status"], at, first)
		}
		return nil
	})
}

func info(ctx context.Context, client *redis.Client) (map[string]string, error) {
	all, err := client.InfoMap(ctx, "replication").Result()
	return all["Replication"], err
}

// TakeOver makes a replica the master of its slots, whatever its master says, and waits until
// all others that run know it.
func (c *Cluster) TakeOver(n *Node, others ...*Node) {
	c.t.Helper()
	c.do(n, "CLUSTER", "FAILOVER", "TAKEOVER")
	harness.Until(c.t, harness.Limit, "the others know the new master", func(ctx context.Context) error {
		for _, other := range append(others, n) {
			nodes, err := other.c.ClusterNodes(ctx).Result()
			if err != nil {
				return err
			}
			for line := range strings.Lines(nodes) {
				if f := strings.Fields(line); f[0] == n.ID && (len(f) < 9 || !strings.Contains(f[2], "master")) {
					return fmt.Errorf("to %s it is %s", other.Address(), line)
				}
			}
		}
		return nil
	})
}

// CutOff stops a replica from following its master, and CutOff(…, false) lets it follow again:
// the replica neither connects nor gets an answer, as if a network had split them. It goes on
// answering others.
func (c *Cluster) CutOff(n *Node, cut bool) {
	c.t.Helper()
	user := ""
	if cut {
		user = "nobody" // the master does not know it
	}
	c.do(n, "CONFIG", "SET", "masteruser", user, "masterauth", user)
	if cut {
		for _, master := range c.Nodes {
			if master.Running() {
				_ = master.c.Do(c.t.Context(), "CLIENT", "KILL", "TYPE", "replica").Err()
			}
		}
	}
}

// Move moves a slot with its keys from one master to another, as redis-cli does, and calls
// between after each batch of keys.
func (c *Cluster) Move(slot int, from, to *Node, batch int, between func(moved int)) {
	c.t.Helper()
	ctx := c.t.Context()
	c.do(to, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID)
	c.do(from, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID)
	between(0)
	host, port, _ := net.SplitHostPort(to.Address())
	for moved := 0; ; {
		keys, err := from.c.ClusterGetKeysInSlot(ctx, slot, batch).Result()
		if err != nil {
			c.t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		args := []any{"MIGRATE", host, port, "", 0, 60000, "KEYS"}
		for _, k := range keys {
			args = append(args, k)
		}
		c.do(from, args...)
		moved += len(keys)
		between(moved)
	}
	c.do(to, "CLUSTER", "SETSLOT", slot, "NODE", to.ID)
	c.do(from, "CLUSTER", "SETSLOT", slot, "NODE", to.ID)
	for _, n := range c.Nodes {
		if n != to && n != from {
			_ = n.c.Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", to.ID).Err() // the others learn it anyway
		}
	}
}
