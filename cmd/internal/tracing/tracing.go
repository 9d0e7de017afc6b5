// Package tracing records with OpenTelemetry which work of lapse belongs to the traces of its clients,
// and exports the spans by OTLP over HTTP. It is on if OTEL_EXPORTER_OTLP_ENDPOINT or
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set; the SDK reads its other variables itself. No other package
// imports OpenTelemetry: the processor and the reads know a [trace.Recorder], and the HTTP API a
// function, which are nil if tracing is off.
//
//	a request over HTTP or NATS     server span, child of the request's traceparent
//	a write with a traceparent      consumer span of its decision and commit, child of that
//	an event or a warning           producer span, the root of a trace of its own, with a link to the span
//	                                that the write named: it may be published a week after the write
//
// A request over HTTP gives the log the traceparent of its own span, if that is sampled. So the write
// is a child of the request. No span has the id of a document, because a collector keeps spans for as
// long as it likes.
//
// Spans never hold up what they are about. They wait in a queue of OTEL_BSP_MAX_QUEUE_SIZE (2048); a
// span that finds it full is dropped, and counted. A collector that fails is said once in the log.
package tracing

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
)

// flushWithin limits the export of the last spans at the end of the process.
const flushWithin = 2 * time.Second

// Options say what a Tracer names in its spans.
type Options struct {
	Prefix  wire.Prefix
	Version string // of lapse
	Logger  *slog.Logger
	Metrics prometheus.Registerer
}

// Tracer records spans. Several goroutines may use it.
type Tracer struct {
	prefix   string // of subjects, with the dot
	tracer   otel.Tracer
	sampled  otel.Tracer // whose spans are all sampled
	provider *sdk.TracerProvider
	exporter *exporter
	log      *slog.Logger
}

// Close exports the last spans, for two seconds at most.
func (t *Tracer) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	_ = t.provider.Shutdown(ctx)       // its error is that of the exporter, which has said it, or that of ctx
	_ = t.exporter.inner.Shutdown(ctx) // interrupts an export that still waits
	if n := t.exporter.queued.Load(); n > 0 {
		t.log.Warn("spans were not exported before the end", slog.Int64("spans", n))
	}
}

// Record records a span of the processor, or of a read over NATS. It is a [trace.Recorder].
func (t *Tracer) Record(s trace.Span) {
	parent := remote(s.Parent)
	ctx, tracer := otel.ContextWithRemoteSpanContext(context.Background(), parent), t.tracer
	kind, operation := otel.SpanKindServer, semconv.MessagingOperationTypeProcess
	var links []otel.Link
	switch s.Kind {
	case trace.Write:
		kind = otel.SpanKindConsumer
	case trace.Event:
		// The sampler decides on the event as on its write. It is asked with a span that never ends.
		if _, asks := tracer.Start(ctx, ""); !asks.SpanContext().IsSampled() {
			return
		}
		ctx, tracer, links = context.Background(), t.sampled, []otel.Link{{SpanContext: parent}}
		kind, operation = otel.SpanKindProducer, semconv.MessagingOperationTypeSend
	}
	template, verb := t.prefix+s.Subject, operation.Value.AsString()
	_, span := tracer.Start(ctx, verb+" "+template, otel.WithTimestamp(s.Began), otel.WithSpanKind(kind),
		otel.WithLinks(links...))
	if span.IsRecording() {
		span.SetAttributes(
			semconv.MessagingSystemKey.String("nats"), operation, semconv.MessagingOperationName(verb),
			semconv.MessagingDestinationTemplate(template),
			semconv.MessagingDestinationName(destination(template, s.Collection)),
		)
		if s.Collection != "" {
			span.SetAttributes(attribute.String("lapse.collection", s.Collection))
		}
		if s.Seq != 0 {
			span.SetAttributes(attribute.Int64("lapse.sequence", int64(s.Seq)))
		}
		status(span, s.Status, attribute.Int("lapse.status", s.Status))
	}
	span.End(otel.WithTimestamp(s.Ended))
}

// destination is a subject up to the id of a document.
func destination(template, collection string) string {
	subject, _ := strings.CutSuffix(template, ".<id>")
	return strings.Replace(subject, "<collection>", collection, 1)
}

// status notes the status of an answer. What a client does wrong is no error of lapse.
func status(span otel.Span, code int, name attribute.KeyValue) {
	if code == 0 {
		return
	}
	span.SetAttributes(name)
	if code >= wire.StatusInternal {
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(code)))
		span.SetStatus(codes.Error, "")
	}
}
