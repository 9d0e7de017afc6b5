package partition

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

type waker func(partition int)

func (w waker) Wake(partition int) { w(partition) }

// TestG9_OneAfterTheOther: if there is room for one partition, they reap in the order in which they
// came. The next in the queue is woken, and a partition that needs nothing any more holds up no other.
//
// Goes red if a partition is forgotten, or two reap at a time.
func TestG9_OneAfterTheOther(t *testing.T) {
	var woken []int
	s := NewShare(waker(func(partition int) { woken = append(woken, partition) }), nil)
	wantWoken := func(want ...int) {
		t.Helper()
		if !slices.Equal(woken, want) {
			t.Errorf("woken: %v, want %v", woken, want)
		}
		woken = nil
	}
	for range 2 { // asking again changes nothing
		if s.Take(3) != Chunk {
			t.Fatal("there is no room for the first")
		}
	}
	for _, p := range []int{5, 1, 7, 5} {
		if s.Take(p) != 0 {
			t.Errorf("%d reaps beside 3", p)
		}
	}
	s.Leave(1) // it needs none any more
	wantWoken()
	s.Leave(3)
	wantWoken(5)
	if s.Take(3) != 0 || s.Take(5) != Chunk || s.Take(7) != 0 {
		t.Error("5 does not reap alone")
	}
	s.Leave(5)
	wantWoken(7)
	s.Leave(5)
	wantWoken(7) // again, which does no harm
	s.Take(7)
	s.Leave(7)
	wantWoken(3)
	s.Leave(3)
	if s.Taken() || s.Take(0) != Chunk || !s.Taken() {
		t.Error("something is left")
	}
}

// TestG9_RoomForSeveral: with fewer requests several partitions reap at once, and those that wait are
// woken as soon as there is room for them.
func TestG9_RoomForSeveral(t *testing.T) {
	var woken []int
	s := NewShare(waker(func(partition int) { woken = append(woken, partition) }), nil)
	s.Take(0)
	for p := 1; p <= 16; p++ {
		s.Take(p)
	}
	for range 4 {
		s.set(27) // requests a second
	}
	var taken []int
	for i := 0; i < len(woken); i++ { // Take wakes the next
		if n := s.Take(woken[i]); n > 0 && !slices.Contains(woken[:i], woken[i]) {
			taken = append(taken, n)
		}
	}
	if want := []int{ReapChunk, ReapChunk, 16_000/27 - Chunk - 2*ReapChunk}; !slices.Equal(taken, want) {
		t.Errorf("beside partition 0, which has taken %d, there is room for %v, want %v", Chunk, taken, want)
	}
}

// TestG9_NoAnswerIsTraffic: where requests cannot be counted, as little is reaped as under traffic.
//
// Goes red if a failure counts as no traffic, or what was counted before it.
func TestG9_NoAnswerIsTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails, hangs atomic.Bool
		s := NewShare(waker(func(int) {}), func(ctx context.Context) (int64, error) {
			if hangs.Load() {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			if fails.Load() {
				return 0, errors.New("no")
			}
			return 7, nil
		})
		go s.Run(t.Context())
		for _, step := range []struct {
			fails, hangs bool
			want         int
		}{{false, false, atOnce}, {true, false, Chunk}, {false, false, atOnce}, {false, true, Chunk}, {false, false, atOnce}} {
			fails.Store(step.fails)
			hangs.Store(step.hangs)
			s.Take(0)
			time.Sleep(250 * time.Millisecond)
			if got := roomIn(s); got != step.want {
				t.Errorf("it fails: %t, it hangs: %t: there is room for %d, want %d", step.fails, step.hangs, got, step.want)
			}
		}
		once := NewShare(waker(func(int) {}), func(context.Context) (int64, error) { return 7, nil })
		go once.Run(t.Context())
		once.Take(0)
		time.Sleep(2 * time.Second)
		if roomIn(once) != Chunk {
			t.Error("the next partition goes by what was counted long ago")
		}
	})
}

// TestG9_LeftOverCapacity simulates ten minutes in which a changed default has made very many
// documents due, while requests come in bursts. A machine reaps 40,000 documents a second. A request finds
// the documents before it that are being reaped.
//
// Goes red if an idle machine is not all used within 100 ms, if there is more room than beside the requests
// within 100 ms, if what was begun before is not reaped within 150 ms, or if the room changes while the requests
// do not.
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
	{name: "idle", lasts: 10 * time.Second, low: atOnce, high: atOnce},
	{name: "2,000 requests a second", lasts: 10 * time.Second, rate: 2000, low: Chunk, high: Chunk},
	{name: "nothing, for 300 ms", lasts: 300 * time.Millisecond, low: atOnce, high: atOnce},
	{name: "100,000 requests a second", lasts: 4700 * time.Millisecond, rate: 100_000, low: Chunk, high: Chunk},
	{name: "100 requests a second", lasts: 10 * time.Second, rate: 100, low: 100, high: 220},
	{name: "8 readers, each at once again", lasts: 10 * time.Second, readers: 8, low: Chunk, high: Chunk},
	{name: "1 reader, at once again", lasts: 5 * time.Second, readers: 1, low: Chunk, high: Chunk},
	{name: "a request now and then", lasts: 10 * time.Second, rate: 1, low: 300, high: atOnce},
}

func leftOverCapacity(t *testing.T) {
	const partitions, minutes = 16, 10
	ctx, cancel := context.WithCancel(t.Context())
	m := &machine{wakes: make([]chan struct{}, partitions), began: time.Now()}
	m.share = NewShare(waker(func(p int) {
		select {
		case m.wakes[p] <- struct{}{}:
		default:
		}
	}), func(context.Context) (int64, error) { return m.requests(), nil })
	var all sync.WaitGroup
	for p := range partitions {
		m.wakes[p] = make(chan struct{}, 1)
		all.Go(func() { m.reap(ctx, p) })
	}
	all.Go(func() { m.share.Run(ctx) })
	var table strings.Builder
	fmt.Fprintln(&table, "\n| minute | requests | room after 100 ms | reaped a second | a request waits, at most |\n|---|---|---|---|---|")
	for minute := range minutes {
		for _, ph := range phases {
			m.begin(ph)
			time.Sleep(100 * time.Millisecond)
			low, high, worst, reaped := math.MaxInt, 0, 0, m.reaped.Load()
			for at := range int(ph.lasts/time.Millisecond) - 100 {
				room := roomIn(m.share)
				low, high = min(low, room), max(high, room)
				if at >= 50 {
					worst = max(worst, m.underWay())
				}
				time.Sleep(time.Millisecond)
			}
			rate := float64(m.reaped.Load()-reaped) / (ph.lasts - 100*time.Millisecond).Seconds()
			if minute == 0 || minute == minutes-1 {
				fmt.Fprintf(&table, "| %d | %s | %d to %d | %.0f | %.1f ms |\n", minute+1, ph.name, low, high, rate, float64(worst)/40)
			}
			if low < ph.low || high > ph.high || worst > ph.high+Chunk {
				t.Errorf("minute %d, %s: room for %d to %d documents, and %d were being reaped; want %d to %d", minute+1, ph.name, low, high, worst, ph.low, ph.high)
			}
		}
	}
	t.Log(table.String())
	cancel()
	all.Wait()
}

// machine is what the simulation runs on.
type machine struct {
	share *Share
	wakes []chan struct{}

	mu     sync.Mutex
	phase  phase
	began  time.Time // of the phase
	before float64   // requests before it
	ready  time.Time // when it has reaped what it has to reap
	reaped atomic.Int64
}

// begin begins a phase.
func (m *machine) begin(ph phase) {
	n := m.exactly()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.phase, m.before, m.began = ph, n, time.Now()
}

// requests are those that have come.
func (m *machine) requests() int64 { return int64(m.exactly()) }

func (m *machine) exactly() float64 {
	wait := 200*time.Microsecond + time.Duration(m.underWay())*25*time.Microsecond // of a request
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

// roomIn is how many documents a share lets be reaped at once.
func roomIn(s *Share) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.demand.room()
}

// underWay is how many documents are being reaped.
func (m *machine) underWay() int { m.share.mu.Lock(); defer m.share.mu.Unlock(); return m.share.sum }

// reap is a partition that always has documents to reap. The machine reaps one after the other.
func (m *machine) reap(ctx context.Context, partition int) {
	for ctx.Err() == nil {
		n := m.share.Take(partition)
		if n == 0 {
			select {
			case <-ctx.Done():
			case <-m.wakes[partition]:
			}
			continue
		}
		m.mu.Lock()
		if now := time.Now(); m.ready.Before(now) {
			m.ready = now
		}
		m.ready = m.ready.Add(time.Duration(n) * 25 * time.Microsecond)
		m.reaped.Add(int64(n))
		rest := time.Until(m.ready)
		m.mu.Unlock()
		time.Sleep(time.Millisecond + rest)
		m.share.Leave(partition)
	}
}
