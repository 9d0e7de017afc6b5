package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"

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
	flags, _ := strconv.ParseUint(traceparent[53:55], 16, 8)
	c.TraceFlags = otel.TraceFlags(flags)
	return otel.NewSpanContext(c)
}

// traceparent names a span.
func traceparent(s otel.SpanContext) string {
	return "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-" + s.TraceFlags().String()
}

// linked is the key under which a context has the trace to which a new trace has a link.
type linked struct{}

// ids makes the ids of spans. The trace of an event ends as that of its write does. A sampler that
// takes a share of all traces (traceidratio) decides by the end of the id, so it takes both or neither.
type ids struct{}

// NewIDs implements the IDGenerator of the SDK.
func (g ids) NewIDs(ctx context.Context) (t otel.TraceID, s otel.SpanID) {
	for !t.IsValid() {
		binary.NativeEndian.PutUint64(t[:8], rand.Uint64())
		if of, ok := ctx.Value(linked{}).(otel.TraceID); ok {
			copy(t[8:], of[8:])
		} else {
			binary.NativeEndian.PutUint64(t[8:], rand.Uint64())
		}
	}
	return t, g.NewSpanID(ctx, t)
}

// NewSpanID implements the IDGenerator of the SDK.
func (ids) NewSpanID(context.Context, otel.TraceID) (s otel.SpanID) {
	for !s.IsValid() {
		binary.NativeEndian.PutUint64(s[:], rand.Uint64())
	}
	return s
}
