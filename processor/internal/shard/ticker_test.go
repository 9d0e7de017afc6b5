package shard

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/processor/internal/streams"
)

// TestTickerWakes: the owner is woken by the first message at or after the instant that it waits for, whatever message
// that is, once and only then.
func TestTickerWakes(t *testing.T) {
	queue := NewQueue(1)
	tk := NewTicker(nil, nil, "", queue, nil)
	tk.WakeAt(100)
	for _, step := range []struct {
		wakeAt int64 // 0: as before
		now    int64
		wakes  bool
	}{{0, 99, false}, {0, 100, true}, {0, 150, false}, {200, 199, false}, {0, 300, true}, {400, 350, false},
		{370, 380, true}, {math.MaxInt64, math.MaxInt64 - 1, false}} {
		if step.wakeAt > 0 {
			tk.WakeAt(step.wakeAt)
		}
		tk.passed(step.now)
		woken := len(queue.arrived) > 0
		if woken {
			<-queue.Arrived()
		}
		if woken != step.wakes {
			t.Errorf("%+v: it was woken: %t", step, woken)
		}
	}
}

// TestTickerNext: a tick is needed when the log's clock has reached the instant for which the
// owner waits, unless messages come, or a tick is on its way.
func TestTickerNext(t *testing.T) { synctest.Test(t, tickerNext) }

func tickerNext(t *testing.T) {
	tk := NewTicker(nil, nil, "", NewQueue(1), nil)
	if _, needed := tk.next(); needed {
		t.Error("a tick is needed for nothing")
	}
	tk.stamped(false, time.Now().Add(time.Minute)) // the log is a minute ahead
	tk.WakeAt(time.Now().Add(time.Hour).UnixMilli())
	if pause, needed := tk.next(); !needed || pause < 58*time.Minute || pause > 59*time.Minute {
		t.Errorf("an instant that is 59 minutes off by the log's clock: %s, %v", pause, needed)
	}
	tk.WakeAt(time.Now().Add(time.Second).UnixMilli())
	tk.heard = time.Now()
	if pause, needed := tk.next(); !needed || pause <= 0 || pause > tickEvery {
		t.Errorf("a message has just come: %s, %v", pause, needed)
	}
	tk.heard = time.Time{}
	if pause, needed := tk.next(); !needed || pause > 0 {
		t.Errorf("the log is silent: %s, %v", pause, needed)
	}
	tk.sending(time.Now())
	if pause, needed := tk.next(); !needed || pause < tickAgain/2 {
		t.Errorf("a tick is on its way: %s, %v", pause, needed)
	}
	tk.stamped(true, time.Now().Add(time.Minute))
	tk.heard = time.Time{}
	if pause, needed := tk.next(); !needed || pause > 0 {
		t.Errorf("it has come, and something waits still: %s, %v", pause, needed)
	}
}

// TestTickerSendsEarly: a tick is sent so early that it is stamped at its instant, not before.
func TestTickerSendsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ms = time.Millisecond
		tk := NewTicker(nil, nil, "", NewQueue(1), nil)
		// tick is one that takes so long to the log, whose clock is a minute ahead, and a millisecond from there.
		tick := func(takes time.Duration) {
			tk.sending(time.Now())
			time.Sleep(takes)
			stamp := time.Now().Add(time.Minute)
			time.Sleep(ms)
			tk.stamped(true, stamp)
		}
		for i, c := range []struct{ takes, early time.Duration }{
			{3 * ms, tickGrows},                  // nothing is known yet
			{0, ms - tickSpare},                  // sent by the bound from the way back alone; slower than that
			{3 * ms, ms - tickSpare + tickGrows}, // once more
		} {
			if i == 1 {
				tk.early = 10 * ms // the way was long
			}
			tick(c.takes)
			if tk.early != c.early {
				t.Errorf("a tick took %s: the next one is sent %s early, want %s", c.takes, tk.early, c.early)
			}
		}
		at := time.Now().Add(time.Minute + time.Second)
		tk.WakeAt(at.UnixMilli())
		want := time.Until(time.UnixMilli(at.UnixMilli())) - time.Minute + ms - tk.early
		if pause, _ := tk.next(); pause != want {
			t.Errorf("the pause is %s, want %s", pause, want)
		}
	})
}

// TestTickerSeesTheClockOfASilentLog: an answer of the log's leader shows that its clock was set forward, though no
// message comes. An answer that is old, or a clock that was set back, shows nothing.
func TestTickerSeesTheClockOfASilentLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tk := NewTicker(nil, nil, "", NewQueue(1), nil)
		tk.stamped(true, time.Now().Add(-time.Minute))
		tk.WakeAt(time.Now().Add(time.Second).UnixMilli())
		tk.Shown(time.Now().Add(-time.Hour))
		if pause, _ := tk.next(); pause != 61*time.Second {
			t.Errorf("the log's clock is a minute behind: %s", pause)
		}
		tk.Shown(time.Now())
		if pause, _ := tk.next(); pause != time.Second {
			t.Errorf("it was set right: %s", pause)
		}
	})
}

// TestABarrierWaitsForALeader: the log of a takeover may have been created just before, and have no leader yet.
//
// It fails if a barrier gives up as soon as another publication does.
func TestABarrierWaitsForALeader(t *testing.T) {
	t.Parallel()
	const subject = "tick"
	js := natstest.Connect(t, natstest.Options{})
	l, stop := streams.WatchLink(js.Conn())
	defer stop()
	tk := NewTicker(js, l, subject, NewQueue(1), nil)
	before := js.Conn().Stats().OutMsgs
	done := make(chan error, 1)
	go func() { _, err := tk.Barrier(t.Context()); done <- err }()
	if err := poll.Met(time.Minute, "it tries again", func() bool {
		return js.Conn().Stats().OutMsgs > before+1+jetstream.DefaultPubRetryAttempts || len(done) > 0
	}); err != nil {
		t.Fatal(err)
	}
	ticks, err := js.Conn().SubscribeSync(subject) // in place of the log
	if err != nil {
		t.Fatal(err)
	}
	if len(done) == 0 {
		answer(t, next(t, ticks), 1)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// next is the next tick that comes.
func next(t *testing.T, ticks *nats.Subscription) *nats.Msg {
	t.Helper()
	m, err := ticks.NextMsg(time.Minute)
	if err != nil {
		t.Fatalf("no tick comes: %v", err)
	}
	return m
}

// answer stores a tick.
func answer(t *testing.T, tick *nats.Msg, seq uint64) {
	t.Helper()
	if err := tick.Respond(fmt.Appendf(nil, `{"stream":"LOG","seq":%d}`, seq)); err != nil {
		t.Fatal(err)
	}
}

// TestBacklog: the reader reads old messages while some are pending that are not of the last
// quarter of a second. Ticks wait that long, but not for messages that do not come.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &Backlog{}
		for _, tt := range []struct {
			pending uint64
			age     time.Duration
			silent  time.Duration
			want    bool
		}{
			{5, time.Minute, 0, true},
			{5, time.Minute, 999 * time.Millisecond, true},
			{5, time.Minute, time.Second, false},
			{5, 250 * time.Millisecond, 0, false},
			{5, 251 * time.Millisecond, 0, true},
			{0, time.Minute, 0, false},
		} {
			b.note(tt.pending, tt.age)
			time.Sleep(tt.silent)
			if got := b.reads(); got != tt.want || b.Pending() != tt.pending {
				t.Errorf("%d messages pending, the last %s old and read %s ago: reads is %t; %d pending", tt.pending,
					tt.age, tt.silent, got, b.Pending())
			}
		}
	})
}
