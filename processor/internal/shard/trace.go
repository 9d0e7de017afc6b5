package shard

import (
	"slices"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
)

// traceWrites records the decision and the commit of each write that carries a traceparent, except those
// that were committed before a rebuild. As with outcomes, a takeover may record one twice.
func (p *Owner) traceWrites(w *work) {
	if p.Trace == nil {
		return
	}
	ended := time.Now()
	rejections := w.decision.Rejections // in the order of the messages
	for _, m := range w.messages {
		status := 0
		if len(rejections) > 0 && rejections[0].Seq == m.Seq {
			status, rejections = rejections[0].Code, rejections[1:]
		}
		if m.Kind != fold.Write || m.Trace == "" || m.Seq <= p.announcer.Checkpoint() {
			continue
		}
		op := m.Op
		if !slices.Contains(wire.Ops, op) {
			op = "<operation>" // that of a client, which may be anything
		}
		p.Trace(trace.Span{
			Kind: trace.Write, Parent: m.Trace, Subject: "write." + string(op) + ".<collection>.<id>", Collection: m.Collection,
			Seq: m.Seq, Status: status, Began: w.began, Ended: ended,
		})
	}
}
