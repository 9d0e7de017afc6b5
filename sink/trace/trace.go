// Package trace tells a tracer which work of lapse belongs to the traces of its clients. Whoever runs
// a processor or the reads may give them a [Recorder]; without one they record nothing, which costs a
// comparison with nil.
//
// The package knows no tracer: cmd/internal/tracing records the spans with OpenTelemetry.
package trace

import "time"

// Kind is what a span is about.
type Kind int

const (
	Write Kind = iota // the decision and the commit of a write, which belong to the trace of the write
	Event             // the publication of an event or a warning, which may follow long after the write
	Read              // the answer to a request over NATS
)

// Span is something that lapse has done.
type Span struct {
	Kind       Kind
	Parent     string // valid traceparent of the write, or of the request; "" if a request has none
	Subject    string // without the prefix, and with names for its last tokens: "write.upsert.<collection>.<id>"
	Collection string // "" if the subject has none
	Seq        uint64 // of the write in the log; 0 of a read
	Status     int    // of a read, or of a write that was rejected; otherwise 0
	Began      time.Time
	Ended      time.Time
}

// Recorder records a span. It does not block, and several goroutines may call it. It is nil if nobody
// records spans.
type Recorder func(Span)
