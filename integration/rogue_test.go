package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/deployed"
)

// TestDeployment_RogueNATS: a nats-server of somebody who has the certificate of a client does not join the cluster,
// and neither does one that has a certificate of a server but not its password, or the password but only the
// certificate of a client. One with both joins: so the attempt itself works.
//
// It goes red if the routes accept certificates of the authority of the clients, or need no password.
func TestDeployment_RogueNATS(t *testing.T) {
	t.Parallel()
	d := deployed.Start(t)
	login := d.Login("system")
	login.Cert, login.Key, login.InboxPrefix = d.Path("operator.crt"), d.Path("operator.key"), ""
	options, err := login.Options("")
	if err != nil {
		t.Fatal(err)
	}
	system := harness.Connect(t, d.NATS[0].URL(), append(options, nats.IgnoreDiscoveredServers())...)
	servers := func() string { // the routes of the server that the rogue asks
		answer, err := system.Request("$SYS.REQ.SERVER."+system.ConnectedServerId()+".ROUTEZ", nil, harness.Limit)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer.Data)
	}
	password := d.Secret("nats-routes.password")
	join := func(certificate, password string) *harness.NATS {
		login := ""
		if password != "" {
			login = "routes:" + password + "@"
		}
		port := harness.FreePort(t)
		config := filepath.Join(t.TempDir(), "rogue.conf")
		text := fmt.Sprintf(`
server_name: rogue
listen: %q
accounts { SYS { users: [ { user: rogue, password: rogue } ] }, LAPSE { users: [ { user: lapse, password: rogue } ] } }
system_account: SYS
cluster {
  name: lapse
  listen: "127.0.0.1:-1"
  routes: ["nats://%s%s"]
  tls { ca_file: %q, cert_file: %q, key_file: %q, insecure: true, timeout: 60 }
}
`, harness.Address(port), login, d.Routes[0], d.Path("ca.crt"), d.Path(certificate+".crt"), d.Path(certificate+".key"))
		if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		rogue := harness.CustomNATS(t, harness.Custom{Name: "rogue", Port: port, Args: []string{"-c", config, "-D"}})
		rogue.Launch()
		return rogue
	}
	for name, with := range map[string][2]string{
		"the certificate of a client":                                  {"reader", ""},
		"the certificate of lapse, and the password":                   {"lapse", password},
		"the certificate of a server for clients, and the password":    {"nats-1", password},
		"the certificate of a server for routes, and no password":      {"nats-1-routes", ""},
		"the certificate of a server for routes, and another password": {"nats-1-routes", "another"},
	} {
		rogue := join(with[0], with[1])
		harness.Until(t, harness.Limit, "a server refuses a rogue with "+name, func(context.Context) error {
			if log := rogue.Log(); !strings.Contains(log, "Router connection closed") &&
				!strings.Contains(log, "TLS route handshake error") {
				return errors.New("its log does not say so")
			}
			return nil
		})
		if s := servers(); strings.Contains(s, "rogue") {
			t.Errorf("a rogue with %s has joined: %s", name, s)
		}
		rogue.Kill()
	}
	join("nats-2-routes", password)
	harness.Until(t, harness.Limit, "a server with certificate and password joins", func(context.Context) error {
		if s := servers(); !strings.Contains(s, "rogue") {
			return errors.New(s)
		}
		return nil
	})
}

// TestDeployment_RogueRedis: a redis-server of somebody who has the certificate of a client does not join the Redis
// Cluster by CLUSTER MEET. One with the certificate of a node does: so the attempt itself works.
//
// It goes red if the authority of the nodes signs for clients, or nodes accept another authority.
func TestDeployment_RogueRedis(t *testing.T) {
	t.Parallel()
	d := deployed.StartCluster(t)
	meet := func(certificate string) (*harness.Redis, *redis.Client) {
		port := harness.FreePort(t)
		rogue := harness.CustomRedis(t, harness.Custom{Name: "rogue", Port: port, Args: []string{
			"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "", "--loglevel",
			"debug",
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(harness.FreePort(t)), "--tls-cluster", "yes",
			"--tls-ca-cert-file", d.Path("redis-ca.crt"), "--tls-cert-file", d.Path(certificate + ".crt"),
			"--tls-key-file", d.Path(certificate + ".key"),
		}})
		client := harness.RedisClient(t, rogue.Address())
		harness.Until(t, harness.Limit, "the rogue answers",
			func(ctx context.Context) error { return client.Ping(ctx).Err() })
		if err := client.Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", d.Nodes[0].Port,
			d.Buses[0]).Err(); err != nil {
			t.Fatal(err)
		}
		return rogue, client
	}
	known := func(rogue *redis.Client) bool { // to the node that it met
		id, err := rogue.Do(t.Context(), "CLUSTER", "MYID").Text()
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := d.OperatorOf(d.Nodes[0]).ClusterNodes(t.Context()).Result()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(nodes, id)
	}
	for _, certificate := range []string{"redis", "reader", "lapse"} {
		rogue, client := meet(certificate)
		harness.Until(t, harness.Limit, "a node refuses the certificate of "+certificate, func(context.Context) error {
			if known(client) {
				t.Fatalf("a rogue with the certificate of %s has joined", certificate)
			}
			if !strings.Contains(rogue.Log(), "alert unknown ca") {
				return errors.New("the log of the rogue does not say so")
			}
			return nil
		})
		rogue.Kill()
	}
	_, client := meet("redis-node")
	harness.Until(t, harness.Limit, "a node with the certificate of a node joins", func(context.Context) error {
		if !known(client) {
			return errors.New("the node that it met does not know it")
		}
		return nil
	})
}
