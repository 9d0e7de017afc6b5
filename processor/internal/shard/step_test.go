package shard

import (
	"math"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/fold"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG3_TimeAtTheEndOfTheFormerOwner: a former owner knew the log time at each tick, so it may have published events
// that were due by one. Where the first message behind the end of the former owner comes later, the log time at that
// end is not known here: it is taken to be later, never earlier.
//
// Goes red if the time is that of the messages up to there.
func TestG3_TimeAtTheEndOfTheFormerOwner(t *testing.T) {
	const upTo = 10
	for _, tt := range []struct {
		name     string
		messages []*fold.Message
		to       fold.Position
		want     int64
		here     fold.Position
	}{
		{"all up to there is applied", []*fold.Message{{Position: fold.Position{Seq: 9, Time: 900}}},
			fold.Position{Seq: 10, Time: 950}, 950, fold.Position{Seq: 10, Time: 950}},
		{"a tick is", nil, fold.Position{Seq: 12, Time: 1200}, 1200, fold.Position{Seq: 12, Time: 1200}},
		{"so is a message", []*fold.Message{{Position: fold.Position{Seq: 9, Time: 900}},
			{Position: fold.Position{Seq: 12, Time: 1200}}, {Position: fold.Position{Seq: 14, Time: 1400}}},
			fold.Position{Seq: 15, Time: 1500}, 1200, fold.Position{Seq: 15, Time: 1500}},
		{"a message is at that point", []*fold.Message{{Position: fold.Position{Seq: 10, Time: 1000}}}, fold.Position{},
			math.MaxInt64, fold.Position{Seq: 10, Time: 1000}},
		{"nothing new was read", []*fold.Message{{Position: fold.Position{Seq: 9, Time: 900}}}, fold.Position{Seq: 9,
			Time: 950, Stamp: 5}, math.MaxInt64, fold.Position{Seq: 9, Time: 900}},
		{"log time is ahead of a message", []*fold.Message{{Position: fold.Position{Seq: 12, Time: 700}}},
			fold.Position{}, 800, fold.Position{Seq: 12, Time: 800}},
		{"and of what was read", nil, fold.Position{Seq: 12, Time: 700, Stamp: 5}, 800, fold.Position{Seq: 12,
			Time: 800, Stamp: 5}},
		{"and more has come than is applied", []*fold.Message{{Position: fold.Position{Seq: 12, Time: 1200}}},
			fold.Position{}, 1200, fold.Position{Seq: 12, Time: 1200}},
	} {
		p := at8(tt.messages, upTo)
		if here := p.reach(tt.messages, tt.to); here != tt.here || p.announcer.time != tt.want {
			t.Errorf("%s: applied up to %v, may have been published up to %d; want %v, %d", tt.name, here,
				p.announcer.time, tt.here, tt.want)
		}
	}
	p := at8([]*fold.Message{{Position: fold.Position{Seq: 9, Time: 900}}, {Position: fold.Position{Seq: 11,
		Time: 1100}}}, 0)
	if here := p.reach(p.pending[:1], fold.Position{Seq: 12, Time: 1200}); here != (fold.Position{Seq: 9, Time: 900}) {
		t.Errorf("with a message left, the log is applied up to %v", here)
	}
}

// at8 is a shard at offset 8, where outputs up to upTo may have been published.
func at8(messages []*fold.Message, upTo uint64) *Owner {
	p := &Owner{pending: messages}
	p.progress.Resume(store.State{Offset: 8, Watermark: 800}, "", 0)
	p.announcer = NewAnnouncer(&Parts{}, p)
	p.announcer.Begin(Checkpoint{}, upTo, events.Place{})
	return p
}

// TestG3_NoCheckpointBeforeAllIsPublished: a checkpoint says that all outputs up to a position are published.
// While a document is due they are not.
//
// Goes red if a checkpoint passes then: after a crash these events would never be published.
func TestG3_NoCheckpointBeforeAllIsPublished(t *testing.T) {
	on := ttlrules.History{}.With(100, 1, 1)
	for name, tt := range map[string]struct {
		config store.Config
		score  int64 // of the lowest in the index
		due    int64 // as others are told
		passes bool
	}{
		"nothing is due":         {store.Config{History: on}, store.NoScore, 0, true},
		"a document will be due": {store.Config{History: on}, 0, 0, true},
		"a document is due":      {store.Config{History: on}, -200, 800, false},
		"a document is due next": {store.Config{History: on}, -199, 0, true},
	} {
		p := at8(nil, 10)
		p.Parts = Parts{Log: streams.NewLog(&streams.Streams{ID: "1"}, nil)}
		p.Status = &Status{}
		p.collections = fold.NewCollections(map[string]store.Config{"c": tt.config}, nil)
		p.collections.LookedUp(p.collections.Collection("c"), tt.score, store.NoScore)
		p.Status.Due.Store(1)
		p.judge()
		if due := p.Status.Due.Load(); due != tt.due {
			t.Errorf("%s: a document is due since %d, want %d", name, due, tt.due)
		}
		if got := p.announcer.Settled(); (got != nil) != tt.passes || got != nil && (got.Seq != 8 ||
			got.Watermark != 800) {
			t.Errorf("%s: the checkpoint is %+v", name, got)
		}
	}
}

// TestG11_SinceWhenADocumentIsDue: others are told since when the first document is due. Of what was not looked up yet
// the owner knows nothing: it tells the instant at which it noticed.
func TestG11_SinceWhenADocumentIsDue(t *testing.T) {
	on := ttlrules.History{}.With(100, 1, 1)
	for _, tt := range []struct {
		outside, queued int64 // deadlines; 0: none
		due, next       int64
	}{
		{700, 0, 700, 700}, {0, 700, 700, 700}, {700, 600, 600, 600}, {600, 700, 600, 600}, {900, 700, 700, 700},
		{900, 950, 0, 900}, {950, 900, 0, 900}, {-1, 0, 800, math.MaxInt64},
	} {
		p := at8(nil, 10)
		p.Parts = Parts{Log: streams.NewLog(&streams.Streams{ID: "1"}, nil)}
		p.Status = &Status{}
		p.collections = fold.NewCollections(map[string]store.Config{"c": {History: on}}, nil)
		switch {
		case tt.outside < 0: // any document of the collection may be due
			p.collections = fold.NewCollections(map[string]store.Config{"c": {History: ttlrules.History{}.With(-9_000,
				1, 1)}}, []string{"c"})
			p.progress.Resume(store.State{Offset: 8, Watermark: 8_000}, "", 0)
			tt.due = 8_000
		case tt.outside > 0:
			p.collections.LookedUp(p.collections.Collection("c"), tt.outside-1000, store.NoScore)
		}
		if tt.queued > 0 {
			p.due.Set(dueAt(tt.queued, 1))
		}
		if p.judge(); p.Status.Due.Load() != tt.due || p.Status.FirstDue.Load() != tt.next {
			t.Errorf("%+v: due since %d, next at %d", tt, p.Status.Due.Load(), p.Status.FirstDue.Load())
		}
	}
}
