package tracing

import (
	"encoding/hex"

	otel "go.opentelemetry.io/otel/trace"

	"github.com/seed18712806/lapse/sink/wire"
)

// remote is the span that a traceparent names; it is not valid if the traceparent is not.
func remote(traceparent string) otel.SpanContext {
	if !wire.ValidTraceparent(traceparent) {
		return otel.SpanContext{}
	}
	c := otel.SpanContextConfig{Remote: true}
	c.TraceID, _ = otel.TraceIDFromHex(traceparent[3:35])
	c.SpanID, _ = otel.SpanIDFromHex(traceparent[36:52])
	flags, _ := hex.DecodeString(traceparent[53:55])
	c.TraceFlags = otel.TraceFlags(flags[0])
	return otel.NewSpanContext(c)
}

// traceparent names a span.
func traceparent(s otel.SpanContext) string {
	return "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-" + s.TraceFlags().String()
}
