package shard

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/trace"
	"github.com/seed18712806/lapse/sink/wire"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// TestTracedWrites: a write that carries a traceparent is recorded once it is committed, with the code of its
// rejection, and its event once that is published. Others are not, nor are those that a rebuild applies again.
//
// It fails if the status is that of another message, or if a rebuild records what was recorded.
func TestTracedWrites(t *testing.T) {
	r := newRig(t)
	var got []trace.Span
	record := func(s trace.Span) {
		if s.Began.IsZero() || s.Ended.Before(s.Began) {
			t.Errorf("it lasted from %v to %v", s.Began, s.Ended)
		}
		got = append(got, s)
	}
	r.Trace = record
	r.idle()
	ttlOf1(r)
	r.idle()
	traced := func(m *fold.Message) uint64 { m.Trace = traceparent; return m.Seq }
	r.send(start, prefix.Write(wire.Create, "c", "z"), `{"ttl":-1}`)
	r.send(start, prefix.Write(wire.Create, "c", "z"), `{}`) // 409, untraced
	refused := traced(r.send(start, prefix.Write(wire.Create, "c", "z"), `{}`))
	a := traced(r.write(start, "a", `{}`))
	unknown := traced(r.send(start, prefix.Write("frob", "c", "a"), `{}`))
	r.idle()
	r.passTime(start + 1000)
	r.idle()
	want := []trace.Span{
		{Kind: trace.Write, Subject: "write.create.<collection>.<id>", Seq: refused, Status: wire.StatusConflict},
		{Kind: trace.Write, Subject: "write.upsert.<collection>.<id>", Seq: a},
		{Kind: trace.Write, Subject: "write.<operation>.<collection>.<id>", Seq: unknown,
			Status: wire.StatusBadRequest},
		{Kind: trace.Event, Subject: "expired.<collection>.<id>", Seq: a},
	}
	for i := range want {
		want[i].Parent, want[i].Collection = traceparent, "c"
	}
	check := func(when string) {
		t.Helper()
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(trace.Span{}, "Began", "Ended")); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", when, diff)
		}
	}
	check("at first")
	r.checkpoint()
	r.wipe()
	for err := r.try(); err != nil; err = r.try() {
		r.recover(err)
	}
	same(t, "documents after a rebuild", r.documents(), []string{"z"})
	check("after a rebuild")
}

// BenchmarkTracedWrites shows what traces cost a step of 256 writes: nothing without a recorder, and a
// look at each write with one.
func BenchmarkTracedWrites(b *testing.B) {
	for name, c := range map[string]struct {
		trace    trace.Recorder
		carrying string
	}{"off": {nil, traceparent}, "on, no traceparents": {func(trace.Span) {}, ""}, "on": {func(trace.Span) {},
		traceparent}} {
		b.Run(name, func(b *testing.B) {
			p := at8(nil, 0)
			p.Parts = Parts{Trace: c.trace}
			w := &work{decision: &fold.Decision{}, began: time.Now()}
			for i := range 256 {
				w.messages = append(w.messages, &fold.Message{Position: fold.Position{Seq: uint64(i + 1)},
					Op: wire.Upsert, Collection: "c", ID: "a", Trace: c.carrying})
			}
			b.ReportAllocs()
			for b.Loop() {
				p.traceWrites(w)
			}
		})
	}
}
