package tracing

import (
	"net/http"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/seed18712806/lapse/sink/wire"
)

// Request begins the span of a request to a route of the HTTP API, and ends it with the status of the
// answer. If the span is sampled, it takes the place of the traceparent in the request, so that it is
// the parent of what the request writes. An import begins no trace of its own: each of its lines would
// carry it.
func (t *Tracer) Request(r *http.Request, route string, writes bool) (end func(code int)) {
	parent := remote(r.Header.Get(wire.HeaderTrace))
	ctx := otel.ContextWithRemoteSpanContext(r.Context(), parent)
	_, span := t.tracer.Start(ctx, r.Method+" "+route, otel.WithSpanKind(otel.SpanKindServer))
	if c := span.SpanContext(); c.IsSampled() && (writes || parent.IsValid()) {
		r.Header.Set(wire.HeaderTrace, traceparent(c))
	}
	if span.IsRecording() {
		scheme, path := "http", route
		if r.TLS != nil {
			scheme = "https"
		}
		span.SetAttributes(semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPRoute(route), semconv.URLScheme(scheme))
		if c := r.PathValue("collection"); wire.CheckCollection(c) == nil {
			path = strings.Replace(route, "{collection}", c, 1)
			span.SetAttributes(attribute.String("lapse.collection", c))
		}
		span.SetAttributes(semconv.URLPath(path)) // without the id of the document
	}
	return func(code int) {
		status(span, code, semconv.HTTPResponseStatusCode(code))
		span.End()
	}
}
