package lease

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/freeport"
	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
)

// Of three servers with three replicas one ends: it leads the bucket, and the owner is
// connected to it.
func TestACluster(t *testing.T) {
	t.Parallel()
	ports := make([]int, 3)
	var routes []*url.URL
	for i := range ports {
		ports[i] = freeport.Take(t)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[i])})
	}
	servers := map[string]*server.Server{}
	var urls []string
	for i, port := range ports {
		name := fmt.Sprintf("n%d", i)
		srv := inprocess.Start(t, &server.Options{ServerName: name, JetStream: true, StoreDir: t.TempDir(),
			Routes: routes, Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Port: port}})
		servers[name] = srv
		urls = append(urls, srv.ClientURL())
	}
	until(t, "the cluster has a leader", func() bool {
		current := 0
		for _, srv := range servers {
			if srv.JetStreamIsCurrent() {
				current++
			}
		}
		return current == len(servers)
	})
	connect := func(urls ...string) *nats.Conn {
		closed := make(chan struct{})
		nc, err := nats.Connect(strings.Join(urls, ","), natstest.Patient, nats.DontRandomize(),
			nats.IgnoreDiscoveredServers(), nats.MaxReconnects(-1), nats.ReconnectWait(50*ms), nats.ReconnectBufSize(-1),
			nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close(); <-closed })
		return nc
	}
	js := natstest.JetStream(t, connect(urls...))
	first, err := New(js.Conn(), Options{Replicas: 3})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the bucket is there", func() bool { return first.Provision(t.Context()) == nil })
	leader := func() string {
		stream, err := js.Stream(t.Context(), "KV_LAPSE_MEMBERS")
		if err != nil {
			return ""
		}
		info := stream.CachedInfo()
		if info.Config.Replicas != 3 || info.Cluster == nil {
			t.Fatalf("%+v", info)
		}
		return info.Cluster.Leader
	}
	var led string
	until(t, "the bucket has a leader", func() bool { led = leader(); return led != "" })

	j := &journal{}
	all := map[string]*process{}
	for _, name := range []string{"a", "b", "c"} {
		at := urls
		if name == "a" { // the owner is connected to the leader
			at = append([]string{servers[led].ClientURL()}, urls...)
		}
		all[name] = prepare(t, connect(at...), name, Options{Replicas: 3}, asksAgain).run(j.own(name))
		if name == "a" {
			j.awaitOwner(t, "a")
		}
	}
	for _, name := range []string{"b", "c"} {
		until(t, name+" stands by", func() bool { return all[name].Status(0).Lease.Owner == "a" })
	}
	held := j.all()[0].held
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() { errs <- held.Fenced(context.Background()) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Errorf("Fenced: %v", err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, p := range all {
				t.Logf("%s: %+v, %v, connected %t\n%s", p.opts.ID, p.Status(0), p.Problem(), p.nc.IsConnected(),
					strings.Join(p.log.with(""), "\n"))
			}
		}
	})
	servers[led].Shutdown()
	servers[led].WaitForShutdown()
	until(t, "one owns, and all is well", func() bool {
		owners := j.owners()
		if len(owners) != 1 || !all[owners[0]].Status(0).Held {
			return false
		}
		for _, p := range all {
			if p.Problem() != nil {
				return false
			}
		}
		return true
	})
	owner := all[j.owners()[0]]
	for _, p := range all {
		until(t, "all know the owner", func() bool { return p.Status(0).Lease.Owner == owner.opts.ID })
	}
	t.Logf("%d ownerships", len(j.all()))
	owner.leave()
	names := []string{}
	for name := range all {
		if name != owner.opts.ID {
			names = append(names, name)
		}
	}
	j.awaitOwner(t, names...)
}
