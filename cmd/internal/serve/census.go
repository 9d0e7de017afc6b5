package serve

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// countTimeout is the limit of one count.
const countTimeout = time.Minute

// counter lists the collections with their counts: a *sink.Reader.
type counter interface {
	Collections(ctx context.Context, opts sink.CollectionsOptions) (wire.CollectionsReply, error)
}

// collectionCensus counts the documents of all collections for the metrics. Only the owner of the
// shard runs it: the counts of two processes would be added up. It is a [prometheus.Collector] of
// the last count.
//
// A count asks Redis about each collection in each shard, so it counts seldom: with very many
// collections it spends a hundredth of the time on it, and counts every five minutes at least.
type collectionCensus struct {
	reader counter
	last   atomic.Pointer[censusCounts]
}

// censusCounts are what a count has counted.
type censusCounts struct{ collections, live, expired int64 }

// newCensus makes a census, which has counted nothing.
func newCensus(reader counter) *collectionCensus { return &collectionCensus{reader: reader} }

// Run counts again and again while owns reports true, until ctx is done. Without a count
// there are no metrics.
func (c *collectionCensus) Run(ctx context.Context, owns func() bool) {
	for {
		began := time.Now()
		c.runOnce(ctx, owns())
		pause := min(max(10*time.Second, 100*time.Since(began)), 5*time.Minute)
		if c.last.Load() == nil { // most of a count that failed was waiting for Redis
			pause = 10 * time.Second
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// runOnce counts once. A count that fails, or that Redis cannot give for each collection
// while an index is built, leaves nothing.
func (c *collectionCensus) runOnce(ctx context.Context, owns bool) {
	if !owns {
		c.last.Store(nil)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, countTimeout)
	defer cancel()
	c.last.Store(c.count(ctx))
}

// count adds up the pages of all collections; nil if one cannot be read.
func (c *collectionCensus) count(ctx context.Context) *censusCounts {
	sum := &censusCounts{}
	opts := sink.CollectionsOptions{Limit: wire.MaxListLimit}
	for {
		page, err := c.reader.Collections(ctx, opts)
		if err != nil {
			return nil // health has the reason
		}
		for _, one := range page.Collections {
			sum.collections++
			sum.live += one.Live
			sum.expired += one.Expired
		}
		if page.Continuation == "" {
			return sum
		}
		opts.Continuation = page.Continuation
	}
}

var (
	documents = prometheus.NewDesc("lapse_documents", "Documents in all collections by state: live, or expired and "+
		"not yet reaped. The owner of the shard counts them at intervals. Absent if it cannot.", []string{"state"}, nil)
	collections = prometheus.NewDesc("lapse_collections", "Collections that are configured or hold documents, counted "+
		"with the documents.", nil, nil)
)

// Describe implements [prometheus.Collector].
func (c *collectionCensus) Describe(d chan<- *prometheus.Desc) { d <- documents; d <- collections }

// Collect implements [prometheus.Collector].
func (c *collectionCensus) Collect(m chan<- prometheus.Metric) {
	last := c.last.Load()
	if last == nil {
		return
	}
	m <- prometheus.MustNewConstMetric(documents, prometheus.GaugeValue, float64(last.live), "live")
	m <- prometheus.MustNewConstMetric(documents, prometheus.GaugeValue, float64(last.expired), "expired")
	m <- prometheus.MustNewConstMetric(collections, prometheus.GaugeValue, float64(last.collections))
}
