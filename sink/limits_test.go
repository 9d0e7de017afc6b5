package sink_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestOutside: of documents of each kind in several shards, many with the same score, it counts the
// live ones that do not keep to limits, each once, also where it takes several scripts.
//
// It fails if it counts what has expired or inherits, or goes on at the wrong place.
func TestOutside(t *testing.T) {
	test := func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 3, far)
		r.WithDefault("orders", 0, 60)
		var changes []store.Change
		const each = 1500 // three scripts for a shard
		for i := range each {
			for kind, h := range []store.Header{
				{Ts: far}, {Ts: far, TTL: 5}, {Ts: far, TTL: 500}, {Ts: far, TTL: ttlrules.Never},
				{Ts: far - 9000, TTL: 5}, {Ts: far, Absolute: far + 50_000}, {Ts: far, Absolute: far + 400_001},
			} {
				h.Etag = uint64(i + 1)
				changes = append(changes, r.Change("orders", fmt.Sprint(kind, "-", i), &h, []byte("{}")))
			}
		}
		r.Write("orders", changes...)
		for _, c := range []struct {
			least, most int32
			want        int64
		}{{6, 0, each}, {5, 0, 0}, {0, 400, 3 * each}, {0, 501, each}, {51, 400, 5 * each}} {
			began := time.Now()
			reply, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Least: c.least, Most: c.most})
			cut := reply.OutsideMore && time.Since(began) > time.Second // on a busy machine it may end before it has read all
			if err != nil || reply.Outside == nil || *reply.Outside > c.want || *reply.Outside < c.want && !cut ||
				reply.OutsideMore && !cut {
				t.Errorf("outside of %d to %d: %v, at least: %t, %v; want %d", c.least, c.most, *cmp.Or(reply.Outside, new(int64)),
					reply.OutsideMore, err, c.want)
			}
		}
		_, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Least: -1})
		wantErr(t, err, sink.ErrInvalidRequest, "a limit of -1")
		if reply, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{}); err != nil || reply.Outside != nil {
			t.Errorf("without limits: %+v, %v", reply, err)
		}
	}
	t.Run("embedded", func(t *testing.T) { test(t, redistest.StartMini(t)) }) // miniredis sorts the index for each script
	t.Run("redis", func(t *testing.T) { test(t, redistest.Start(t)) })
}
