package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/poll"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// pulled is a pull that brings messages of the log from a sequence on, with these stamps, and then nothing any more.
func pulled(from uint64, stamps []int64, messages ...*nats.Msg) *pull {
	p := &pull{messages: make(chan *nats.Msg, len(messages)), open: 2 * messagesAtOnce, beat: time.NewTicker(heartbeat),
		read: new(atomic.Uint64)}
	for i, m := range messages {
		m.Sub, m.Reply = &nats.Subscription{}, fmt.Sprintf("$JS.ACK.s.c.1.%d.%d.%d.%d", from+uint64(i), i+1,
			stamps[i]*1e6, len(messages)-i-1)
		p.messages <- m
	}
	return p
}

// deaf is a reader that a test leads by hand.
func deaf(shards int) *Reader {
	q := NewQueue(10)
	q.Rewind(0)
	return NewReader(Source{
		Queue: q, Ticker: NewTicker(nil, nil, "", q, nil), Guard: NewClockGuard(time.Second, Clocks{Own: time.Now},
			nil),
		Health:  health.New(slog.New(slog.DiscardHandler)),
		Decoder: fold.Decoder{Log: wire.DefaultPrefix.Log(0, shards), MaxBody: 1000, MaxLevels: 10},
	})
}

// readAll lets a reader read what a pull brings, and returns the messages that the owner gets then, each with its log
// time.
func (r *Reader) readAll(t *testing.T, p *pull) (got []string) {
	t.Helper()
	last, number, _ := r.Queue.begin()
	r.logTime.back(last)
	if err := r.readOn(t.Context(), last, number, p); !errors.Is(err, errSilent) {
		t.Errorf("the reading ends with %v", err)
	}
	p.beat.Stop()
	list, _ := r.Queue.take(100, 1<<20)
	for _, m := range list {
		got = append(got, fmt.Sprint(m.Seq, " ", m.Time))
	}
	return got
}

func touch(id string) *nats.Msg { return nats.NewMsg(wire.DefaultPrefix.Write(wire.Touch, "c", id)) }

// TestG1_G4_WhatTheOwnerGets: a write, a configuration, a tick and another write come, whose stamps fall. The owner
// gets them in this order, at log time, and no tick, which only moves the position on.
func TestG1_G4_WhatTheOwnerGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := deaf(1)
		config := nats.NewMsg("lapse.config.c")
		config.Data = []byte(`{}`)
		r.Ticker.WakeAt(300)
		got := r.readAll(t, pulled(1, []int64{100, 300, 200, 250, 400}, touch("a"), config, nats.NewMsg("lapse.tick"),
			touch("b"), nats.NewMsg("lapse.tick")))
		if want := []string{"1 100", "2 300", "4 300"}; !slices.Equal(got, want) {
			t.Errorf("the owner gets (sequence, log time) %q, want %q", got, want)
		}
		if at, want := r.Queue.ReadUpTo(), (fold.Position{Seq: 5, Time: 400, Stamp: 400e6}); at != want ||
			r.lastSeen() != (store.Stamp{Seq: 5, At: 400e6}) {
			t.Errorf("the log was read up to %+v, want %+v", at, want)
		}
		if pause, needed := r.Ticker.next(); needed || r.Queue.Backlog.Pending() != 0 {
			t.Errorf("log time has reached what the owner waits for, and a tick is needed after %s; %d messages are "+
				"pending", pause, r.Queue.Backlog.Pending())
		}
	})
}

// TestG4_LogTimeOfAnInterruptedReading: a reading is interrupted after a message whose stamp is greater than those that
// follow, and the owner goes back to before that.
//
// It fails if the next reading begins log time anew, or knows a stamp that comes later.
func TestG4_LogTimeOfAnInterruptedReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := deaf(1)
		r.readAll(t, pulled(1, []int64{100, 300, 200}, touch("a"), nats.NewMsg("lapse.tick"), touch("b")))
		r.Queue.Again()
		if got, want := r.readAll(t, pulled(4, []int64{150, 350}, touch("c"), touch("d"))), []string{"4 300",
			"5 350"}; !slices.Equal(got, want) {
			t.Errorf("behind an interruption: %q, want %q", got, want)
		}
		r.Queue.Rewind(2)
		if got, want := r.readAll(t, pulled(3, []int64{200, 150}, touch("b"), touch("c"))), []string{"3 300",
			"4 300"}; !slices.Equal(got, want) {
			t.Errorf("after the owner has gone back: %q, want %q", got, want)
		}
		r.Queue.Rewind(0)
		if got, want := r.readAll(t, pulled(1, []int64{100}, touch("a"))), []string{"1 100"}; !slices.Equal(got, want) {
			t.Errorf("from the beginning: %q, want %q", got, want)
		}
	})
}

// TestNobodyWantsMessages: before the owner has taken the shard over nothing is read, nor while it has to do so anew,
// whatever else happens. This reader has no log that it could read.
func TestNobodyWantsMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReader(Source{Queue: NewQueue(1)})
		wait := func(when string) {
			t.Helper()
			for _, end := range []bool{false, true} {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- r.runOnce(ctx) }()
				if synctest.Wait(); len(ended) > 0 {
					t.Errorf("%s: it does not wait", when)
				}
				if end {
					cancel()
				} else {
					r.Queue.Again()
				}
				if err := <-ended; err != nil {
					t.Errorf("%s: it ends with %v", when, err)
				}
				cancel()
			}
		}
		wait("at the start")
		r.Queue.Rewind(3)
		_, number, _ := r.Queue.begin()
		r.Queue.truncate(streams.ErrLogTruncated, number)
		wait("the log was truncated")
	})
}

// newReader is a reader of a log of some messages.
func newReader(t *testing.T, js jetstream.JetStream, messages int) *Reader {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	s, err := streams.Provision(t.Context(), js, streams.Options{Prefix: prefix, MaxPayload: 1 << 20, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	publish(t, js, messages)
	l, stop := streams.WatchLink(js.Conn())
	t.Cleanup(stop)
	queue, board, names := NewQueue(100), health.New(logger), prefix.Log(0, 1)
	return NewReader(Source{
		NATS: js.Conn(), Link: l, Log: streams.NewLog(s, l), Decoder: decoder, Guard: NewClockGuard(time.Hour,
			Clocks{Own: time.Now}, board), Health: board,
		Queue: queue, Ticker: NewTicker(js, l, names.Tick(), queue, board),
	})
}

func publish(t *testing.T, js jetstream.JetStream, messages int) {
	t.Helper()
	for i := range messages {
		if _, err := js.Publish(t.Context(), prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), []byte(`{}`)); err != nil {
			t.Fatal(err)
		}
	}
}

// run lets a reader run until the test ends, or the function that it returns is called.
func (r *Reader) run(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		r.Queue.Close()
		if err := <-ended; err != nil {
			t.Errorf("the reading ends with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// gets waits until the owner has taken all messages up to a sequence, which have to come once and in order.
func (r *Reader) gets(t *testing.T, first, last uint64) {
	t.Helper()
	for timeout := time.After(limit); first <= last; {
		select {
		case <-r.Queue.Arrived():
		case <-timeout:
			t.Fatalf("message %d does not come", first)
		}
		for _, seq := range r.Queue.takeAll() {
			if seq != first {
				t.Fatalf("message %d comes, want %d", seq, first)
			}
			first++
		}
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if err := poll.Met(limit, what, ok); err != nil {
		t.Fatal(err)
	}
}

// cutter cuts the connection that it has made.
type cutter struct {
	net.Dialer
	mu   sync.Mutex
	conn net.Conn
}

func (c *cutter) Dial(network, address string) (net.Conn, error) {
	conn, err := c.Dialer.Dial(network, address)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn = conn
	return conn, err
}

func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.conn.Close()
}

// TestG1_TheReaderBeginsAgain: the connection is lost while the reader waits for messages. It goes on behind what it
// has brought.
//
// It fails if it brings a message twice or not at all, or notices the loss only when the consumer has been silent for
// long.
func TestG1_TheReaderBeginsAgain(t *testing.T) {
	t.Parallel()
	link := &cutter{}
	other := natstest.Connect(t, natstest.Options{})
	nc, err := nats.Connect(other.Conn().ConnectedUrl(), natstest.Patient, nats.SetCustomDialer(link),
		nats.MaxReconnects(-1), nats.ReconnectWait(time.Millisecond), nats.ReconnectJitter(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	r := newReader(t, natstest.JetStream(t, nc), 5)
	r.Queue.Rewind(0)
	r.run(t)
	r.gets(t, 1, 5)
	quickest := limit
	for seq := uint64(6); seq < 20; seq += 5 {
		lost, began := r.Link.Lost(), time.Now()
		link.cut()
		select {
		case <-lost:
		case <-time.After(limit):
			t.Fatal("the loss of the connection is not noticed")
		}
		publish(t, other, 5)
		r.gets(t, seq, seq+4)
		quickest = min(quickest, time.Since(began))
		eventually(t, "the position moves on", func() bool { return r.Queue.ReadUpTo().Seq == seq+4 })
	}
	if quickest > 2*heartbeat {
		t.Errorf("the loss of the connection is noticed after %s at the soonest", quickest)
	}
}

// TestG1_RewoundQuickly: the owner goes back again and again, while the reader still begins to read, or has read much.
//
// It fails if the owner gets anything but the messages behind the offset that it has asked for last, once and in order.
func TestG1_RewoundQuickly(t *testing.T) {
	t.Parallel()
	const messages = 250 // more than the queue holds
	r := newReader(t, natstest.Connect(t, natstest.Options{}), messages)
	r.run(t)
	for i := range uint64(300) {
		after := i * 37 % messages
		r.Queue.Rewind(after)
		if i%3 == 0 {
			r.Queue.Again()
		}
		if i%10 == 0 {
			r.gets(t, after+1, min(after+1+i, messages))
			continue
		}
		for _, seq := range r.Queue.takeAll() {
			if after++; seq != after {
				t.Fatalf("message %d comes, want %d", seq, after)
			}
		}
	}
	r.Queue.Rewind(0)
	eventually(t, "the log is read from its beginning", func() bool { n, _ := r.Queue.Waiting(); return n > 0 })
	if list, _ := r.Queue.take(1, 1<<20); list[0].Seq != 1 || list[0].Time != list[0].Stamp/int64(time.Millisecond) {
		t.Errorf("the first message is %+v: log time knows what comes later", list[0].Position)
	}
	r.Queue.Wake()
	r.gets(t, 2, messages)
	eventually(t, "the position is at the end", func() bool { return r.Queue.ReadUpTo().Seq == messages })
}

// TestG7_TruncatedBeforeItIsRead: an owner has found that the log reaches back, and the log is truncated before it is
// read. It fails if the reading ends with an error, so that the process does, or if the owner is not told to take the
// shard over anew.
func TestG7_TruncatedBeforeItIsRead(t *testing.T) {
	t.Parallel()
	r := newReader(t, natstest.Connect(t, natstest.Options{}), 10)
	if err := r.Log.Streams.Log.Purge(t.Context(), jetstream.WithPurgeSequence(8)); err != nil {
		t.Fatal(err)
	}
	r.Queue.Rewind(3)
	r.run(t)
	eventually(t, "the owner is told", func() bool { return r.Queue.Truncated() != nil })
	if !errors.Is(r.Queue.Truncated(), streams.ErrLogTruncated) || r.Queue.Backlog.ReadUpTo() > 0 {
		t.Errorf("%v; %d messages were read", r.Queue.Truncated(), r.Queue.Backlog.ReadUpTo())
	}
	r.Queue.Rewind(7)
	r.gets(t, 8, 10)
	if why := r.Queue.Truncated(); why != nil {
		t.Error(why)
	}
}

// TestG12_ReadingEndsAtAGap: the log has lost a message that was not read yet. The reader ends with an error that names
// it, and brings no message from behind it.
func TestG12_ReadingEndsAtAGap(t *testing.T) {
	t.Parallel()
	r := newReader(t, natstest.Connect(t, natstest.Options{}), 5)
	lost := jetstream.WithPurgeSubject(prefix.Write(wire.Upsert, "c", "2"))
	if err := r.Log.Streams.Log.Purge(t.Context(), lost); err != nil {
		t.Fatal(err)
	}
	r.Queue.Rewind(0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	eventually(t, "the reader comes to the gap", func() bool { return len(ended) > 0 || r.Queue.ReadUpTo().Seq > 3 })
	cancel()
	if err := <-ended; !errors.Is(err, streams.ErrLogGap) || !strings.Contains(err.Error(), "(sequences 3)") {
		t.Errorf("the reading ends with %v", err)
	}
	if got, want := r.Queue.takeAll(), []uint64{1, 2}; !slices.Equal(got, want) {
		t.Errorf("messages %d come, want %d", got, want)
	}
}

// TestAnInterruptionIsNoTruncation: while NATS is away the reader neither ends the process, nor makes the owner take
// the shard over anew. People hear of it.
func TestAnInterruptionIsNoTruncation(t *testing.T) {
	t.Parallel()
	r := newReader(t, natstest.Connect(t, natstest.Options{}), 10)
	r.Queue.Rewind(8)
	r.NATS.Close()
	stop := r.run(t)
	eventually(t, "the interruption is noticed", func() bool {
		return r.Health.Err() != nil ||
			r.Queue.Truncated() != nil
	})
	if stop(); r.Queue.Truncated() != nil || !errors.Is(r.Health.Err(), streams.ErrDisconnected) {
		t.Errorf("the owner is told: %v; the problem is %v", r.Queue.Truncated(), r.Health.Err())
	}
}

// TestG12_ThePositionHasItsStamp: the reader begins at the end of the log, behind what is stored. The position has the
// stamp of that message, if it is known, and of no other one. The owner is woken, as it has all that there is.
func TestG12_ThePositionHasItsStamp(t *testing.T) {
	t.Parallel()
	r := newReader(t, natstest.Connect(t, natstest.Options{}), 3)
	r.run(t)
	for _, seq := range []uint64{2, 3} {
		at, _, err := r.Log.Stamp(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		r.Return(store.State{Offset: 3, Stamp: store.Stamp{Seq: seq, At: at}})
		want := fold.Position{Seq: 3}
		if seq == 3 {
			want.Stamp = at
		}
		select {
		case <-r.Queue.Arrived():
		case <-time.After(limit):
			t.Fatal("the owner is not woken")
		}
		if got := r.Queue.ReadUpTo(); got != want {
			t.Errorf("with the stamp of message %d the position is %+v, want %+v", seq, got, want)
		}
	}
}

// TestG4_LogTime: log time is the greatest stamp so far, wherever the reading began, if
// the owner knows the log time there.
//
// Goes red if a second reading forgets a stamp that is greater than later ones, or knows
// one that comes later.
func TestG4_LogTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stamps := rapid.SliceOfN(rapid.Int64Range(1, 20), 1, 40).Draw(t, "stamps")
		greatest := func(upTo int) int64 {
			if upTo == 0 {
				return 0
			}
			return slices.Max(stamps[:upTo])
		}
		// Sequence i+1 is stamped stamps[i].
		began := rapid.IntRange(0, len(stamps)-1).Draw(t, "began")
		var c logTime
		read := began
		for range rapid.IntRange(1, 5).Draw(t, "readings") {
			start := rapid.IntRange(began, read).Draw(t, "start")
			c.back(uint64(start))
			end := rapid.IntRange(start, len(stamps)).Draw(t, "end")
			for i := start; i < end; i++ {
				got := max(c.at(uint64(i+1), stamps[i]), greatest(began))
				if want := greatest(i + 1); got != want {
					t.Fatalf("from %d, back at %d: log time at %d of %v is %d, want %d", began, start, i+1, stamps, got,
						want)
				}
			}
			read = max(read, end)
		}
	})
}
