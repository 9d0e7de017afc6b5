package deployed

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness"
)

// StartRegions starts two regions until the test ends: in each three nats-servers and a redis-server. The
// nats-servers of region b connect to those of region a by leaf nodes. Writes are mapped to a number of shards, 1
// or 4.
func StartRegions(t testing.TB, shards int) (a, b *Deployment) {
	t.Helper()
	a = New(t)
	b = &Deployment{t: t, Dir: filepath.Join(t.TempDir(), "secrets"), conf: filepath.Join(harness.DeployDir(t), "nats")}
	if err := os.Mkdir(b.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"ca.crt", "ca.key", "nats-leaf.password"} {
		if err := os.WriteFile(b.Path(file), []byte(a.Secret(file)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.makeSecrets()
	a.region, b.region = "a", "b"
	for _, d := range []*Deployment{a, b} {
		d.shards = shards
		if shards > 1 {
			d.UseShards("shards-4.conf")
		}
		d.use("region-"+d.region+".conf", "region.conf")
		b.leaves = a.leaves
		d.startNATS(3)
		d.startRedis()
	}
	return a, b
}

// leafURLs are the URLs by which the nats-servers of region b reach those of region a.
func (d *Deployment) leafURLs() string {
	var urls []string
	for _, address := range d.leaves {
		urls = append(urls, fmt.Sprintf("%q", "tls://leaf:"+d.Secret("nats-leaf.password")+"@"+address))
	}
	return "[" + strings.Join(urls, ", ") + "]"
}
