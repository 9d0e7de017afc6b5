package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestAll_RegionShards: two regions with two shards hand over to each other, with configurations before, between and
// after that.
//
// It fails if a shard is left out of a promotion; if the log of a shard gets a configuration twice or not at all: each
// takes them from the stream of configurations, which begins anew with a promotion.
func TestAll_RegionShards(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{Shards: 2})
	r.follow(r.b, r.a)
	r.handOverTwice(51)
	configs := r.a.Stream(r.a.Prefix.ConfigStream())
	for _, w := range []*inRegion{r.a, r.b} {
		for _, log := range r.logs() {
			var sourced []string
			for _, m := range w.Stream(log) {
				if m.Header.Get("Nats-Stream-Source") != "" {
					sourced = append(sourced, m.Subject+" "+string(m.Data))
				}
			}
			var want []string
			for _, m := range configs {
				want = append(want, m.Subject+" "+string(m.Data))
			}
			if len(want) < 6 || !slices.Equal(sourced, want) {
				t.Errorf("region %s, %s has %d configurations, want %d: %v, want %v", w.Name, log, len(sourced),
					len(want), sourced, want)
			}
		}
	}
}

// handOverTwice lets the regions hand over to each other under writes, and back, with configurations before, between
// and
// after that, and verifies both.
func (r *twoRegions) handOverTwice(seed uint64) {
	r.t.Helper()
	a, b := startLoad(r.t, r.a.Client, seed), startLoad(r.t, r.b.Client, seed+1)
	configures := 0
	goOn := func(through *inRegion) {
		a.wait(r.t, 100)
		b.wait(r.t, 100)
		for range 2 {
			configures++
			through.Configure("own", fmt.Sprintf(`{"defaultTtl":%d}`, configures))
			through.Want(201, wire.Upsert, "own", fmt.Sprint("doc ", configures), `{}`)
		}
	}
	goOn(r.a)
	r.handOver(r.a, r.b, func() { a.wait(r.t, 50) })
	goOn(r.b)
	r.handOver(r.b, r.a, func() { b.wait(r.t, 50) })
	goOn(r.a)
	a.end()
	b.end()
	lateness(r.t, r.a.verify())
	r.b.verify()
	r.same()
	r.sameStreams()
	a.verifyStored(r.t)
	b.verifyStored(r.t)
}

// TestAll_RegionClusters: two regions with clusters of three nats-servers hand over to each other. All streams have
// three replicas.
//
// It fails if a promotion loses or repeats what a stream with replicas has.
func TestAll_RegionClusters(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{Servers: 3})
	r.follow(r.b, r.a)
	r.handOverTwice(61)
}

// TestAll_RegionTwoFollowers: two regions follow the first one, and one of them is promoted. The other one is demoted,
// and follows that, as the former first region does.
//
// It fails if a second follower keeps a region from being promoted; if it loses or repeats something as the follower of
// another region than before.
func TestAll_RegionTwoFollowers(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{Third: true})
	c := r.world(r.C)
	r.follow(r.b, r.a)
	r.follow(c, r.a)
	l := startLoad(t, c.Client, 71)
	l.wait(t, 200)
	r.handOver(r.a, r.b, func() { l.wait(t, 100) })
	if code := c.lapse.Terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, flags := range [][]string{{"promote"}, {"promote", "--from", r.a.Name}} {
		if text := r.command(c, 1, flags...); !strings.Contains(text, "there can be one first region") {
			t.Errorf("a second region that takes the place of the first is refused with %q", text)
		}
	}
	t.Log(r.demote(c, 0, "--first", r.b.Name))
	r.follow(c, r.b)
	l.wait(t, 100)
	l.end()
	r.b.verify()
	c.verify()
	r.same()
	r.sameIn(r.b, c)
	r.sameStreams()
	l.c = r.b.Client
	l.verifyStored(t)
}
