package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed18712806/lapse/sink/wire"
)

// TestG9_Turns: partitions have their turns in the order in which they came, one at a
// time, with a rest after each; who stands in line is woken when it is its turn, and
// who goes away holds nobody up.
//
// Goes red if a turn is lost, or two partitions have one at a time.
func TestG9_Turns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var woken []int
		tn := newTurns(8, slog.New(slog.DiscardHandler))
		tn.wake = func(partition int) {
			mu.Lock()
			defer mu.Unlock()
			woken = append(woken, partition)
		}
		wantWoken := func(want ...int) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(woken, want) {
				t.Errorf("woken: %v, want %v", woken, want)
			}
			woken = nil
		}
		for range 2 { // that it asks again changes nothing
			if !tn.take(3) {
				t.Fatal("the first does not get a turn")
			}
		}
		for _, p := range []int{5, 1, 7, 5} {
			if tn.take(p) {
				t.Errorf("%d has a turn beside 3", p)
			}
		}
		tn.leave(1) // it needs none any more
		tn.leave(3)
		if tn.take(3) {
			t.Error("3 has a turn again before those that wait")
		}
		wantWoken()
		time.Sleep(turnRest)
		wantWoken(5)
		if !tn.take(5) || tn.take(7) {
			t.Error("it is not the turn of 5 alone")
		}
		tn.leave(5)
		time.Sleep(turnRest)
		wantWoken(7)
		tn.leave(7)
		tn.allow(2)
		wantWoken(3) // without a rest
		if !tn.take(2) || tn.take(4) || tn.take(6) {
			t.Error("there are not two turns")
		}
		tn.allow(8)
		wantWoken(4, 6)
		time.Sleep(turnRest)
		wantWoken()
		for p := range 8 {
			tn.leave(p)
		}
		tn.allow(1)
		if !tn.take(0) {
			t.Error("a turn was lost")
		}
		tn.leave(0)
		tn.allow(8)
		tn.change()
		time.Sleep(turnRest)
		wantWoken()
		if !tn.giveWay.Load() || !tn.take(1) || tn.take(2) {
			t.Error("reaping does not give way after a change")
		}
		time.Sleep(turnRest)
		wantWoken()
	})
}

// TestPace: reaping gives way while documents are read, with as few turns at a time as
// are needed for what is left to go in time; and not any more a while after.
func TestPace(t *testing.T) {
	const in = int64(drainWithin / time.Second)
	var p pace
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		reads uint64
		left  int64
		want  int
	}{
		{0, 0, 0},
		{turnsReads - 1, 0, 0},
		{turnsReads, 0, 1},
		{turnsReads, 100 * in, 1},            // it has just begun
		{turnsReads, 100*in - 101, 1},        // in time
		{turnsReads, 100*in - 150, 2},        // 49 a second, and about 100 are needed
		{turnsReads, 100*in - 180, 4},        // still too little
		{turnsReads, 100*in + 1000, 0},       // more becomes due than is reaped: as fast as it goes
		{turnsReads, 3800, 0},                // in time, but not by much
		{turnsReads, 1000, 4},                // at a fraction of it there would be time enough
		{turnsReads, 900, 2},                 // likewise
		{turnsReads, 1, 1},                   // likewise
		{turnsReads, 0, 1},                   // all is gone
		{0, 5000 * in, 1},                    // read a moment ago
		{0, 5000 * in, 0}, {0, 5000 * in, 0}, // nobody reads
		{turnsReads, 5000 * in, 1},             // again
		{turnsReads, 5000*in - 5001, 1},        //
		{turnsReads, 5000*in - 5001, 2},        //
		{turnsReads, 0, 1}, {turnsReads, 3, 1}, // a new lot
	} {
		now = now.Add(paceEvery)
		p.read(step.reads, now)
		if got := p.turns(step.left, 8, now); got != step.want {
			t.Errorf("step %d (%d reads, %d left): %d turns, want %d", i, step.reads, step.left, got, step.want)
		}
	}
	p = pace{}
	p.expect(now) // reads, perhaps: that is known by the next look
	for _, want := range []int{1, 0} {
		if got := p.turns(1000, 8, now); got != want {
			t.Errorf("after a change: %d turns, want %d", got, want)
		}
		now = now.Add(turnsEvery)
	}
	p = pace{}
	for _, want := range []int{1, 0} { // one partition alone: with rests, or without
		now = now.Add(paceEvery)
		p.read(turnsReads, now)
		if got := p.turns(1000, 1, now); got != want {
			t.Errorf("one partition: %d turns, want %d", got, want)
		}
	}
}

// TestG9_ReapingGivesWayToReads: while documents are read, much that is due is reaped in
// small chunks; all of it, once.
//
// Goes red if reads are not noticed, or a partition that gives way takes all at once, or
// waits for ever.
func TestG9_ReapingGivesWayToReads(t *testing.T) {
	t.Parallel()
	const many = 1200
	r := newRigOn(t, backends[1], Options{Partitions: 4})
	var publications atomic.Int64
	p := r.start(func(here point) error {
		if here == afterPublish {
			publications.Add(1)
		}
		return nil
	})
	p.ready(t)
	r.config("c", `{"defaultTtl":-1}`)
	r.must(201, prefix.Write(wire.Create, "kept", "a"), `{}`)
	for i := range many {
		r.send(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
	}
	r.caughtUp(p)
	eventually(t, "reaping does not give way any more to the configuration", func() bool { return !p.turns.giveWay.Load() })
	ctx, stop := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	nothing, err := r.redis.ScriptLoad(ctx, "return 1").Result()
	if err != nil {
		t.Fatal(err)
	}
	reading.Go(func() {
		for ctx.Err() == nil {
			_, err := r.reader.Get(ctx, "kept", "a")
			many := r.redis.Pipeline() // as much as many readers, however slow the machine is
			for range turnsReads {
				many.EvalShaRO(ctx, nothing, nil)
			}
			if err == nil {
				_, err = many.Exec(ctx)
			}
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("read: %v", err)
				return
			}
		}
	})
	defer reading.Wait()
	defer stop()
	eventually(t, "reaping gives way", p.turns.giveWay.Load)
	r.config("c", `{"defaultTtl":1}`)
	events := r.waitEvents("c", many)
	if n := publications.Load(); n < many/turnChunk {
		t.Errorf("%d events in %d chunks: more than %d at once", many, n, turnChunk)
	}
	ids := make(map[string]bool)
	for _, e := range events {
		ids[e.stored.subject] = true
	}
	if len(ids) != many {
		t.Errorf("%d documents have an event, want %d", len(ids), many)
	}
	stop()
	eventually(t, "reaping gives way no more", func() bool { return !p.turns.giveWay.Load() })
	r.caughtUp(p)
	p.stop(t)
}
