package shard

import (
	"context"
	"math"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
)

// warnEvery is the log time, in milliseconds, between two looks for documents that are to be warned of,
// so that a look finds many of them where there are many.
const warnEvery = 10

// nextWarning is when the owner looks for documents that are to be warned of; math.MaxInt64 if there will be none.
func (p *Owner) nextWarning() int64 {
	return max(p.collections.FirstWarning(), p.duties.warned+warnEvery)
}

// warn publishes warnings of documents of one collection, a chunk of those that are due by the log time.
// It commits nothing, because they follow from what is committed already. No checkpoint is stored while
// some are left. worked reports whether any may have been due.
func (p *Owner) warn(ctx context.Context) (worked bool, err error) {
	now := p.progress.Watermark
	name, slices := p.collections.ToWarn(now)
	if name == "" {
		return false, nil
	}
	found, err := p.between(ctx, name, slices)
	if err != nil {
		return false, err
	}
	d := fold.New(p.Limits, p.collections, now)
	d.Warn(p.collections, name, slices, found)
	end := p.Status.Works("waiting for NATS (publish)")
	err = p.announcer.Publish(ctx, d.Outputs, p.progress.Stamp)
	if end(); err != nil {
		return false, err
	}
	p.Metrics.Warned.Add(float64(d.Warned))
	if p.collections.FirstWarning() > now {
		p.duties.warned = now
		if p.progress.IsCommitted() {
			p.judge()
		}
	}
	if d.Warned == 0 {
		return true, nil
	}
	return true, p.Hook.At(crash.AfterWarn)
}

// between finds a chunk of the documents in slices of the indexes of a collection.
func (p *Owner) between(ctx context.Context, name string, slices []store.Slice) ([]store.Found, error) {
	ctx, cancel := context.WithTimeout(ctx, streams.CallTimeout)
	defer cancel()
	defer p.Status.Works("waiting for Redis (documents to be warned of)")()
	began := time.Now()
	found, err := p.Store.Between(ctx, p.progress.Version, name, slices, ReapChunk, reapBytes)
	if err != nil {
		return nil, err
	}
	p.tenure.verified = began
	return found, p.Hook.At(crash.AfterFind)
}

// warnFrom begins the warnings of a takeover.
func (p *Owner) warnFrom() {
	p.duties.warned = math.MinInt64 / 2
	p.collections.WarnFrom(p.announcer.PublishedUpTo().Watermark)
}
