// Package natscluster runs clusters of nats-servers whose network and leaders a test controls.
package natscluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
)

// Cluster is nats-servers, each a process. Each reaches each other one through a proxy.
type Cluster struct {
	Servers []*harness.NATS

	t       testing.TB
	proxies [][]*harness.Proxy // from one server to another; nil to itself
	monitor []string           // where each server answers requests for its state
}

// Start starts a cluster, and waits until JetStream answers on each server.
func Start(t testing.TB, servers int) *Cluster {
	t.Helper()
	return StartNamed(t, "nats-server", servers, func(int) string { return "" })
}

// StartNamed starts a cluster with a name, from which its servers take theirs. more is added to the
// configuration of a server, by its index.
func StartNamed(t testing.TB, cluster string, servers int, more func(server int) string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	listens := make([]string, servers)
	for i := range listens {
		listens[i] = harness.Address(harness.FreePort(t))
	}
	for i := range servers {
		var routes []string
		proxies := make([]*harness.Proxy, servers)
		for other, listen := range listens {
			if other != i {
				proxies[other] = harness.NewProxy(t, listen)
				routes = append(routes, "nats://"+proxies[other].Address())
			}
		}
		c.proxies = append(c.proxies, proxies)
		name := fmt.Sprintf("%s-%d", cluster, i+1)
		c.monitor = append(c.monitor, harness.Address(harness.FreePort(t)))
		// Nobody listens where the server says that it does: the others know their own ways to it.
		c.Servers = append(c.Servers, harness.PrepareNATS(t, name,
			fmt.Sprintf("server_name: %q\nhttp: %q\ncluster { name: %q, listen: %q, advertise: \"127.0.0.1:1\", routes: "+
				"[%s] }\n%s",
				name, c.monitor[i], cluster, listens[i], strings.Join(routes, ", "), more(i))))
	}
	for _, n := range c.Servers {
		n.Launch()
	}
	for _, n := range c.Servers {
		n.Ready()
	}
	return c
}

// URL is where clients find the servers.
func (c *Cluster) URL() string {
	var all []string
	for _, n := range c.Servers {
		all = append(all, n.URL())
	}
	return strings.Join(all, ",")
}

// around are the proxies between a server and the others.
func (c *Cluster) around(server int) (all []*harness.Proxy) {
	for i, proxies := range c.proxies {
		for other, p := range proxies {
			if p != nil && (i == server || other == server) {
				all = append(all, p)
			}
		}
	}
	return all
}

// Split splits a server off from the others, until Join. Clients still reach it. If silently,
// its connections stay open, and nothing passes.
func (c *Cluster) Split(server int, silently bool) {
	for _, p := range c.around(server) {
		if silently {
			p.Hold(harness.ToServer)
			p.Hold(harness.ToClient)
		} else {
			p.Down()
		}
	}
}

// Join joins a server to the others again.
func (c *Cluster) Join(server int) {
	for _, p := range c.around(server) {
		p.Up()
		p.Release()
	}
}

const answerTimeout = 3 * time.Second

// Leader waits until a stream has a leader, and returns the index of the server.
func (c *Cluster) Leader(js jetstream.JetStream, stream string) int {
	c.t.Helper()
	leader := -1
	harness.Until(c.t, harness.Limit, "stream "+stream+" has a leader", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout) // a leader that is lost does not answer
		defer cancel()
		s, err := js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		name := s.CachedInfo().Cluster.Leader
		leader = slices.IndexFunc(c.Servers, func(n *harness.NATS) bool { return n.Name() == name })
		if leader < 0 {
			return fmt.Errorf("leader %q", name)
		}
		return nil
	})
	return leader
}

// StepDown makes the leader of a stream give that up.
func (c *Cluster) StepDown(nc *nats.Conn, stream string) {
	c.t.Helper()
	harness.Until(c.t, harness.Limit, "the leader of "+stream+" steps down", func(ctx context.Context) error {
		return ask(ctx, nc, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, "")
	})
}

// Lead makes a server the leader of a stream.
func (c *Cluster) Lead(nc *nats.Conn, stream string, server int) {
	c.t.Helper()
	name := c.Servers[server].Name()
	harness.Until(c.t, harness.Limit, name+" leads "+stream, func(ctx context.Context) error {
		if c.leaderNow(ctx, nc, stream) == name {
			return nil
		}
		err := ask(ctx, nc, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, fmt.Sprintf(`{"placement":{"preferred":%q}}`, name))
		return errors.Join(errors.New("another server led it"), err)
	})
}

// leaderNow is the name of the server that leads a stream; empty if there is no answer.
func (c *Cluster) leaderNow(ctx context.Context, nc *nats.Conn, stream string) string {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	js, err := jetstream.New(nc)
	if err != nil {
		return ""
	}
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return ""
	}
	return s.CachedInfo().Cluster.Leader
}

// ask makes a request of the API of JetStream.
func ask(ctx context.Context, nc *nats.Conn, subject, body string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	m, err := nc.RequestWithContext(ctx, subject, []byte(body))
	if err == nil && strings.Contains(string(m.Data), `"error"`) {
		err = errors.New(string(m.Data))
	}
	return err
}

// RemovePeer takes the replica of a stream from a server: another server that has none gets it.
func (c *Cluster) RemovePeer(nc *nats.Conn, stream string, server int) {
	c.t.Helper()
	name := c.Servers[server].Name()
	harness.Until(c.t, harness.Limit, stream+" leaves "+name, func(ctx context.Context) error {
		return ask(ctx, nc, "$JS.API.STREAM.PEER.REMOVE."+stream, fmt.Sprintf(`{"peer":%q}`, name))
	})
}

// RemoveServer takes a server that does not run out of the cluster. system is a connection to the system account.
func (c *Cluster) RemoveServer(system *nats.Conn, server int) {
	c.t.Helper()
	name := c.Servers[server].Name()
	harness.Until(c.t, harness.Limit, name+" leaves the cluster", func(ctx context.Context) error {
		return ask(ctx, system, "$JS.API.SERVER.REMOVE", fmt.Sprintf(`{"peer":%q}`, name))
	})
}

// Current waits until each stream has so many replicas, and none is behind. Those of servers that do not run do not
// count.
func (c *Cluster) Current(js jetstream.JetStream, replicas int, streams ...string) {
	c.t.Helper()
	for _, stream := range streams {
		harness.Until(c.t, harness.Limit, stream+" has all its replicas", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, answerTimeout)
			defer cancel()
			s, err := js.Stream(ctx, stream)
			if err != nil {
				return err
			}
			n := 1
			for _, r := range s.CachedInfo().Cluster.Replicas {
				if r.Current && !r.Offline {
					n++
				}
			}
			if n != replicas {
				return fmt.Errorf("it has %d", n)
			}
			return nil
		})
	}
}
