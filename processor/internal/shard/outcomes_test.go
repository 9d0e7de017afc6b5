package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/processor/internal/fold"
)

const limit = time.Minute // on every wait

// elsewhere is how far other shards have applied the configurations, question by question.
type elsewhere func(question int) (uint64, error)

type asking struct {
	elsewhere
	n int
}

func (a *asking) Configured(context.Context) (uint64, error) { a.n++; return a.elsewhere(a.n) }

// of is the outcome of a configuration with a sequence in the stream of configurations.
func of(source uint64) fold.Outcome {
	return fold.Outcome{Position: fold.Position{Seq: 1, Source: source}, ReplyTo: "_INBOX.x"}
}

// outcomes are those of configurations that this shard has applied, of which other shards are asked.
func outcomes(t *testing.T, a *asking) *Outcomes {
	t.Helper()
	nc := natstest.Connect(t, natstest.Options{}).Conn()
	heard, err := nc.SubscribeSync("_INBOX.>") // so that none is sent again
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = heard.Unsubscribe() })
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	return NewOutcomes(nc, a, nil)
}

// count is how many outcomes were sent.
func (o *outbox) count() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last
}

// TestG1_WhichOutcomesAreSent: an outcome is sent at once, unless it is of the stream of configurations. One that was
// sent before a rebuild does not come again. A region that follows another one sends none.
func TestG1_WhichOutcomesAreSent(t *testing.T) {
	a := &asking{}
	o := outcomes(t, a)
	write := func(seq uint64) fold.Outcome {
		return fold.Outcome{Position: fold.Position{Seq: seq}, ReplyTo: "_INBOX.x"}
	}
	for _, step := range []struct {
		checkpoint uint64
		list       []fold.Outcome
		sent       uint64 // in all
		waiting    int    // for the other shards
	}{
		{4, []fold.Outcome{write(4), write(5), write(6)}, 2, 0}, {6, []fold.Outcome{write(5), write(6)}, 2, 0},
		{1, []fold.Outcome{of(9)}, 2, 0}, {0, []fold.Outcome{of(9), write(1)}, 3, 1},
	} {
		if o.Send(step.checkpoint, step.list); o.outbox.count() != step.sent || len(o.here) != step.waiting {
			t.Errorf("%+v: %d were sent, and %d wait", step, o.outbox.count(), len(o.here))
		}
	}
	none := NoOutcomes()
	none.Send(0, []fold.Outcome{write(1), of(9)})
	none.Run(t.Context()) // which ends
}

// TestG1_AnOutcomeWaitsForAllShards: the outcome of a configuration is sent when the last shard has applied it, and
// not before. The shards are asked again and again, soon at first and after each outcome that joins the others.
func TestG1_AnOutcomeWaitsForAllShards(t *testing.T) {
	a := &asking{}
	o := outcomes(t, a)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		began, ended := time.Now(), make(chan struct{})
		var asked []time.Duration
		var sent []uint64 // before each question
		a.elsewhere = func(question int) (uint64, error) {
			asked, sent = append(asked, time.Since(began)/time.Millisecond), append(sent, o.outbox.count())
			switch question {
			case 1:
				return 9, errors.New("no answer")
			case 2:
				return 4, nil
			case 3:
				return 5, nil
			case 4:
				o.Send(0, []fold.Outcome{of(8)})
				return 5, nil
			case 5:
				return 7, nil
			case 12:
				return 8, nil
			}
			return 0, errors.New("no answer")
		}
		o.here = make(chan fold.Outcome, 1024) // of this bubble
		o.Send(0, []fold.Outcome{of(5), of(6), of(7)})
		go func() { defer close(ended); o.Run(ctx) }()
		time.Sleep(time.Second)
		stop()
		<-ended
		if want := []uint64{0, 0, 0, 1, 1, 3, 3, 3, 3, 3, 3, 3}; !slices.Equal(sent, want) || o.outbox.count() != 4 {
			t.Errorf("%v outcomes were sent before each question, want %v, and %d at last", sent, want,
				o.outbox.count())
		}
		if want := []time.Duration{0, 2, 4, 8, 16, 18, 22, 30, 46, 78, 142, 242}; !slices.Equal(asked, want) {
			t.Errorf("they were asked after %d ms, want %d", asked, want)
		}
	})
}

// TestG9_AShardThatIsGoneIsNotAskedForEver: an outcome is given up when its client has, and the next one is sent.
func TestG9_AShardThatIsGoneIsNotAskedForEver(t *testing.T) {
	a := &asking{}
	o := outcomes(t, a)
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		configured, ended := uint64(0), make(chan struct{})
		a.elsewhere = func(int) (uint64, error) { return configured, nil }
		o.here = make(chan fold.Outcome, 1024)
		o.Send(0, []fold.Outcome{of(5)})
		go func() { defer close(ended); o.Run(ctx) }()
		time.Sleep(elsewhereFor + elsewhereAtMost)
		synctest.Wait()
		if n := a.n; n < 600 || n > 610 { // 2 + 4 + ... + 64 ms, and then every 100 ms
			t.Errorf("they were asked %d times in a minute", n)
		}
		n := a.n
		time.Sleep(time.Minute)
		synctest.Wait()
		if a.n != n {
			t.Errorf("they were asked %d times after that", a.n-n)
		}
		configured = 6
		o.Send(0, []fold.Outcome{of(6)})
		synctest.Wait()
		if o.outbox.count() != 1 {
			t.Errorf("%d outcomes were sent", o.outbox.count())
		}
		stop()
		<-ended
	})
}

// TestOutcomesEndWithTheConnection: without a connection nobody is told anything.
func TestOutcomesEndWithTheConnection(t *testing.T) {
	nc := natstest.Connect(t, natstest.Options{}).Conn()
	nc.Close()
	if _, err := newOutbox(nc).listen(); err == nil {
		t.Error("it listens")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	NewOutcomes(nc, nil, nil).Run(ctx)
}

// TestOutcomesGoToInboxesAlone: an outcome goes to _INBOX and to the prefixes that the operator allows, whatever the
// rules of the log are: a client that may configure could let lapse publish elsewhere in its place.
func TestOutcomesGoToInboxesAlone(t *testing.T) {
	nc := natstest.Connect(t, natstest.Options{}).Conn()
	heard, err := nc.SubscribeSync(">")
	if err != nil {
		t.Fatal(err)
	}
	o := NewOutcomes(nc, nil, []string{"_MY"})
	for _, to := range []string{"orders.x", "_MYS.x", "_MY.*", "_MY.x", "_INBOX.x"} {
		o.Send(0, []fold.Outcome{{Position: fold.Position{Seq: 1}, ReplyTo: to}})
	}
	for _, want := range []string{"_MY.x", "_INBOX.x"} {
		if m, err := heard.NextMsg(time.Minute); err != nil || m.Subject != want {
			t.Fatalf("it was sent to %v, %v; want %s", m, err, want)
		}
	}
}

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
