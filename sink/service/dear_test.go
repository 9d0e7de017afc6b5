package service_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/entries"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestDearReads: few reads that examine many documents are under way at a time, some wait, and more are refused at
// once. Other reads wait for none of them. While the owner lags, one is under way, and rests three times as long as it
// took.
func TestDearReads(t *testing.T) {
	one := []entries.Condition{{Pointer: "/customer", In: []entries.Value{{Kind: entries.String, Text: "c1"}}}}
	const took, burst = 100 * time.Millisecond, 200
	for name, want := range map[string]struct {
		lags bool
		most int64
		last time.Duration // when the last one of a burst has ended
	}{
		"the owner keeps up": {false, 4, 5 * took},
		"the owner lags":     {true, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var under, most, answered, refused atomic.Int64
				work := func() {
					n := under.Add(1)
					for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
					}
					time.Sleep(took) // of a bubble
					under.Add(-1)
					answered.Add(1)
				}
				d := service.NewDear(fake{
					get: func(context.Context, string, string) (sink.Document, error) { return sink.Document{}, nil },
					list: func(_ context.Context, _ string, o sink.ListOptions) (sink.Page, error) {
						if o.Prefix != "" {
							work()
						}
						return sink.Page{}, nil
					},
					query: func(_ context.Context, _ string, o sink.QueryOptions) (sink.QueryPage, error) {
						if o.Dear() {
							work()
						}
						return sink.QueryPage{}, nil
					},
					count: func(context.Context, string) (wire.CountReply, error) { work(); return wire.CountReply{}, nil },
					forecast: func(context.Context, string, sink.ForecastOptions) (wire.ForecastReply, error) {
						work()
						return wire.ForecastReply{}, nil
					},
					collections: func(context.Context, sink.CollectionsOptions) (wire.CollectionsReply, error) {
						work()
						return wire.CollectionsReply{}, nil
					},
				}, func() bool { return want.lags })
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				began := time.Now()
				var all sync.WaitGroup
				for i := range burst {
					all.Go(func() {
						var err error
						switch i % 5 {
						case 0:
							_, err = d.Forecast(ctx, "orders", sink.ForecastOptions{})
						case 1:
							_, err = d.Count(ctx, "orders")
						case 2:
							_, err = d.Query(ctx, "orders", sink.QueryOptions{Where: one, Scan: true})
						case 3:
							_, err = d.Collections(ctx, sink.CollectionsOptions{})
						default:
							_, err = d.List(ctx, "orders", sink.ListOptions{Prefix: "a"})
						}
						if err == nil {
							return
						}
						if refused.Add(1); !errors.Is(err, sink.ErrUnavailable) || !strings.Contains(err.Error(), "try again") {
							t.Error(err)
						}
					})
				}
				synctest.Wait()
				if n := refused.Load(); n != burst-20 {
					t.Errorf("%d of %d were refused at once", n, burst)
				}
				if n := counted(t, d); n != burst-20 {
					t.Errorf("%v are counted as refused", n)
				}
				registry := prometheus.NewRegistry()
				if registry.Register(d) != nil || registry.Register(d) == nil {
					t.Error("a registry does not know what it collects")
				}
				_, err := d.Get(ctx, "orders", "1")
				_, listErr := d.List(ctx, "orders", sink.ListOptions{})
				_, queryErr := d.Query(ctx, "orders", sink.QueryOptions{Where: one})
				if err := errors.Join(err, listErr, queryErr); err != nil || time.Since(began) > 0 {
					t.Errorf("other reads took %s: %v", time.Since(began), err)
				}
				all.Wait()
				if most.Load() != want.most {
					t.Errorf("%d were under way at a time, want %d", most.Load(), want.most)
				}
				if want.last > 0 && time.Since(began) != want.last {
					t.Errorf("the last took %s", time.Since(began))
				}
				if want.lags && answered.Load() > 6 {
					t.Errorf("%d in two seconds: they have no rest", answered.Load())
				}
				time.Sleep(time.Second) // for the last rest
			})
		})
	}
}
