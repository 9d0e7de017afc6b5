package feed

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG1_TheRulesOfRepliesDoNotCome: the session ends while the reader asks for the rules of
// replies to a configuration. Without them lapse cannot tell whether the message is valid.
//
// It fails if the message gets to an owner, whose last step is still under way: that would
// reject, and commit, what all others apply.
func TestG1_TheRulesOfRepliesDoNotCome(t *testing.T) {
	ended := false
	r := Reader{inboxes: Inboxes{attached(10, 1000)}}
	r.decoder = fold.Decoder{
		Log: wire.Log{Prefix: wire.DefaultPrefix, Shards: 2}, Partitions: 1, MaxBody: 1000, MaxLevels: 10,
		ConfigReplies: func() []wire.ReplyRule { ended = true; return nil }, // as session.configReplies
	}
	m := nats.NewMsg("lapse.config.c")
	m.Data = []byte(`{"defaultTtl":1}`)
	m.Header.Set("Nats-Stream-Source", "LAPSE_CONFIG 1 > > lapse.config.c")
	m.Header.Set(wire.HeaderReplyTo, "_MY.inbox")
	r.deliver(r.forAll(6), m, fold.Position{Seq: 7}, func() bool { return ended })
	for _, got := range r.inboxes[0].takeAll() {
		t.Errorf("an owner gets message %d of the stream of configurations, refused with %v", got.Source, got.Rejected)
	}
}
