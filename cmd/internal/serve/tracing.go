package serve

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/cmd/internal/tracing"
)

// startTracing starts the tracer, if the environment asks for one, until p is closed. By then nothing
// records spans any more.
func (p *process) startTracing(ctx context.Context, metrics prometheus.Registerer) (err error) {
	p.tracer, err = tracing.Start(ctx,
		tracing.Options{Prefix: p.opts.Processor.Prefix, Version: p.opts.Version, Logger: p.opts.Logger, Metrics: metrics})
	if p.tracer != nil {
		p.opts.Processor.Trace = p.tracer.Record
		p.opened(func() error { p.tracer.Close(); return nil })
	}
	return err
}
