package service

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

const (
	dearSlots   = 4  // dear reads of a process that are under way
	dearWaiting = 16 // and those that wait for a slot; more are refused
	// dearRest is the pause after a dear read while the owner lags, as a multiple of the time that the read took. Then one
	// is under way at a time, so they take at most a quarter of Redis.
	dearRest = 3
)

// Dear is a Reader whose dear reads have few slots of their own: those that examine many documents or collections
// for one answer. Redis runs one script at a time, so many of them would delay every other read, and the owner. All
// readers of a process share a Dear. Several goroutines may use it.
type Dear struct {
	Reader
	lags    func() bool
	waiting chan struct{}
	slots   *semaphore.Weighted
	refused prometheus.Counter
}

// NewDear limits the dear reads of a Reader. lags reports whether an owner in this process is behind; it may be nil.
func NewDear(r Reader, lags func() bool) *Dear {
	return &Dear{
		Reader: r, lags: lags,
		waiting: make(chan struct{}, dearSlots+dearWaiting), slots: semaphore.NewWeighted(dearSlots),
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "lapse", Name: "dear_reads_refused_total",
			Help: "Reads that examine many documents, such as forecasts, which this process has refused because too many were " +
				"under way.",
		}),
	}
}

// Describe implements [prometheus.Collector].
func (d *Dear) Describe(c chan<- *prometheus.Desc) { d.refused.Describe(c) }

// Collect implements [prometheus.Collector].
func (d *Dear) Collect(c chan<- prometheus.Metric) { d.refused.Collect(c) }

// enter waits for a slot. The caller calls leave.
func (d *Dear) enter(ctx context.Context) (leave func(), err error) {
	refuse := func() (func(), error) {
		d.refused.Inc()
		return nil, fmt.Errorf("%w: too many reads that examine many documents are under way (%d at a time, and %d may "+
			"wait): try again, or ask another process", sink.ErrUnavailable, dearSlots, dearWaiting)
	}
	select {
	case d.waiting <- struct{}{}:
	default:
		return refuse()
	}
	need := int64(1)
	if d.lags != nil && d.lags() {
		need = dearSlots
	}
	if err := d.slots.Acquire(ctx, need); err != nil {
		<-d.waiting
		return refuse()
	}
	began := time.Now()
	return func() {
		free := func() { d.slots.Release(need); <-d.waiting }
		if need == 1 {
			free()
			return
		}
		time.AfterFunc(dearRest*time.Since(began), free)
	}, nil
}

// Forecast implements [Reader].
func (d *Dear) Forecast(ctx context.Context, collection string, opts sink.ForecastOptions) (wire.ForecastReply, error) {
	leave, err := d.enter(ctx)
	if err != nil {
		return wire.ForecastReply{}, err
	}
	defer leave()
	return d.Reader.Forecast(ctx, collection, opts)
}

// Count implements [Reader].
func (d *Dear) Count(ctx context.Context, collection string) (wire.CountReply, error) {
	leave, err := d.enter(ctx)
	if err != nil {
		return wire.CountReply{}, err
	}
	defer leave()
	return d.Reader.Count(ctx, collection)
}

// Collections implements [Reader].
func (d *Dear) Collections(ctx context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error) {
	leave, err := d.enter(ctx)
	if err != nil {
		return wire.CollectionsReply{}, err
	}
	defer leave()
	return d.Reader.Collections(ctx, opts)
}

// Query implements [Reader].
func (d *Dear) Query(ctx context.Context, collection string, opts sink.QueryOptions) (sink.QueryPage, error) {
	if !opts.Dear() {
		return d.Reader.Query(ctx, collection, opts)
	}
	leave, err := d.enter(ctx)
	if err != nil {
		return sink.QueryPage{}, err
	}
	defer leave()
	return d.Reader.Query(ctx, collection, opts)
}

// List implements [Reader]. A list by prefix examines all ids.
func (d *Dear) List(ctx context.Context, collection string, opts sink.ListOptions) (sink.Page, error) {
	if !sink.Scans(opts) {
		return d.Reader.List(ctx, collection, opts)
	}
	leave, err := d.enter(ctx)
	if err != nil {
		return sink.Page{}, err
	}
	defer leave()
	return d.Reader.List(ctx, collection, opts)
}
