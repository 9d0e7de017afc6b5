package feed

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

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
	r.deliver(r.forAll(6), r.decoder.Log.ParseSubject(m.Subject), m, fold.Position{Seq: 7}, func() bool { return ended })
	for _, got := range r.inboxes[0].takeAll() {
		t.Errorf("an owner gets message %d of the stream of configurations, refused with %v", got.Source, got.Rejected)
	}
}

// TestG1_G4_ReadingsShareTheLog: the main reader, and the reading of one partition, get a write, a
// configuration, a tick and another write, whose stamps fall.
//
// It fails if a message gets into another inbox than it is for, or with its stamp for log time.
func TestG1_G4_ReadingsShareTheLog(t *testing.T) {
	r := Reader{inboxes: Inboxes{attached(10, 1000), attached(10, 1000), attached(10, 1000)}}
	r.decoder = fold.Decoder{Log: wire.Log{Prefix: wire.DefaultPrefix, Shards: 1}, Partitions: 3, MaxBody: 1000, MaxLevels: 10}
	r.guard = NewClockGuard(time.Second, Clocks{Own: time.Now}, nil)
	subjects := []string{"lapse.write.touch.c.a", "lapse.config.c", "lapse.tick", "lapse.write.touch.c.other"}
	bodies := [][]byte{nil, []byte(`{}`), nil, nil}
	stamps := []int64{100, 300, 200, 250}
	a, b := wire.Partition(3, "c", "a"), wire.Partition(3, "c", "other")
	if a == b {
		t.Fatal("both documents are in one partition")
	}
	for name, tt := range map[string]struct {
		first, end int
		want       []string
	}{
		"all": {0, 3, []string{fmt.Sprint(a, " 1 100"), "0 2 300", "1 2 300", "2 2 300", fmt.Sprint(b, " 4 300")}},
		"one": {b, b + 1, []string{fmt.Sprint(b, " 2 300"), fmt.Sprint(b, " 4 300")}},
	} {
		p := &pull{messages: make(chan *nats.Msg, len(subjects)), open: 2 * messagesAtOnce, beat: time.NewTicker(heartbeat), read: new(atomic.Uint64)}
		for i, subject := range subjects {
			p.messages <- &nats.Msg{Subject: subject, Data: bodies[i], Sub: &nats.Subscription{}, Reply: fmt.Sprintf("$JS.ACK.s.c.1.%d.%d.%d.0", i+1, i+1, stamps[i]*1e6)}
		}
		var got []string
		s := &reading{logTime: &logTime{}, first: tt.first, end: tt.end}
		s.put = func(partition int, m *fold.Message, _ func() bool) bool {
			got = append(got, fmt.Sprint(partition, " ", m.Seq, " ", m.Time))
			return true
		}
		s.passed = func(at fold.Position, _ *nats.MsgMetadata) bool { return at.Seq < 4 }
		err := r.readOn(t.Context(), s, p, never)
		if p.beat.Stop(); err != nil || !slices.Equal(got, tt.want) {
			t.Errorf("%s: the inboxes got (partition, sequence, log time) %q, want %q: %v", name, got, tt.want, err)
		}
	}
}
