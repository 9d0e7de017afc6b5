package tracing

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// exporter counts what becomes of spans, and says once in the log when they cannot be exported. The
// SDK would say it for each batch, and drops spans from a full queue without a word.
type exporter struct {
	inner   sdk.SpanExporter
	log     *slog.Logger
	most    int64        // spans that are queued
	queued  atomic.Int64 // or being exported
	failing atomic.Bool

	spans                     *prometheus.CounterVec
	exported, failed, dropped prometheus.Counter
}

func newExporter(inner sdk.SpanExporter, most int64, log *slog.Logger) *exporter {
	e := &exporter{inner: inner, most: most, log: log, spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "lapse", Name: "trace_spans_total",
		Help: "Spans by what became of them: exported; failed, because the collector did not take them; or dropped, " +
			"because the queue was full.",
	}, []string{"result"})}
	e.exported, e.failed, e.dropped = e.spans.WithLabelValues("exported"), e.spans.WithLabelValues("failed"),
		e.spans.WithLabelValues("dropped")
	return e
}

// ExportSpans implements [sdk.SpanExporter].
func (e *exporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := e.inner.ExportSpans(ctx, spans)
	e.queued.Add(-int64(len(spans)))
	if err != nil {
		e.failed.Add(float64(len(spans)))
		if !e.failing.Swap(true) {
			e.log.Warn("spans cannot be exported: lapse goes on without them", slog.Any("error", err))
		}
		return nil
	}
	e.exported.Add(float64(len(spans)))
	if e.failing.Swap(false) {
		e.log.Info("spans are exported again")
	}
	return nil
}

// Shutdown implements [sdk.SpanExporter].
func (e *exporter) Shutdown(ctx context.Context) error { return e.inner.Shutdown(ctx) }

// behind puts a limit before a queue of the SDK. It counts the spans that the queue would drop.
func (e *exporter) behind(queue sdk.SpanProcessor) sdk.SpanProcessor { return &limited{queue, e} }

type limited struct {
	sdk.SpanProcessor
	exporter *exporter
}

// OnEnd implements [sdk.SpanProcessor].
func (l *limited) OnEnd(s sdk.ReadOnlySpan) {
	e := l.exporter
	if !s.SpanContext().IsSampled() {
		return
	}
	if e.queued.Add(1) > e.most {
		e.queued.Add(-1)
		e.dropped.Inc()
		return
	}
	l.SpanProcessor.OnEnd(s)
}
