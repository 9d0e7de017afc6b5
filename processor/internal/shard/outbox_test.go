package shard

import (
	"fmt"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
)

// TestOutboxGivesUp: an outcome that nobody ever hears is not sent for ever, and only so many wait.
// It fails if clients that do not listen can fill the memory of lapse, or keep it busy.
func TestOutboxGivesUp(t *testing.T) {
	t.Parallel()
	nc, err := nats.Connect(natstest.Start(t, natstest.Options{}), natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	o := newOutbox(nc)
	end, err := o.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	state := func() (last uint64, waiting int) {
		o.mu.Lock()
		defer o.mu.Unlock()
		return o.last, o.waiting
	}
	o.send("_INBOX.nobody", []byte("{}"))
	var last uint64
	if err := poll.Met(limit, "it is sent as often as it may be", func() bool {
		last, _ = state()
		return last == 1+tries
	}); err != nil {
		t.Fatal(err, last)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	o.again(last)
	if _, waiting := state(); waiting > 0 {
		t.Error("it is sent once more")
	}
	for i := range 3 * kept {
		o.send(fmt.Sprint("_INBOX.nobody.", i), []byte("{}"))
		if _, waiting := state(); waiting > waitAtMost {
			t.Fatalf("%d wait", waiting)
		}
	}
}

// TestG9_WaitingOutcomesAreBounded: the more often an outcome was sent, the sooner it gives up its place.
func TestG9_WaitingOutcomesAreBounded(t *testing.T) {
	for n := 1; n <= tries; n++ {
		o := &outbox{waiting: waitAtMost / n}
		o.sent[1] = sent{number: 1, tries: n}
		if o.again(1); o.waiting != waitAtMost/n {
			t.Errorf("%d outcomes wait, the last was sent %d times", o.waiting, n)
		}
	}
}

// TestAnOutcomeThatWasHeardIsNotSentAgain: only what the server says counts, and not what a client replies.
func TestAnOutcomeThatWasHeardIsNotSentAgain(t *testing.T) {
	t.Parallel()
	nc := natstest.Connect(t, natstest.Options{}).Conn()
	heard, err := nc.SubscribeSync("_INBOX.there")
	if err != nil {
		t.Fatal(err)
	}
	o := newOutbox(nc)
	end, err := o.listen()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, status := range []string{"", "503"} { // in this order the answers come
		o.send("_INBOX.there", []byte("{}"))
		m, err := heard.NextMsg(limit)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.RespondMsg(&nats.Msg{Header: nats.Header{"Status": {status}}, Data: []byte("thanks")}); err != nil {
			t.Fatal(err)
		}
	}
	m, err := heard.NextMsg(limit)
	if err != nil || m.Reply != o.reply+"3" {
		t.Fatal(m, err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sent[1].number != 1 || o.sent[2].number != 0 || o.last != 3 {
		t.Errorf("of two outcomes, %d was heard, and %d were sent", o.sent[1].number, o.last)
	}
}
