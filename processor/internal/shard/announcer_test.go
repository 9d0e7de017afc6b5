package shard

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// self is an owner that nobody takes anything from.
type self struct{}

func (self) Verify(context.Context) error { return nil }
func (self) Verified() time.Time          { return time.Now() }

// begin is what an owner does of a takeover that concerns the stream of events.
func (r *rig) begin(a *Announcer, c Checkpoint, upTo uint64) {
	r.t.Helper()
	a.Hold()
	if err := a.Fence(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	if err := r.Tail.Cover(r.t.Context(), c.From.Seq, a.FencePlace().Seq); err != nil {
		r.t.Fatal(err)
	}
	a.Begin(c, upTo, c.Last)
}

// outputs are the rejections of messages of the log.
func (r *rig) outputs(seqs ...uint64) (all []fold.Output) {
	for _, seq := range seqs {
		all = append(all, fold.Output{Seq: seq, Message: events.Rejected(r.log, events.Rejection{Subject: "x", Rest: "x", Seq: seq, Ts: 1, Code: 400, Error: "x"})})
	}
	return all
}

func (r *rig) publish(a *Announcer, outputs []fold.Output) {
	r.t.Helper()
	if err := a.Publish(r.t.Context(), outputs, store.Stamp{}); err != nil {
		r.t.Fatal(err)
	}
}

// stored fails the test unless the stream has the rejections of these messages, in this order.
func (r *rig) stored(want ...string) {
	r.t.Helper()
	info, err := r.streams.Events.Info(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	var got []string
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := r.streams.Events.GetMsg(r.t.Context(), seq)
		if err != nil {
			r.t.Fatal(err)
		}
		if n := m.Header.Get(wire.HeaderSeq); n != "" {
			got = append(got, n)
		}
	}
	if !slices.Equal(got, want) {
		r.t.Errorf("the stream has the rejections of %v, want %v", got, want)
	}
}

// TestG3_AnnouncerPublishesOnce: an owner publishes what a former owner has not published, in the order
// of the log.
//
// It fails if an output at the border is published twice or not at all, or if one of before a takeover is
// taken for stored afterwards, although the stream has lost it.
func TestG3_AnnouncerPublishesOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	former := NewAnnouncer(&r.Parts, self{})
	r.begin(former, Checkpoint{}, 0)
	r.publish(former, r.outputs(11, 12))

	a := NewAnnouncer(&r.Parts, self{})
	r.begin(a, Checkpoint{Seq: 10, Watermark: 1}, 14)
	r.publish(a, r.outputs(9, 10)) // at or before the checkpoint: published, and aged out
	r.publish(a, r.outputs(11, 12, 13, 14, 15))
	r.stored("11", "12", "13", "14", "15")
	if err := former.Publish(t.Context(), r.outputs(16), store.Stamp{}); !errors.Is(err, store.ErrFenced) {
		t.Errorf("a former owner publishes: %v", err)
	}
	lost := r.outputs(20, 21, 22)
	r.publish(a, lost)
	r.stored("11", "12", "13", "14", "15", "20", "21", "22")
	// A takeover goes by the stream, and by nothing that it remembers.
	if err := r.streams.Events.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.begin(a, Checkpoint{Seq: 19, Watermark: 1, From: a.Last()}, 22)
	info, err := r.streams.Events.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.publish(a, lost)
	if now, err := r.streams.Events.Info(t.Context()); err != nil || now.State.LastSeq != info.State.LastSeq+3 {
		t.Errorf("what is lost is not published again: %+v, %v", now.State, err)
	}
}

// TestG3_AnnouncerSettles: a checkpoint names the place behind which the stream has what comes after it.
// Until a former owner's outputs are passed that is the place from which this owner began.
//
// It fails if a checkpoint names a place behind an output that it does not cover: the next owner would
// publish that again.
func TestG3_AnnouncerSettles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAnnouncer(&r.Parts, self{})
	if err := a.Fence(t.Context()); err != nil {
		t.Fatal(err)
	}
	from := r.Publisher.Last()
	r.begin(a, Checkpoint{Seq: 10, Watermark: 1000, From: from}, 20)
	r.publish(a, r.outputs(15))
	last := a.Last()
	another := r.Parts
	another.Shard = 1
	other := NewAnnouncer(&another, self{})
	r.begin(other, Checkpoint{}, 0) // the last place of the publisher is another shard's
	settle := func(seq uint64, watermark int64, want events.Place) {
		t.Helper()
		a.Settle(&Checkpoint{Seq: seq, Watermark: watermark})
		if c := a.Settled(); c.From != want || c.Last != last {
			t.Errorf("settled at %d, %d: from %s, last %s, want from %s, last %s", seq, watermark, c.From, c.Last, want, last)
		}
	}
	settle(20, 2000, from) // log time at the end of the log is not known yet
	a.Pass(2000)
	settle(19, 2000, from)
	settle(20, 1999, from)
	settle(20, 2000, r.Publisher.Last())
	if a.holds {
		t.Error("it still holds the tail")
	}
}

// TestG9_ATakeoverHoldsTheTailOnce: a takeover that begins again does not keep the tail of the stream in
// memory for ever.
func TestG9_ATakeoverHoldsTheTailOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	former := NewAnnouncer(&r.Parts, self{})
	r.begin(former, Checkpoint{}, 0)
	outputs := r.outputs(11)
	r.publish(former, outputs)
	a := NewAnnouncer(&r.Parts, self{})
	a.Hold()
	r.begin(a, Checkpoint{Seq: 10, Watermark: 1}, 11)
	former.release()
	former.release() // it holds nothing any more
	if _, found := r.Tail.Find(outputs[0].Message); !found {
		t.Error("the tail is gone, and the takeover holds it")
	}
	a.release()
	if _, found := r.Tail.Find(outputs[0].Message); found {
		t.Error("the tail is there, and nobody holds it")
	}
}
