package shard

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
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
				t.Errorf("%v, asked %d times, the fence was at %v and is at %v", err, tt.owner.verify, fence, a.FencePlace())
			}
			r.stored(tt.stored...)
			var emitted dto.Metric
			if err := r.Metrics.Emitted.Write(&emitted); err != nil {
				t.Fatal(err)
			}
			if n := emitted.Counter.GetValue(); n != float64(len(tt.stored)) || (a.Last() == events.Place{}) != (n == 0) {
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
	}{{0, 0, false}, {pauseAtMost, pauseAtMost, false}, {pauseAtMost + 1, 0, true}, {pauseAtMost + 1, -time.Hour, true}, {0, pauseAtMost + 1, true}} {
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
	for settled, want := range map[Checkpoint]bool{{}: false, {Seq: 9, Watermark: 7}: false, {Seq: 10, Watermark: 7}: true, {Seq: 11}: true} {
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
