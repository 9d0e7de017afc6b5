// Package regions runs two regions for tests, or three, each with NATS and Redis of its own. The NATS servers of
// region B, and of region C, are leaf nodes of those of region A. What passes between A and B goes through proxies.
package regions

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
	"github.com/seed18712806/lapse/integration/harness/natscluster"
)

// Options are the settings of both regions.
type Options struct {
	Servers int                  // nats-servers of each region, a cluster if there are several; 1 if 0
	Redis   harness.RedisOptions // of each region
	Shards  int                  // to which single servers map writes; 1 if 0
	Third   bool                 // there is a region C, too
	Synced  bool                 // the servers sync each message to the disk before they acknowledge it
}

// Regions are two regions and the link between them.
type Regions struct {
	A, B *Region
	C    *Region // nil unless Options.Third
	Link *Link
}

// Region has a JetStream domain, whose name is that of the region.
type Region struct {
	Name    string
	NATS    []*harness.NATS
	Cluster *natscluster.Cluster // nil if there is one server
	Redis   *harness.Redis

	t testing.TB
}

// Start starts the regions, and waits until their clients reach JetStream of A.
func Start(t testing.TB, o Options) *Regions {
	t.Helper()
	servers := max(o.Servers, 1)
	r := &Regions{Link: &Link{}}
	var remotes, direct []string
	login := "nats-leaf://leaf:" + harness.RolePassword("leaf") + "@"
	listens := make([]string, servers)
	for i := range listens {
		listens[i] = harness.Address(harness.FreePort(t))
		p := harness.NewProxy(t, listens[i])
		r.Link.proxies = append(r.Link.proxies, p)
		remotes = append(remotes, fmt.Sprintf("%q", login+p.Address()))
		direct = append(direct, fmt.Sprintf("%q", login+listens[i]))
	}
	// A server that advertises its address would be reached beside the proxies.
	r.A = start(t, "a", o, func(i int) string {
		return fmt.Sprintf("listen: %q, no_advertise: true", listens[i])
	})
	leaf := func(remotes []string) func(int) string {
		return func(int) string {
			return fmt.Sprintf("reconnect: \"1s\", remotes: [{ urls: [%s], account: LAPSE }]",
				strings.Join(remotes, ", "))
		}
	}
	r.B = start(t, "b", o, leaf(remotes))
	if o.Third {
		r.C = start(t, "c", o, leaf(direct))
	}
	r.Linked(t)
	return r
}

func start(t testing.TB, name string, o Options, leafnodes func(int) string) *Region {
	t.Helper()
	r := &Region{Name: name, Redis: harness.StartRedis(t, o.Redis), t: t}
	more := func(i int) string {
		sync := "2m"
		if o.Synced {
			sync = "always"
		}
		return fmt.Sprintf("jetstream { store_dir: store, domain: %s, sync_interval: %q }\nleafnodes { %s }\n", name,
			sync, leafnodes(i))
	}
	if o.Servers > 1 {
		r.Cluster = natscluster.StartNamed(t, "region-"+name, o.Servers, more)
		r.NATS = r.Cluster.Servers
		return r
	}
	n := harness.PrepareShardedNATS(t, "region-"+name, fmt.Sprintf("server_name: region-%s\n%s", name, more(0)),
		o.Shards)
	n.Start()
	r.NATS = []*harness.NATS{n}
	return r
}

// Linked waits until a client of each server of B, and of C, reaches JetStream of A.
func (r *Regions) Linked(t testing.TB) {
	t.Helper()
	leaves := r.B.NATS
	if r.C != nil {
		leaves = slices.Concat(leaves, r.C.NATS)
	}
	for _, n := range leaves {
		js := domain(t, harness.Connect(t, n.URL()), r.A.Name)
		harness.Until(t, harness.Limit, n.Name()+" reaches region a", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			if _, err := js.Stream(ctx, "none"); !errors.Is(err, jetstream.ErrStreamNotFound) {
				return fmt.Errorf("it answers %w", err)
			}
			return nil
		})
	}
}

// URL is where clients find the servers of the region.
func (r *Region) URL() string {
	if r.Cluster != nil {
		return r.Cluster.URL()
	}
	return r.NATS[0].URL()
}

// Connect connects to the region until the test ends.
func (r *Region) Connect() *nats.Conn { r.t.Helper(); return harness.Connect(r.t, r.URL()) }

// JetStream connects to JetStream of the region until the test ends.
func (r *Region) JetStream() jetstream.JetStream {
	r.t.Helper()
	return domain(r.t, r.Connect(), r.Name)
}

// Of is JetStream of another region, by the link, until the test ends.
func (r *Region) Of(other *Region) jetstream.JetStream {
	r.t.Helper()
	return domain(r.t, r.Connect(), other.Name)
}

func domain(t testing.TB, nc *nats.Conn, name string) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.NewWithDomain(nc, name)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

// Link is the way between two regions.
type Link struct{ proxies []*harness.Proxy }

// Delay delays what passes, by d in each direction; 0 ends it.
func (l *Link) Delay(d time.Duration) {
	for _, way := range []harness.Direction{harness.ToServer, harness.ToClient} {
		l.each(func(p *harness.Proxy) { p.Delay(way, d) })
	}
}

// Down closes the connections and refuses new ones until Up.
func (l *Link) Down() { l.each((*harness.Proxy).Down) }

// Up ends Down. To wait until the regions are linked again, use [Regions.Linked].
func (l *Link) Up() { l.each((*harness.Proxy).Up) }

// Flap takes the link down and up again so many times, and leaves it so for a period each time.
func (l *Link) Flap(t testing.TB, times int, period time.Duration) {
	t.Helper()
	for range times {
		l.Down()
		harness.At(t, time.Now().Add(period))
		l.Up()
		harness.At(t, time.Now().Add(period))
	}
}

// Hold leaves the connections open and lets nothing pass until Release.
func (l *Link) Hold() {
	for _, way := range []harness.Direction{harness.ToServer, harness.ToClient} {
		l.each(func(p *harness.Proxy) { p.Hold(way) })
	}
}

// Release ends Hold. What was held arrives.
func (l *Link) Release() { l.each((*harness.Proxy).Release) }

func (l *Link) each(do func(*harness.Proxy)) {
	for _, p := range l.proxies {
		do(p)
	}
}
