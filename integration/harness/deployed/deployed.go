// Package deployed runs what is in deploy/, as somebody who deploys lapse would.
package deployed

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink/credentials"
)

// Deployment is servers from the files in deploy/, with the secrets that deploy/secrets has
// made. On one machine ports and directories differ; nothing else does.
type Deployment struct {
	Dir    string // of the secrets
	NATS   []*harness.NATS
	Routes []string         // the addresses at which the nats-servers take routes
	Redis  *harness.Redis   // nil if it is a cluster
	Nodes  []*harness.Redis // of the cluster
	Buses  []int            // the ports of their cluster bus

	conf   string   // the folder of the configuration of NATS
	region string   // of two; empty if there is one
	leaves []string // the addresses at which region a takes leaf nodes
	shards int      // 1 if 0
	stores []string // of the nats-servers

	t testing.TB
}

// Start starts three nats-servers and a redis-server until the test ends.
func Start(t testing.TB) *Deployment {
	t.Helper()
	d := New(t)
	d.startNATS(3)
	d.startRedis()
	return d
}

// New makes the secrets, and starts no server.
func New(t testing.TB) *Deployment {
	t.Helper()
	d := &Deployment{t: t, Dir: filepath.Join(t.TempDir(), "secrets"),
		conf: filepath.Join(harness.DeployDir(t), "nats")}
	d.makeSecrets()
	return d
}

func (d *Deployment) makeSecrets() {
	d.t.Helper()
	if out, err := exec.Command(filepath.Join(harness.DeployDir(d.t), "secrets"), d.Dir).CombinedOutput(); err != nil {
		d.t.Fatalf("deploy/secrets: %v\n%s", err, out)
	}
}

// Renew replaces every secret: the authorities, the certificates and the passwords, except for
// that of the routes, without which servers that start one after the other would not join. No
// server uses them yet.
func (d *Deployment) Renew() {
	d.t.Helper()
	const kept = "nats-routes.password"
	password := d.Secret(kept)
	err := os.RemoveAll(d.Dir)
	if err == nil {
		err = os.Mkdir(d.Dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(d.Path(kept), []byte(password+"\n"), 0o600)
	}
	if err != nil {
		d.t.Fatal(err)
	}
	d.makeSecrets()
	for i, n := range d.NATS {
		n.Change(d.natsEnv(fmt.Sprintf("nats-%d", i+1), d.stores[i]), d.options("operator"))
	}
}

// options are those by which a user connects to NATS.
func (d *Deployment) options(user string) []nats.Option {
	d.t.Helper()
	login, err := d.Login(user).Options("")
	if err != nil {
		d.t.Fatal(err)
	}
	return login
}

// Operator connects to Redis as the operator, until the test ends.
func (d *Deployment) Operator() *redis.Client { return d.OperatorOf(d.Redis) }

// OperatorOf does the same on one node of a cluster.
func (d *Deployment) OperatorOf(server *harness.Redis) *redis.Client {
	d.t.Helper()
	login := credentials.Redis{User: "operator", PasswordFile: d.Path("redis-operator.password"), CA: d.Path("ca.crt"),
		Cert: d.Path("operator.crt"), Key: d.Path("operator.key")}
	if d.Redis == nil {
		login.CA, login.Cert, login.Key = d.Path("redis-ca.crt"), "", ""
	}
	client := redis.NewClient(&redis.Options{
		Addr: server.Address(), MaxRetries: -1, CredentialsProviderContext: login.Login,
		Dialer: login.Dialer(&tls.Config{}, harness.Limit),
	})
	d.t.Cleanup(func() { _ = client.Close() })
	return client
}

// CheckNATS checks the configuration of a nats-server, with nats-server -t.
func (d *Deployment) CheckNATS(name string) (out string, code int) {
	d.t.Helper()
	out, errOut, code := harness.Run(d.t, "nats-server", d.natsEnv(name, d.t.TempDir()), "-t", "-c", d.natsConfig())
	return out + errOut, code
}

func (d *Deployment) natsConfig() string {
	d.t.Helper()
	return filepath.Join(d.conf, "nats.conf")
}

// Path is the path of a file of the secrets.
func (d *Deployment) Path(name string) string { return filepath.Join(d.Dir, name) }

// Secret is the content of such a file.
func (d *Deployment) Secret(name string) string {
	d.t.Helper()
	content, err := os.ReadFile(d.Path(name))
	if err != nil {
		d.t.Fatal(err)
	}
	return strings.TrimSpace(string(content))
}

// natsEnv is the environment of a nats-server.
func (d *Deployment) natsEnv(name, store string) []string {
	d.t.Helper()
	env := []string{
		"NATS_NAME=" + name, "NATS_STORE=" + store, "NATS_CA=" + d.Path("ca.crt"), "NATS_CERT=" + d.Path(name+".crt"),
		"NATS_KEY=" + d.Path(name+".key"),
		"NATS_ROUTES_CA=" + d.Path("routes-ca.crt"), "NATS_ROUTES_CERT=" + d.Path(name+"-routes.crt"),
		"NATS_ROUTES_KEY=" + d.Path(name+"-routes.key"),
	}
	if d.region == "b" {
		env = append(env, "NATS_NAME=b-"+name, "NATS_LEAF_URLS="+d.leafURLs())
	}
	text := d.Secret(".env")
	for i, route := range d.Routes {
		text = strings.Replace(text, fmt.Sprintf("nats-%d:6222", i+1), route, 1)
	}
	return append(env, strings.Split(text, "\n")...)
}

func (d *Deployment) startNATS(servers int) {
	d.t.Helper()
	for range servers {
		d.Routes = append(d.Routes, harness.Address(harness.FreePort(d.t)))
	}
	for i, route := range d.Routes {
		name, port, store := fmt.Sprintf("nats-%d", i+1), harness.FreePort(d.t), d.t.TempDir()
		n := harness.CustomNATS(d.t, harness.Custom{
			Name: name, Port: port, Env: d.natsEnv(name, store), Login: d.options("operator"),
			Forbidden: []string{"Failed to reload"},
			Args: []string{
				"-c", d.placed(route), "-a", "127.0.0.1", "-p", strconv.Itoa(port), "-m",
				strconv.Itoa(harness.FreePort(d.t)),
			},
		})
		n.Launch()
		d.NATS, d.stores = append(d.NATS, n), append(d.stores, store)
	}
	for _, n := range d.NATS {
		n.Ready()
	}
}

// placed is a copy of the configuration with another address for routes, and for leaf nodes. It returns its path.
func (d *Deployment) placed(route string) string {
	d.t.Helper()
	conf := filepath.Join(d.t.TempDir(), "nats")
	if err := os.CopyFS(conf, os.DirFS(d.conf)); err != nil {
		d.t.Fatal(err)
	}
	replace := func(file, old, address string) {
		text, err := os.ReadFile(filepath.Join(conf, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(conf, file), []byte(strings.Replace(string(text), old, address, 1)), 0o600)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
	replace("nats.conf", "0.0.0.0:6222", route)
	if d.region == "a" {
		leaf := harness.Address(harness.FreePort(d.t))
		d.leaves = append(d.leaves, leaf)
		replace("region.conf", "0.0.0.0:7422", leaf)
	}
	return filepath.Join(conf, "nats.conf")
}

func (d *Deployment) startRedis() {
	d.t.Helper()
	port := harness.FreePort(d.t)
	d.Redis = harness.CustomRedis(d.t, harness.Custom{Name: "redis-server", Port: port, Args: []string{
		filepath.Join(harness.DeployDir(d.t), "redis", "redis.conf"), "--bind", "127.0.0.1", "--tls-port",
		strconv.Itoa(port), "--dir", d.t.TempDir(),
		"--tls-ca-cert-file", d.Path("ca.crt"), "--tls-cert-file", d.Path("redis.crt"), "--tls-key-file",
		d.Path("redis.key"),
		"--aclfile", d.Path("users.acl"),
	}})
	harness.Until(d.t, harness.Limit, "redis-server is ready",
		func(ctx context.Context) error { return d.Operator().Ping(ctx).Err() })
}

// Login is how a user connects to NATS.
func (d *Deployment) Login(user string) credentials.NATS {
	return credentials.NATS{
		User: user, PasswordFile: d.Path("nats-" + user + ".password"), InboxPrefix: "_INBOX." + user,
		CA: d.Path("ca.crt"), Cert: d.Path(user + ".crt"), Key: d.Path(user + ".key"),
	}
}

// URLs are the URLs of the nats-servers.
func (d *Deployment) URLs() string {
	var urls []string
	for _, n := range d.NATS {
		urls = append(urls, n.URL())
	}
	return strings.Join(urls, ",")
}

// Prepare makes `lapse serve` for these servers, and does not start it.
func (d *Deployment) Prepare(flags ...string) *harness.Lapse {
	d.t.Helper()
	l := harness.PrepareLapse(d.t, append([]string{"--replicas", strconv.Itoa(len(d.NATS)), "--shards",
		strconv.Itoa(max(d.shards, 1))}, flags...)...)
	l.Env = append(d.env("lapse"), "LAPSE_NATS="+d.URLs(), "LAPSE_READERS=READERS,FORWARD", "LAPSE_REDIS="+
		d.redisURLs(), "LAPSE_REDIS_USER=lapse", "LAPSE_REDIS_PASSWORD_FILE="+d.Path("redis-lapse.password"))
	if d.Redis == nil {
		l.Env = append(l.Env, "LAPSE_REDIS_CA="+d.Path("redis-ca.crt"))
	} else {
		l.Env = append(l.Env, "LAPSE_REDIS_CA="+d.Path("ca.crt"), "LAPSE_REDIS_CERT="+d.Path("lapse.crt"),
			"LAPSE_REDIS_KEY="+d.Path("lapse.key"))
	}
	return l
}

// env is the environment of a process of lapse that connects to NATS as a user.
func (d *Deployment) env(user string) []string {
	l := d.Login(user)
	return []string{
		"LAPSE_NATS_USER=" + l.User, "LAPSE_NATS_PASSWORD_FILE=" + l.PasswordFile, "LAPSE_NATS_INBOX_PREFIX=" +
			l.InboxPrefix,
		"LAPSE_NATS_CA=" + l.CA, "LAPSE_NATS_CERT=" + l.Cert, "LAPSE_NATS_KEY=" + l.Key,
	}
}

// Run runs a client command of lapse as a user of NATS.
func (d *Deployment) Run(user string, args ...string) (out, errOut string, code int) {
	d.t.Helper()
	return harness.Run(d.t, "lapse", append(d.env(user), "LAPSE_SERVER="+d.URLs(), "LAPSE_TIMEOUT=30s"), args...)
}

// Connect connects to NATS as a user, until the test ends.
func (d *Deployment) Connect(user string) *nats.Conn {
	d.t.Helper()
	return harness.Connect(d.t, d.URLs(), d.options(user)...)
}
