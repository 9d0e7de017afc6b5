package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/deployed"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestDeployment: the whole of deploy/ as a new user starts it: three nats-servers and Redis, with TLS, certificates
// and roles, and two lapse. A document that the writer writes expires, and the reader sees that. One lapse is killed,
// and events go on.
//
// It goes red if the configurations, the permissions and what lapse needs do not fit
// together, if a role may not do its work, or if the second lapse does not take over.
func TestDeployment(t *testing.T) {
	t.Parallel()
	d := deployed.Start(t)
	one, other := d.Prepare(), d.Prepare()
	one.Start()
	other.Start()

	run, has := client(t, d)
	has(run(0, "operator", "config", "orders", "--default-ttl", "3600"), "configured orders")
	has(run(0, "orders-writer", "put", "orders", "stays", `{"item":"tea"}`), "created orders/stays")
	has(run(0, "reader", "get", "orders", "stays"), `{"item":"tea"}`)
	has(run(0, "orders-writer", "put", "orders", "1", `{"item":"tea","ttl":1}`), "created orders/1")
	has(run(0, "reader", "watch", "orders", "1", "--since", "1h", "--count", "1"), `expired orders/1 etag=`)
	has(run(3, "reader", "get", "orders", "1"), "404")
	has(run(0, "reader", "archive", "orders", t.TempDir(), "--since", "1h", "--once"), "archiving as archive-orders")
	has(run(0, "forwarder", "forward", "orders", nowhere(t), "--secret-file", secretFile(t), "--since", "1h", "--once",
		"--give-up-after", "1ms"), "/orders/1/")
	has(run(0, "forwarder", "forward", "orders", "--dead"), "connection refused")

	has(run(1, "orders-writer", "put", "users", "1", `{}`),
		"the NATS server does not permit this user to publish to lapse.write.upsert.users.1")
	has(run(1, "orders-writer", "get", "orders", "stays"),
		"the NATS server does not permit this user to publish to lapse.read.get.orders.stays")
	has(run(1, "orders-writer", "watch", "orders"), "does not permit this user to")
	has(run(1, "reader", "put", "orders", "1", `{}`),
		"the NATS server does not permit this user to publish to lapse.write.upsert.orders.1")
	has(run(1, "reader", "drop", "orders"), "publish to lapse.drop.orders")

	one.Kill()
	has(run(0, "orders-writer", "put", "orders", "2", `{"item":"tea","ttl":1}`), "created orders/2")
	has(run(0, "reader", "watch", "orders", "2", "--since", "1h", "--count", "1"), `expired orders/2 etag=`)
	other.Ready()
	deniedNothing(t, d)
}

// client runs commands of lapse as a user, and compares what they print.
func client(t *testing.T, d *deployed.Deployment) (run func(want int, user string, args ...string) string,
	has func(out, want string)) {
	run = func(want int, user string, args ...string) string {
		t.Helper()
		out, errOut, code := d.Run(user, args...)
		if code != want {
			t.Fatalf("lapse %v as %s: exit code %d, want %d\n%s%s", args, user, code, want, out, errOut)
		}
		return out + errOut
	}
	has = func(out, want string) {
		t.Helper()
		if !strings.Contains(out, want) {
			t.Errorf("output %q, want %q in it", out, want)
		}
	}
	return run, has
}

// deniedNothing fails the test if a server has denied lapse something.
func deniedNothing(t *testing.T, d *deployed.Deployment) {
	t.Helper()
	for _, n := range d.NATS {
		if log := n.Log(); strings.Contains(log, "user:lapse\" - Publish Violation") ||
			strings.Contains(log, "user:lapse\" - Subscription Violation") {
			t.Errorf("a nats-server has denied lapse something:\n%s", log)
		}
	}
	for _, user := range []string{"lapse", "replica"} {
		if denied := d.Denied(user); len(denied) > 0 {
			t.Errorf("Redis has denied %s: %v", user, denied)
		}
	}
}

// TestDeployment_Cluster: what compose.cluster.yaml starts: three nats-servers that map writes to four shards, a Redis
// Cluster, and three lapse, each of which owns a shard. Documents of all shards are written, read and expire. Then a
// master of Redis, a nats-server and a lapse are killed, and all goes on.
//
// It goes red if the mapping, the permissions or the configuration of the cluster do not fit
// what lapse needs, or if no replica becomes master.
func TestDeployment_Cluster(t *testing.T) {
	t.Parallel()
	d := deployed.StartCluster(t)
	all := []*harness.Lapse{d.Prepare(), d.Prepare(), d.Prepare()}
	for _, l := range all {
		l.Launch()
	}
	for _, l := range all {
		l.Ready()
	}
	owned := func(by []*harness.Lapse) {
		harness.Until(t, harness.Limit, "each process owns a shard, and each shard is owned",
			func(context.Context) error {
				var sum float64
				for _, l := range by {
					n := metric(t, l, "lapse_shard_owner")
					if n == 0 {
						return errors.New("one owns none")
					}
					sum += n
				}
				if sum != 4 {
					return fmt.Errorf("%v shards are owned", sum)
				}
				return nil
			})
	}
	owned(all)
	run, has := client(t, d)
	has(run(0, "operator", "config", "orders", "--default-ttl", "3600"), "configured orders")
	const documents = 6 // one of them in each shard
	shards := map[int]bool{}
	for i := range documents {
		shard := wire.ShardOf(4, "orders", fmt.Sprint("a", i))
		shards[shard] = true
	}
	if len(shards) != 4 {
		t.Fatalf("the documents are in the shards %v", shards)
	}
	round := func(prefix string) {
		t.Helper()
		for i := range documents {
			id := fmt.Sprint(prefix, i)
			has(run(0, "orders-writer", "put", "orders", id, `{"ttl":1}`), "created orders/"+id)
			has(run(0, "reader", "watch", "orders", id, "--since", "1h", "--count", "1"), "expired orders/"+id)
		}
		run(0, "orders-writer", "put", "orders", "stays", `{"in":"`+prefix+`"}`)
		has(run(0, "reader", "get", "orders", "stays"), `{"in":"`+prefix+`"}`)
	}
	round("a")
	has(run(0, "operator", "status"), "shard 3")
	has(run(1, "orders-writer", "put", "users", "1", `{}`),
		"the NATS server does not permit this user to publish to lapse.write.upsert.users.1")

	d.Nodes[0].Kill()
	d.NATS[0].Kill()
	all[0].Kill()
	d.FailedOver()
	owned(all[1:])
	for _, l := range all[1:] {
		l.Ready()
	}
	round("b")
	deniedNothing(t, d)
}

// TestDeployment_NATSConfigurationIsValid: nats-server accepts the configuration in deploy/nats with the secrets of
// deploy/secrets, for each server, with one shard and with four. It goes red if a line of it is not valid, or a
// variable has no value.
func TestDeployment_NATSConfigurationIsValid(t *testing.T) {
	t.Parallel()
	d := deployed.New(t)
	check := func() {
		for _, name := range []string{"nats-1", "nats-2", "nats-3"} {
			if out, code := d.CheckNATS(name); code != 0 || !strings.Contains(out, "is valid") {
				t.Errorf("nats-server -t of %s: exit code %d\n%s", name, code, out)
			}
		}
	}
	check()
	d.UseShards("shards-4.conf")
	check()
}
