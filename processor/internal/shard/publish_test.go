package shard

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

var errFail = errors.New("fails")

// asked is an owner that was certain of its shard some time ago.
type asked struct {
	ago    time.Duration
	err    error // of Verify
	verify int   // how often it was asked
}

func (o *asked) Verified() time.Time          { return time.Now().Add(-o.ago) }
func (o *asked) Verify(context.Context) error { o.verify++; return o.err }

// TestG1_BeforeAnythingIsPublished: an owner that may have lost its shard verifies that it has not, and one
// whose fence may have aged out of the stream stores a new one first. If either fails, it publishes nothing.
func TestG1_BeforeAnythingIsPublished(t *testing.T) {
	t.Parallel()
	fails := func(at crash.Point) crash.Hook {
		return func(here crash.Point) error {
			if here == at {
				return errFail
			}
			return nil
		}
	}
	for _, tt := range []struct {
		name     string
		owner    asked
		maxAge   time.Duration
		hook     crash.Hook
		verify   int
		refences bool
		stored   []string
		want     error
	}{
		{"all is fresh", asked{}, time.Hour, nil, 0, false, []string{"15"}, nil},
		{"the stream keeps everything", asked{}, 0, nil, 0, false, []string{"15"}, nil},
		{"it has not asked for long", asked{ago: time.Minute}, 0, nil, 1, false, []string{"15"}, nil},
		{"it is not the owner any more", asked{ago: time.Minute, err: errFail}, 0, nil, 1, false, nil, errFail},
		{"an old fence", asked{}, 2, nil, 1, true, []string{"15"}, nil},
		{"an old fence, and another owner", asked{err: errFail}, 2, nil, 1, true, nil, errFail},
		{"it dies before a fence", asked{}, 2, fails(crash.BeforeFence), 0, false, nil, errFail},
		{"it dies after a fence", asked{}, 2, fails(crash.AfterFence), 0, true, nil, errFail},
		{"it dies before it publishes", asked{}, 0, fails(crash.BeforePublish), 0, false, nil, errFail},
		{"it dies after it has published", asked{}, 0, fails(crash.AfterPublish), 0, false, []string{"15"}, errFail},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			a := NewAnnouncer(&r.Parts, &tt.owner)
			r.begin(a, Checkpoint{}, 0)
			fence := a.FencePlace()
			r.MaxAge, r.Hook = tt.maxAge, tt.hook
			err := a.Publish(t.Context(), r.outputs(15), store.Stamp{})
			if !errors.Is(err, tt.want) || tt.owner.verify != tt.verify || (a.FencePlace() != fence) != tt.refences {
				t.Errorf("%v, asked %d times, the fence was at %v and is at %v", err, tt.owner.verify, fence,
					a.FencePlace())
			}
			r.stored(tt.stored...)
			var emitted dto.Metric
			if err := r.Metrics.Emitted.Write(&emitted); err != nil {
				t.Fatal(err)
			}
			if n := emitted.Counter.GetValue(); n != float64(len(tt.stored)) ||
				(a.Last() == events.Place{}) != (n == 0) {
				t.Errorf("%v were emitted, the last one is at %v", n, a.Last())
			}
		})
	}
}

// TestG1_WhoMayHaveLostItsShard: an owner that stood still sees it by one of its clocks. The monotonic one
// does not run while the machine is suspended, and the other one may be set back.
func TestG1_WhoMayHaveLostItsShard(t *testing.T) {
	for _, tt := range []struct {
		monotonic, wall time.Duration
		want            bool
	}{{0, 0, false}, {pauseAtMost, pauseAtMost, false}, {pauseAtMost + 1, 0, true}, {pauseAtMost + 1, -time.Hour, true},
		{0, pauseAtMost + 1, true}} {
		if got := paused(tt.monotonic, tt.wall); got != tt.want {
			t.Errorf("after %v, and %v by the wall clock: %v, want %v", tt.monotonic, tt.wall, got, tt.want)
		}
	}
}

// TestG1_AFenceIsRenewedInTime: the stream removes a fence when it is MaxAge old. By half of that there is another.
func TestG1_AFenceIsRenewedInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAnnouncer(&r.Parts, self{})
	r.begin(a, Checkpoint{}, 0)
	if err := a.Fence(t.Context()); err != nil {
		t.Fatal(err)
	}
	fence, made := a.FencePlace(), time.Now()
	r.stored() // which takes a while
	r.MaxAge = time.Since(made)
	if r.publish(a, r.outputs(15)); a.FencePlace() == fence {
		t.Error("a fence that is as old as the stream's messages may be is used")
	}
}

// TestG12_AFenceIsNotRenewedBehindALoss: the stream has lost something since an old fence was stored. A new one would
// hide that, so nothing is published before a takeover has compared.
func TestG12_AFenceIsNotRenewedBehindALoss(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAnnouncer(&r.Parts, self{})
	r.begin(a, Checkpoint{}, 0)
	r.MaxAge = 2
	r.Publisher.NoteLoss()
	if err := a.Publish(t.Context(), r.outputs(15), store.Stamp{}); !errors.Is(err, events.ErrLost) {
		t.Errorf("behind a loss: %v", err)
	}
	r.stored()
}

// TestG12_TheStreamGoesBack: the stream stores an output where it had one before. It has lost that.
func TestG12_TheStreamGoesBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := NewAnnouncer(&r.Parts, self{})
	r.begin(a, Checkpoint{}, 0)
	for i, behind := range []uint64{0, 100} {
		a.last.Seq = r.Publisher.Last().Seq + 1 + behind
		if err := a.Publish(t.Context(), r.outputs(uint64(15+i)), store.Stamp{}); !errors.Is(err, events.ErrLost) {
			t.Errorf("it stores at %v, and had %d: %v", r.Publisher.Last(), a.last.Seq, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.last = events.Place{}
	fence := a.FencePlace()
	if err := a.Publish(ctx, r.outputs(17), store.Stamp{}); !errors.Is(err, context.Canceled) || a.Last().Seq != 0 {
		t.Errorf("without an answer: %v, the last output is at %v", err, a.Last())
	}
	if err := a.Fence(ctx); !errors.Is(err, context.Canceled) || a.FencePlace() != fence {
		t.Errorf("without an answer: %v, the fence is at %v", err, a.FencePlace())
	}
}

// TestG3_WhatIsStoredIsRemembered: outputs that a former owner has published are not published again, and the last
// place is the greatest of all that the shard has.
func TestG3_WhatIsStoredIsRemembered(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	former := NewAnnouncer(&r.Parts, self{})
	r.begin(former, Checkpoint{}, 0)
	r.publish(former, r.outputs(11, 12))
	a := NewAnnouncer(&r.Parts, self{})
	r.begin(a, Checkpoint{Seq: 10, Watermark: 1}, 14)
	for _, seq := range []uint64{12, 11} { // both are stored
		if r.publish(a, r.outputs(seq)); a.Last() != former.Last() {
			t.Errorf("the last output is at %v, want %v", a.Last(), former.Last())
		}
	}
	a.Pass(1)
	a.Settle(&Checkpoint{Seq: 14, Watermark: 1})
	r.stored("11", "12")
	a.Begin(Checkpoint{Seq: 22}, 22, a.Last())
	if a.Settled() != nil {
		t.Error("a checkpoint of before a takeover counts after it")
	}
}

// TestG3_PublishedUpTo: it is the checkpoint of the takeover, until a later one is settled.
func TestG3_PublishedUpTo(t *testing.T) {
	a := NewAnnouncer(&Parts{}, self{})
	a.Begin(Checkpoint{Seq: 10}, 10, events.Place{})
	for settled, want := range map[Checkpoint]bool{{}: false, {Seq: 9, Watermark: 7}: false,
		{Seq: 10, Watermark: 7}: true, {Seq: 11}: true} {
		if settled.Seq > 0 {
			a.settled.Store(&settled)
		}
		if got := a.PublishedUpTo(); (got == settled) != want || !want && got != a.checkpoint {
			t.Errorf("settled at %+v: published up to %+v", settled, got)
		}
		a.settled.Store(nil)
	}
}

// observed are observations.
type observed []float64

func (o *observed) Observe(v float64) { *o = append(*o, v) }

var _ prometheus.Observer = (*observed)(nil)

// TestLatenessIsOfNewEvents: an event that may have been published by another owner was not late here.
func TestLatenessIsOfNewEvents(t *testing.T) {
	a := &Announcer{Published: Published{checkpoint: Checkpoint{Watermark: 1000}, time: 2000}}
	var got observed
	a.Lateness(&got, []fold.Output{{At: 900}, {At: 1500}, {At: 2500}, {At: 3000}}, time.UnixMilli(4000))
	if !slices.Equal(got, []float64{1.5, 1}) {
		t.Errorf("%v s late", got)
	}
}

// TestG3_Published is the truth table of which outputs may have been published: around
// the checkpoint and around the end of the log at the takeover, for outputs that a message
// caused and for those that the passing of time caused. It fails if a boundary moves.
func TestG3_Published(t *testing.T) {
	s := newPublished(Checkpoint{Seq: 10, Watermark: 1000}, 20)
	check := func(o fold.Output, want novelty) {
		t.Helper()
		if got := s.of(o); got != want {
			t.Errorf("output of %d at %d: %d, want %d", o.Seq, o.At, got, want)
		}
	}
	bySeq := func() {
		t.Helper()
		for seq, want := range map[uint64]novelty{1: isPublished, 10: isPublished, 11: maybePublished,
			20: maybePublished, 21: isNew} {
			check(fold.Output{Seq: seq, At: 1}, want)
			check(fold.Output{Seq: seq, At: math.MaxInt64}, want)
		}
	}
	bySeq()
	// Until the log was applied up to its end at the takeover, its time there is
	// not known.
	for at, want := range map[int64]novelty{1: isPublished, 1000: isPublished, 1001: maybePublished,
		math.MaxInt64: maybePublished} {
		check(fold.Output{At: at}, want)
	}
	s.Pass(2000)
	s.Pass(3000) // only the first counts
	bySeq()
	for at, want := range map[int64]novelty{1000: isPublished, 1001: maybePublished, 2000: maybePublished,
		2001: isNew} {
		check(fold.Output{At: at}, want)
	}
	for _, c := range []struct {
		offset    uint64
		watermark int64
		want      bool
	}{{10, 1000, true}, {9, 999, true}, {11, 1000, false}, {10, 1001, false}} {
		if got := s.All(c.offset, c.watermark); got != c.want {
			t.Errorf("all up to %d at %d is published: %v, want %v", c.offset, c.watermark, got, c.want)
		}
	}
	for _, c := range []struct {
		offset    uint64
		watermark int64
		want      bool
	}{{20, 2000, true}, {21, 2001, true}, {19, 2000, false}, {20, 1999, false}} {
		if got := s.passed(c.offset, c.watermark); got != c.want {
			t.Errorf("what a former owner may have published is passed at %d at %d: %v, want %v", c.offset, c.watermark,
				got, c.want)
		}
	}
	if unknown := newPublished(Checkpoint{}, 5); unknown.passed(5, 1<<50) {
		t.Error("it is passed although log time at the end of the log is not known")
	}

	none := newPublished(Checkpoint{}, 0)
	none.Pass(0)
	if none.of(fold.Output{Seq: 1}) != isNew || none.of(fold.Output{At: 1}) != isNew || none.All(0, 1) {
		t.Error("without a checkpoint, in an empty log, everything is new")
	}
}

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
		all = append(all, fold.Output{Seq: seq, Message: events.Rejected(r.log, events.Rejection{Subject: "x",
			Rest: "x", Seq: seq, Ts: 1, Code: 400, Error: "x"})})
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
			t.Errorf("settled at %d, %d: from %s, last %s, want from %s, last %s", seq, watermark, c.From, c.Last, want,
				last)
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
	a.settled.Store(&Checkpoint{Seq: 9})
	if a.Hold(); a.Settled() != nil {
		t.Error("what was settled before the takeover still counts: the stream may have lost its outputs since")
	}
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

// promoted is a Mirror of a region that was promoted while a process stood still.
type promoted struct {
	nothingPublished
	asked int
	err   error
}

func (m *promoted) Follows(context.Context) error { m.asked++; return m.err }

// TestG3_AnOutputOfALostMessage: the mirror of the events has an output of a message that a promotion has lost, and
// the log here has another message with its sequence by now. An owner that follows asks whether the log is a mirror
// before it takes the output for its own. What it had read when the answer was yes needs no other question.
//
// It fails if the output is taken for that of the new message, which then never gets one.
func TestG3_AnOutputOfALostMessage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := NewAnnouncer(&r.Parts, self{})
	r.begin(first, Checkpoint{}, 0)
	r.publish(first, r.outputs(11, 12, 13))
	m := &promoted{}
	follows := r.Parts
	follows.Mirror = m
	a := NewAnnouncer(&follows, self{})
	a.Hold()
	if err := r.Tail.Cover(t.Context(), 0, r.Publisher.Last().Seq); err != nil {
		t.Fatal(err)
	}
	a.Begin(Checkpoint{Seq: 10, Watermark: 1}, math.MaxUint64, events.Place{})
	r.publish(a, r.outputs(12))
	r.publish(a, r.outputs(11, 12))
	if m.asked != 1 {
		t.Errorf("it was asked %d times, want 1", m.asked)
	}
	m.err = errFail
	if err := a.Publish(t.Context(), r.outputs(13), store.Stamp{}); !errors.Is(err, errFail) {
		t.Errorf("the region has a log of its own: %v", err)
	}
}
