package owner

import (
	"testing"

	"github.com/seed18712806/lapse/processor/internal/announce"
	"github.com/seed18712806/lapse/processor/internal/identity"
	"github.com/seed18712806/lapse/processor/internal/message"
	"github.com/seed18712806/lapse/processor/internal/state"
	"github.com/seed18712806/lapse/processor/internal/status"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG3_TimeAtTheEndOfTheFormerOwner: a former owner knew the log time of the whole log, so
// it may also have published events that were due by messages of other partitions. Where
// the first message of this partition after that point comes later, the log time at the
// point is not known here: it is taken to be later, never earlier.
//
// Goes red if the time is that of the partition's own messages up to there.
func TestG3_TimeAtTheEndOfTheFormerOwner(t *testing.T) {
	const upTo = 10
	for _, tt := range []struct {
		name     string
		messages []*message.Message
		to       message.Position
		want     int64
		here     message.Position
	}{
		{"all up to there is applied", []*message.Message{{Position: message.Position{Seq: 9, Time: 900}}}, message.Position{Seq: 10, Time: 950}, 950, message.Position{Seq: 10, Time: 950}},
		{"a message of others is", nil, message.Position{Seq: 12, Time: 1200}, 1200, message.Position{Seq: 12, Time: 1200}},
		{"so is one's own", []*message.Message{{Position: message.Position{Seq: 9, Time: 900}}, {Position: message.Position{Seq: 12, Time: 1200}}, {Position: message.Position{Seq: 14, Time: 1400}}}, message.Position{Seq: 15, Time: 1500}, 1200, message.Position{Seq: 15, Time: 1500}},
		{"and more has come than is applied", []*message.Message{{Position: message.Position{Seq: 12, Time: 1200}}}, message.Position{}, 1200, message.Position{Seq: 12, Time: 1200}},
	} {
		p := at8(tt.messages, upTo)
		if here := p.reach(tt.messages, tt.to); here != tt.here || p.announcer.UpToTime() != tt.want {
			t.Errorf("%s: applied up to %v, may have been published up to %d; want %v, %d", tt.name, here, p.announcer.UpToTime(), tt.here, tt.want)
		}
	}
	p := at8([]*message.Message{{Position: message.Position{Seq: 9, Time: 900}}, {Position: message.Position{Seq: 11, Time: 1100}}}, 0)
	if here := p.reach(p.pending.Messages[:1], message.Position{Seq: 12, Time: 1200}); here != (message.Position{Seq: 9, Time: 900}) {
		t.Errorf("with a message left, the log is applied up to %v", here)
	}
}

// at8 is a partition at offset 8, where outputs up to upTo may have been published.
func at8(messages []*message.Message, upTo uint64) *Partition {
	p := &Partition{pending: message.Pending{Messages: messages}}
	p.progress.Resume(store.State{Offset: 8, Watermark: 800}, "", 0)
	p.announcer = announce.NewAnnouncer(nil, 0, p)
	p.announcer.Begin(announce.Checkpoint{}, upTo, events.Place{})
	return p
}

// TestG3_NoCheckpointBeforeAllIsPublished: a checkpoint says that all outputs up to a position are published.
// While a document is due they are not; and while an index is being built, documents may be due that it
// does not have yet.
//
// Goes red if a checkpoint passes then: after a crash these events would never be published.
func TestG3_NoCheckpointBeforeAllIsPublished(t *testing.T) {
	on := ttlrules.History{}.With(100, 1, 1)
	for name, tt := range map[string]struct {
		config store.Config
		score  int64 // of the lowest in the index
		passes bool
	}{
		"nothing is due":                  {store.Config{History: on}, store.NoScore, true},
		"a document will be due":          {store.Config{History: on}, 0, true},
		"a document is due":               {store.Config{History: on}, -200, false},
		"an index is being built":         {store.Config{History: on, Building: true}, store.NoScore, false},
		"another one, of what is not due": {store.Config{History: on, Building: true}, 0, false},
	} {
		p := at8(nil, 10)
		p.shared = &Shared{Log: identity.NewLog(&streams.Streams{ID: "1"}, nil)}
		p.status = &status.Status{}
		p.collections = state.NewCollections(map[string]store.Config{"c": tt.config}, nil)
		p.collections.LookedUp(p.collections.Get("c"), tt.score, store.NoScore)
		p.judge()
		if got := p.announcer.Settled(); (got != nil) != tt.passes || got != nil && (got.Seq != 8 || got.Watermark != 800) {
			t.Errorf("%s: the checkpoint is %+v", name, got)
		}
	}
}
