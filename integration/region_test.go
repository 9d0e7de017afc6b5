package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/sink/wire"
)

// twoRegions are region a and region b, each with a lapse. b follows a at first.
type twoRegions struct {
	*regions.Regions
	t     *testing.T
	o     regions.Options
	flags []string // of each lapse
	a, b  *inRegion
}

// inRegion is what a region has.
type inRegion struct {
	*world
	*regions.Region
}

// startRegions starts both regions, and lapse in a.
func startRegions(t *testing.T, o regions.Options) *twoRegions {
	t.Helper()
	r := &twoRegions{Regions: regions.Start(t, o), t: t, o: o,
		flags: []string{"--duplicate-window", duplicateWindow.String()}}
	if o.Shards > 1 {
		r.flags = append(r.flags, "--shards", fmt.Sprint(o.Shards))
	}
	if o.Servers > 1 {
		r.flags = append(r.flags, "--replicas", fmt.Sprint(o.Servers))
	}
	r.a, r.b = r.world(r.A), r.world(r.B)
	r.a.lapse = r.lapseIn(r.a)
	r.a.lapse.Start()
	return r
}

func (r *twoRegions) world(of *regions.Region) *inRegion {
	r.t.Helper()
	w := &world{t: r.t, nats: of.NATS[0], redis: of.Redis, shards: r.o.Shards}
	w.connect(of.URL(), of.Redis.Address())
	return &inRegion{w, of}
}

// lapseIn makes a lapse in a region, and does not start it.
func (r *twoRegions) lapseIn(w *inRegion, flags ...string) *harness.Lapse {
	r.t.Helper()
	url := w.lapseURL()
	l := harness.PrepareLapse(r.t, slices.Concat([]string{"--nats", url, "--redis", w.redis.URL()}, r.flags, flags)...)
	l.NATSURL, l.Redis = url, w.redis.Address()
	return l
}

// lapseURL is the URL of NATS for lapse in the region.
func (w *inRegion) lapseURL() string {
	return strings.ReplaceAll(w.URL(), "nats://", "nats://lapse:"+harness.LapsePassword+"@")
}

// follow starts lapse in a region, which follows another one.
func (r *twoRegions) follow(w *inRegion, other *inRegion, flags ...string) {
	r.t.Helper()
	w.lapse = r.lapseIn(w, append([]string{"--follow", other.Name}, flags...)...)
	w.lapse.Start()
}

// logs are the names of the logs of all shards.
func (r *twoRegions) logs() (names []string) {
	for shard := range max(1, r.o.Shards) {
		names = append(names, wire.DefaultPrefix.Log(shard, max(1, r.o.Shards)).Stream())
	}
	return names
}

// same waits until the states of both regions are the same, at the same offsets. Nothing may be due.
func (r *twoRegions) same() { r.t.Helper(); r.sameIn(r.a, r.b) }

// sameIn is same of any regions.
func (r *twoRegions) sameIn(one, other *inRegion) {
	r.t.Helper()
	a, b := one.redis.Client(), other.redis.Client()
	harness.Until(r.t, harness.Limit, "the states in "+one.Name+" and "+other.Name+" are the same",
		func(ctx context.Context) error {
			inA, err := stateIn(ctx, a)
			if err != nil {
				return err
			}
			inB, err := stateIn(ctx, b)
			if err != nil {
				return err
			}
			return differences(inA, inB)
		})
}

// stateIn is everything that a Redis holds but what belongs to it alone: its identity, the versions by which
// owners fence it, and how far its owners have examined the stream of events.
func stateIn(ctx context.Context, client *redis.Client) (map[string]string, error) {
	state := map[string]string{}
	keys := client.Scan(ctx, 0, "*", 1000).Iterator()
	for keys.Next(ctx) {
		key := keys.Val()
		kind, err := client.Type(ctx, key).Result()
		if err != nil {
			return nil, err
		}
		switch kind {
		case "hash":
			fields, err := client.HGetAll(ctx, key).Result()
			if err != nil {
				return nil, err
			}
			for field, value := range fields {
				if field != "version" && field != "events" && !strings.HasSuffix(key, ":identity") {
					state[key+" "+field] = value
				}
			}
		case "zset":
			members, err := client.ZRangeWithScores(ctx, key, 0, -1).Result()
			if err != nil {
				return nil, err
			}
			for _, m := range members {
				state[fmt.Sprint(key, " ", m.Member)] = fmt.Sprint(m.Score)
			}
		default:
			return nil, fmt.Errorf("key %q is a %s", key, kind)
		}
	}
	return state, keys.Err()
}

// differences returns an error that names what two states do not have in common.
func differences(a, b map[string]string) error {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if other, ok := b[key]; !ok || other != a[key] {
			all = append(all, fmt.Sprintf("%q is %q in a, and %q in b", key, a[key], other))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if _, ok := a[key]; !ok {
			all = append(all, fmt.Sprintf("%q is %q in b alone", key, b[key]))
		}
	}
	if len(all) == 0 {
		return nil
	}
	return fmt.Errorf("%d differences in %d fields: %s", len(all), len(a), strings.Join(all[:min(5, len(all))], "; "))
}
