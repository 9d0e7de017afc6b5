package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestG9_TheRoomFollowsTheRequests: more requests count at once, and fewer by a factor of eight at each count. All
// requests of a second together wait for 16,000 documents, between the least room and the most.
//
// Goes red if an idle lapse does not reap all that it can after three counts, or a busy one more than the least.
func TestG9_TheRoomFollowsTheRequests(t *testing.T) {
	demand := int64(busiest)
	for i, step := range []struct {
		counted      int64 // requests a second
		demand, room int
	}{
		{0, 62, 258}, {0, 7, mostRoom}, {0, 0, mostRoom}, {0, 0, mostRoom}, // idle
		{1, 1, mostRoom}, {7, 7, mostRoom}, {8, 8, 2000}, {100, 100, 160}, {100, 100, 160},
		{90, 90, 177}, {13, 13, 1230}, {499, 499, leastRoom}, {500, 500, leastRoom}, {501, 500, leastRoom},
		{1e6, 500, leastRoom},
		{61, 62, 258}, {63, 63, 253}, {7, 7, mostRoom}, {6, 6, mostRoom}, // down again
	} {
		demand = after(demand, step.counted)
		if got := room(demand); demand != int64(step.demand) || got != step.room {
			t.Errorf("count %d, %d requests a second: a demand of %d, and room for %d; want %d, %d", i, step.counted,
				demand, got, step.demand, step.room)
		}
	}
}

// TestG9_NoAnswerIsTraffic: where requests cannot be counted, as little is reaped as under traffic.
//
// Goes red if a failure counts as no traffic, or what was counted before it.
func TestG9_NoAnswerIsTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails, hangs atomic.Bool
		p := NewPace(func(ctx context.Context) (int64, error) {
			if hangs.Load() {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			if fails.Load() {
				return 0, errors.New("no")
			}
			return 7, nil
		})
		go p.Run(t.Context())
		for _, step := range []struct {
			fails, hangs bool
			want         int
		}{{false, false, mostRoom}, {true, false, leastRoom}, {false, false, mostRoom}, {false, true, leastRoom},
			{false, false, mostRoom}} {
			fails.Store(step.fails)
			hangs.Store(step.hangs)
			p.Room()
			time.Sleep(250 * time.Millisecond)
			if got := room(p.demand.Load()); got != step.want || p.GivesWay() != (step.want < mostRoom) {
				t.Errorf("it fails: %t, it hangs: %t: there is room for %d, want %d; it gives way: %t", step.fails,
					step.hangs, got, step.want, p.GivesWay())
			}
		}
	})
}

// TestG9_WhatWasCountedIsForgotten: whoever reaps again after a while finds out anew how busy lapse is. Nobody counts
// requests meanwhile.
func TestG9_WhatWasCountedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var counts atomic.Int64
		p := NewPace(func(context.Context) (int64, error) { counts.Add(1); return 7, nil })
		go p.Run(t.Context())
		synctest.Wait()
		if n := p.Room(); n != leastRoom || p.isUsed() == false {
			t.Errorf("before anything is counted there is room for %d", n)
		}
		time.Sleep(500 * time.Millisecond)
		if n := p.Room(); n != mostRoom || p.GivesWay() {
			t.Errorf("an idle lapse has room for %d", n)
		}
		time.Sleep(countAfter + 2*countEvery)
		synctest.Wait()
		n := counts.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if counted := counts.Load() - n; counted > 0 || p.GivesWay() || p.Room() != leastRoom {
			t.Errorf("while nobody reaps, requests are counted %d times; then there is room for %d", counted, p.Room())
		}
	})
}

// TestG9_LeftOverCapacity simulates ten minutes in which a changed default has made very many documents due, while
// requests come in bursts. A machine reaps 40,000 documents a second. A request finds before it the documents that are
// being reaped.
//
// Goes red if an idle machine is not all used within 100 ms, if there is more room than beside the requests within
// 100 ms, if what was begun before is not reaped within 150 ms, or if the room changes while the requests do not.
func TestG9_LeftOverCapacity(t *testing.T) {
	synctest.Test(t, leftOverCapacity)
}

// phase is a part of a minute of the simulation.
type phase struct {
	name    string
	lasts   time.Duration
	rate    float64 // requests a second
	readers int     // that send one request after the other, in place of a rate
	low     int     // the least and the most room, once 100 ms have passed
	high    int
}

var phases = []phase{
	{name: "idle", lasts: 10 * time.Second, low: mostRoom, high: mostRoom},
	{name: "2,000 requests a second", lasts: 10 * time.Second, rate: 2000, low: leastRoom, high: leastRoom},
	{name: "nothing, for 300 ms", lasts: 300 * time.Millisecond, low: mostRoom, high: mostRoom},
	{name: "100,000 requests a second", lasts: 4700 * time.Millisecond, rate: 100_000, low: leastRoom, high: leastRoom},
	{name: "100 requests a second", lasts: 10 * time.Second, rate: 100, low: 100, high: 220},
	{name: "8 readers, each at once again", lasts: 10 * time.Second, readers: 8, low: leastRoom, high: leastRoom},
	{name: "1 reader, at once again", lasts: 5 * time.Second, readers: 1, low: leastRoom, high: leastRoom},
	{name: "a request now and then", lasts: 10 * time.Second, rate: 1, low: 300, high: mostRoom},
}

func leftOverCapacity(t *testing.T) {
	const minutes = 10
	ctx, cancel := context.WithCancel(t.Context())
	m := &machine{began: time.Now()}
	m.pace = NewPace(func(context.Context) (int64, error) { return int64(m.requests()), nil })
	var all sync.WaitGroup
	all.Go(func() { m.reap(ctx) })
	all.Go(func() { m.pace.Run(ctx) })
	var table strings.Builder
	fmt.Fprintln(&table, "\n| minute | requests | room after 100 ms | reaped a second | a request waits, at most "+
		"|\n|---|---|---|---|---|")
	for minute := range minutes {
		for _, ph := range phases {
			m.begin(ph)
			time.Sleep(100 * time.Millisecond)
			low, high, worst, reaped := math.MaxInt, 0, 0, m.reaped.Load()
			for at := range int(ph.lasts/time.Millisecond) - 100 {
				room := room(m.pace.demand.Load())
				low, high = min(low, room), max(high, room)
				if at >= 50 {
					worst = max(worst, int(m.underWay.Load()))
				}
				time.Sleep(time.Millisecond)
			}
			rate := float64(m.reaped.Load()-reaped) / (ph.lasts - 100*time.Millisecond).Seconds()
			if minute == 0 || minute == minutes-1 {
				fmt.Fprintf(&table, "| %d | %s | %d to %d | %.0f | %.1f ms |\n", minute+1, ph.name, low, high, rate,
					float64(worst)/40)
			}
			if low < ph.low || high > ph.high || worst > ph.high {
				t.Errorf("minute %d, %s: room for %d to %d documents, and %d were being reaped; want %d to %d", minute+
					1, ph.name, low, high, worst, ph.low, ph.high)
			}
		}
	}
	t.Log(table.String())
	cancel()
	all.Wait()
}

// machine is what the simulation runs on.
type machine struct {
	pace     *Pace
	underWay atomic.Int64 // documents that are being reaped
	reaped   atomic.Int64

	mu     sync.Mutex
	phase  phase
	began  time.Time // when the requests were counted last
	before float64   // requests before that
}

// begin begins a phase.
func (m *machine) begin(ph phase) {
	m.requests()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase = ph
}

// requests are those that have come.
func (m *machine) requests() float64 {
	wait := 200*time.Microsecond + time.Duration(m.underWay.Load())*25*time.Microsecond // of a request
	m.mu.Lock()
	defer m.mu.Unlock()
	rate := m.phase.rate
	if m.phase.readers > 0 {
		rate = float64(m.phase.readers) / wait.Seconds()
	}
	now := time.Now()
	m.before += rate * now.Sub(m.began).Seconds()
	m.began = now
	return m.before
}

// reap is an owner that always has documents to reap.
func (m *machine) reap(ctx context.Context) {
	for ctx.Err() == nil {
		n := m.pace.Room()
		m.underWay.Store(int64(n))
		time.Sleep(time.Millisecond + time.Duration(n)*25*time.Microsecond)
		m.reaped.Add(int64(n))
		m.underWay.Store(0)
	}
}
