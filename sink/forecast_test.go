package sink_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// compareChange compares a forecast of another default with what the rules say of each live
// document after such a change.
func (r *rig) compareChange(collection string, now int64, d ttlrules.Default) {
	r.T.Helper()
	const buckets, within = 5, 23 * time.Second
	f, err := r.Reader.Forecast(ctx, collection, sink.ForecastOptions{Buckets: buckets, Within: within, Default: &d})
	if r.Configs[collection].NoIndex && d != ttlrules.Off {
		wantErr(r.T, err, sink.ErrInvalidRequest, "forecast a default while the indexing mode is none")
		return
	}
	if err != nil || f.AtOnce == nil {
		r.T.Fatalf("forecast of default %d: %+v, %v", d, f, err)
	}
	after := r.Configs[collection].History.With(now, 1<<50, d)
	atOnce, counts := int64(0), make([]int64, buckets)
	for _, doc := range r.Live(collection, now) {
		x, ok := after.ExpiredAt(doc.Header.Clock())
		if ok && x.At <= now {
			atOnce++
			continue
		}
		for i, b := range f.Buckets {
			if ok && x.At > int64(b.From) && x.At <= int64(b.Until) {
				counts[i]++
			}
		}
	}
	if *f.AtOnce != atOnce {
		r.T.Errorf("default %d: at once %d, want %d", d, *f.AtOnce, atOnce)
	}
	for i, b := range f.Buckets {
		if b.Count != counts[i] {
			r.T.Errorf("default %d: %d expire from %v to %v, want %d", d, b.Count, b.From, b.Until, counts[i])
		}
	}
}

// compareLife compares forecasts of another maxLife with those of the default that then counts. The configured one is
// 60 s.
func (r *rig) compareLife(collection string) {
	r.T.Helper()
	never := ttlrules.NoDefault
	for _, c := range []struct {
		opts sink.ForecastOptions
		want ttlrules.Default
	}{
		{sink.ForecastOptions{MaxLife: new(int32(10))}, 10},
		{sink.ForecastOptions{MaxLife: new(int32(3600))}, 60},
		{sink.ForecastOptions{MaxLife: new(int32(0))}, 60},
		{sink.ForecastOptions{MaxLife: new(int32(30)), Default: &never}, 30},
	} {
		got, err := r.Reader.Forecast(ctx, collection, c.opts)
		want, wantErr := r.Reader.Forecast(ctx, collection, sink.ForecastOptions{Default: &c.want})
		if diff := cmp.Diff(want, got); diff != "" || err != nil || wantErr != nil {
			r.T.Errorf("maxLife %d is not as a default of %d: %v, %v\n%s", *c.opts.MaxLife, c.want, err, wantErr, diff)
		}
	}
	_, err := r.Reader.Forecast(ctx, collection, sink.ForecastOptions{MaxLife: new(int32(-1))})
	wantErr(r.T, err, sink.ErrInvalidRequest, "forecast of maxLife -1")
}

// TestForecastOfAChange: the forecast has the documents that a change of the default would
// expire, at once and later, and none that is expired already. A document whose deadline
// would be the present instant expires at once.
//
// Goes red if atOnce is counted from the beginning of the index, or not up to the present.
func TestForecastOfAChange(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 3, far)
		for i := range 100 {
			r.Put("orders", fmt.Sprint("i", i), store.Header{Ts: far - int64(i)*1000, Etag: 1}, "{}")
			r.Put("orders", fmt.Sprint("o", i), store.Header{Ts: far - int64(i)*1000, Etag: 1, TTL: ttlrules.TTL(i%9*8 - 1)},
				"{}")
		}
		at := int64(far - 30_000)
		for _, d := range []ttlrules.Default{ttlrules.Off, 80, ttlrules.Off, 3600, ttlrules.NoDefault, 60} {
			for _, next := range []ttlrules.Default{ttlrules.Off, ttlrules.NoDefault, 1, 30, 60, 80, 3600} {
				r.compareChange("orders", far, next)
			}
			at += 5000
			r.WithDefault("orders", at, d)
		}
		r.compareLife("orders")
		ten, off, bad := ttlrules.Default(10), ttlrules.Off, ttlrules.Default(-2)
		f, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Default: &ten})
		if err != nil || *f.AtOnce == 0 {
			t.Errorf("a default of 10 s expires nothing at once: %+v, %v", f, err)
		}
		if f, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{}); err != nil || f.AtOnce != nil {
			t.Errorf("a forecast without a change says what happens at once: %+v, %v", f, err)
		}
		_, err = r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Default: &bad})
		wantErr(t, err, sink.ErrInvalidRequest, "forecast of default -2")
		// While the indexing mode is none, no such change is allowed.
		r.Configure("none", &store.Config{NoIndex: true})
		_, err = r.Reader.Forecast(ctx, "none", sink.ForecastOptions{Default: &ten})
		wantErr(t, err, sink.ErrInvalidRequest, "forecast while the indexing mode is none")
		if why := "collection none has the indexingMode none"; !strings.Contains(fmt.Sprint(err), why) {
			t.Errorf("forecast while the indexing mode is none: %v, and should say %q", err, why)
		}
		if f, err := r.Reader.Forecast(ctx, "none", sink.ForecastOptions{Default: &off}); err != nil || *f.AtOnce != 0 {
			t.Errorf("off while the indexing mode is none: %+v, %v", f, err)
		}
	})
}
