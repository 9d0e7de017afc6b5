package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/rediscluster"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestAll_RegionRedisCluster: a region whose Redis is a cluster follows one with a single Redis, and takes its place.
//
// It fails if a shard on one of the masters is left out: of what is followed, or of the promotion.
func TestAll_RegionRedisCluster(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	cluster := rediscluster.Start(t, redisMasters, false)
	r.b.lapse = harness.PrepareLapse(t, slices.Concat([]string{"--nats", r.b.lapseURL(), "--redis", cluster.URL(),
		"--follow", r.a.Name}, r.flags)...)
	r.b.lapse.Start()
	r.a.Configure("c", `{"defaultTtl":2}`)
	const documents = 100
	for i := range documents {
		r.a.Want(201, wire.Upsert, "c", fmt.Sprint("short ", i), `{}`)
		r.a.Want(201, wire.Upsert, "c", fmt.Sprint("long ", i), `{"ttl":1000}`)
	}
	reader, err := sink.NewReader(cluster.Client(), sink.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string) {
		t.Helper()
		harness.Until(t, harness.Limit, what, func(ctx context.Context) error {
			var pages [2][]sink.Document
			for i, one := range []*sink.Reader{r.a.reader, reader} {
				page, err := one.List(ctx, "c", sink.ListOptions{Limit: 1000})
				if err != nil {
					return err
				}
				pages[i] = page.Documents
				slices.SortFunc(pages[i], func(a, b sink.Document) int { return strings.Compare(a.ID, b.ID) })
			}
			if diff := cmp.Diff(pages[0], pages[1]); diff != "" {
				return fmt.Errorf("they differ (-a +b): %s", diff)
			}
			if len(pages[0]) != documents {
				return fmt.Errorf("there are %d documents, want %d", len(pages[0]), documents)
			}
			return nil
		})
	}
	same("both regions have the documents that live long, and no others")
	t.Log(r.command(r.b, 0, "promote", "--from", r.a.Name))
	r.b.lapse.Ready()
	r.b.Want(200, wire.Upsert, "c", "long 0", `{"ttl":1}`)
	harness.Until(t, harness.Limit, "each document has one event", func(context.Context) error {
		events := map[string]int{}
		for _, m := range r.b.Stream(r.b.Prefix.EventsStream()) {
			if id := m.Header.Get("ce-subject"); id != "" {
				events[id]++
			}
		}
		for id, n := range events {
			if n != 1 {
				t.Fatalf("%s has %d events", id, n)
			}
		}
		if len(events) != documents+1 {
			return fmt.Errorf("%d documents have events, want %d", len(events), documents+1)
		}
		return nil
	})
}
