package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/follow"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink/wire"
)

// soak is an installation under a steady load and faults, that is measured all the time.
type soak struct {
	*world
	flags   []string
	load    *steadyLoad
	oracle  *follow.Follower
	mu      sync.Mutex // of the oracle
	stop    context.CancelFunc
	done    sync.WaitGroup
	series  []series
	began   time.Time
	at      []time.Duration // since then: the end of each interval
	counted [2]int64        // acknowledgements and events until the last one
	startUp float64         // seconds from the last kill of lapse until a write took effect
	fault   string          // the last one
}

// series is a quantity, with its value at the end of each interval.
type series struct {
	name   string
	unit   string
	flat   bool // it must not grow
	spare  float64
	values []float64
}

// forgetWithin is when a document's bytes have to be gone; the events go after half of it.
const forgetWithin = 4 * time.Minute

// TestG10_Soak: lapse, nats-server and redis-server run under a steady load of documents that
// all expire within a minute, while processes are killed, Redis is wiped and a standby takes
// over. An oracle judges all events as they come, and all reads at the end. Memory, disk and
// the time of a start do not grow after the first sixth. LAPSE_SOAK is the duration (10
// seconds if it is not set), LAPSE_SOAK_RATE the number of writes a second. The log of the
// test has a table and a plot.
//
// It fails if anything is kept for each document that came and went.
func TestG10_Soak(t *testing.T) {
	t.Parallel()
	long := period(t, "LAPSE_SOAK", 10*time.Second)
	rate := number(t, "LAPSE_SOAK_RATE", 500)
	s := &soak{world: servers(t, harness.RedisOptions{Persistent: true})}
	s.flags = []string{"--duplicate-window", duplicateWindow.String(), "--forget-within", forgetWithin.String(),
		"--events-max-age", (forgetWithin / 2).String()}
	s.lapse = s.another()
	s.lapse.Start()
	longest := 55 // seconds until a document expires
	if long < time.Minute {
		longest = 5
	}
	s.Configure(byDefault, fmt.Sprintf(`{"defaultTtl":%d}`, (longest+1)/2))
	s.Configure(byOwn, `{"defaultTtl":-1}`)
	s.follow()
	s.load = startSteadyLoad(t, s.Client, s.oracle, rate, longest, 1)

	const intervals = 60
	each := max(long/intervals, time.Second)
	s.began = time.Now()
	s.series = newSeries()
	for i := 1; time.Since(s.began) < long; i++ {
		until := time.Now().Add(each)
		if i%2 == 0 { // so that every other interval is without a fault
			s.happen(soakFaults[i/2%len(soakFaults)])
		}
		harness.At(t, until)
		s.sample()
		if i == 1 || i%10 == 0 {
			t.Logf("after %v: %s", time.Since(s.began).Round(time.Second), s.last())
		}
	}
	s.end()
	t.Logf("%v at %d writes/s: %d messages of the log, %d events\n%s\n%s", time.Since(s.began).Round(time.Second), rate,
		s.oracle.Seq(), s.oracle.Events(), s.table(), s.plot())
	s.judge()
}

// another makes one more lapse, and does not start it.
func (s *soak) another() *harness.Lapse {
	l := harness.PrepareLapse(s.t, append([]string{"--nats", s.nats.URL(), "--redis", s.redis.URL()}, s.flags...)...)
	l.NATSURL, l.Redis = s.nats.URL(), s.redis.Address()
	return l
}

// follow starts the oracle, which goes on until end.
func (s *soak) follow() {
	s.t.Helper()
	var err error
	if s.oracle, err = follow.New(s.t.Context(), s.JS, oracle.Settings{Prefix: s.Prefix}, harness.Limit); err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(s.t.Context())
	s.stop = stop
	s.done.Go(func() {
		ticker := time.NewTicker(judgeEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := s.advance(ctx); errors.Is(err, follow.ErrFinding) {
				s.t.Errorf("after %q: %v", s.fault, err)
				return
			}
		}
	})
	s.t.Cleanup(func() { stop(); s.done.Wait() })
}

// judgeEvery is how often the oracle reads what is new.
const judgeEvery = 500 * time.Millisecond

// advance lets the oracle judge what is new. A request that a server has lost is made again soon.
func (s *soak) advance(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oracle.Advance(ctx)
}

// end stops the load, waits until all documents are gone and all events were judged, and
// compares the reads.
func (s *soak) end() {
	s.t.Helper()
	s.load.end()
	s.stop()
	s.done.Wait()
	if s.t.Failed() {
		s.t.FailNow()
	}
	s.lapse.Ready()
	var finding error
	harness.Until(s.t, 5*time.Minute, "all that was written is gone, and has its event",
		func(ctx context.Context) error {
			harness.At(s.t, time.Now().Add(judgeEvery))
			err := s.advance(ctx)
			if errors.Is(err, follow.ErrFinding) {
				finding = err
				return nil
			}
			if outputs, documents := s.oracle.Open(); err == nil && outputs+documents > 0 {
				err = fmt.Errorf("%d events are missing, %d documents are there", outputs, documents)
			}
			return err
		})
	if finding == nil {
		finding = s.oracle.CompareReads(s.t.Context(), readers.ByReader(s.reader))
	}
	if finding != nil {
		s.t.Fatal(finding)
	}
}

// soakFaults are the faults of a soak, in the order in which they happen.
var soakFaults = []struct {
	name string
	do   func(s *soak)
}{
	{"nats-server killed", func(s *soak) {
		s.nats.Kill()
		s.nats.Start()
	}},
	{"redis-server killed", func(s *soak) {
		s.redis.Kill()
		s.redis.Start()
	}},
	{"lapse killed", func(s *soak) {
		began := time.Now()
		s.lapse.Kill()
		s.lapse.Start() // it is ready once it sees an owner, be that the one that was killed
		s.Want(wire.StatusCreated, wire.Create, byDefault, fmt.Sprint("after ", began.UnixNano()), "{}")
		s.startUp = time.Since(began).Seconds()
	}},
	{"redis-server wiped", func(s *soak) {
		harness.Until(s.t, harness.Limit, "Redis is wiped",
			func(ctx context.Context) error { return s.redis.Client().FlushAll(ctx).Err() })
	}},
	{"a standby takes over", func(s *soak) {
		standby := s.another()
		standby.Launch()
		harness.Until(s.t, harness.Limit, "the standby listens", func(context.Context) error {
			if !strings.Contains(standby.Log(), "listening") {
				return errors.New("its log does not say so")
			}
			return nil
		})
		s.lapse.Kill()
		s.lapse = standby
	}},
}

// happen makes a fault happen, and waits until lapse is ready again and the load goes on.
func (s *soak) happen(f struct {
	name string
	do   func(s *soak)
}) {
	s.t.Helper()
	s.fault = f.name
	began := time.Now()
	f.do(s)
	s.lapse.Ready()
	s.load.wait(s.t, s.load.rate/10)
	s.t.Logf("%s: the load goes on after %v", f.name, time.Since(began).Round(10*time.Millisecond))
	if s.t.Failed() {
		s.t.FailNow()
	}
}

// The series, in the order of newSeries.
const (
	acked = iota
	judged
	liveDocuments
	lateMedian
	lateHigh
	lateMost
	startUp
	memoryLapse
	memoryNATS
	memoryRedis
	memoryTest
	diskNATS
	diskRedis
	logBytes
	eventBytes
)

func newSeries() []series {
	return []series{
		acked: {name: "writes", unit: "/s"}, judged: {name: "events", unit: "/s"},
		liveDocuments: {name: "documents", unit: ""},
		lateMedian:    {name: "late p50", unit: "ms"}, lateHigh: {name: "late p99", unit: "ms"},
		lateMost:    {name: "late max", unit: "ms"},
		startUp:     {name: "start", unit: "s", flat: true, spare: 5},
		memoryLapse: {name: "lapse", unit: "MB", flat: true, spare: 64},
		memoryNATS:  {name: "NATS", unit: "MB", flat: true, spare: 64},
		memoryRedis: {name: "Redis", unit: "MB", flat: true, spare: 64},
		memoryTest:  {name: "test", unit: "MB", flat: true, spare: 128},
		diskNATS:    {name: "disk NATS", unit: "MB", flat: true, spare: 256},
		diskRedis:   {name: "disk Redis", unit: "MB", flat: true, spare: 256},
		logBytes:    {name: "log", unit: "MB", flat: true, spare: 256},
		eventBytes:  {name: "events kept", unit: "MB", flat: true, spare: 256},
	}
}

// sample adds the values of an interval.
func (s *soak) sample() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(which int, value float64) { s.series[which].values = append(s.series[which].values, value) }
	took, now := time.Since(s.began), [2]int64{s.load.acked.Load(), int64(s.oracle.Events())}
	interval := took.Seconds()
	if n := len(s.at); n > 0 {
		interval -= s.at[n-1].Seconds()
	}
	add(acked, float64(now[0]-s.counted[0])/interval)
	add(judged, float64(now[1]-s.counted[1])/interval)
	s.at, s.counted = append(s.at, took), now
	_, there := s.oracle.Open()
	add(liveDocuments, float64(there))
	delays := s.oracle.Delays()
	at := func(share float64) float64 {
		if len(delays) == 0 {
			return 0
		}
		return float64(delays[int(share*float64(len(delays)-1))].Milliseconds())
	}
	add(lateMedian, at(0.5))
	add(lateHigh, at(0.99))
	add(lateMost, at(1))
	add(startUp, s.startUp)
	const mega = 1 << 20
	add(memoryLapse, float64(s.lapse.Resident()/mega))
	add(memoryNATS, float64(s.nats.Resident()/mega))
	add(memoryRedis, float64(s.redis.Resident()/mega))
	add(memoryTest, float64(harness.ResidentOf(os.Getpid())/mega))
	add(diskNATS, float64(s.nats.Disk()/mega))
	add(diskRedis, float64(s.redis.Disk()/mega))
	for which, name := range map[int]string{logBytes: s.Prefix.LogStream(), eventBytes: s.Prefix.EventsStream()} {
		harness.Until(s.t, harness.Limit, "NATS tells the size of "+name, func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second) // a server that was killed has lost the request
			defer cancel()
			stream, err := s.JS.Stream(ctx, name)
			if err == nil {
				add(which, float64(stream.CachedInfo().State.Bytes/mega))
			}
			return err
		})
	}
}

// last tells the values of the last interval.
func (s *soak) last() string {
	var all []string
	for _, q := range s.series {
		all = append(all, fmt.Sprintf("%s %.0f %s", q.name, q.values[len(q.values)-1], q.unit))
	}
	return strings.Join(all, ", ")
}

// table has a line for each interval.
func (s *soak) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%8s", "until")
	for _, q := range s.series {
		fmt.Fprintf(&b, " %14s", strings.TrimSpace(q.name+" "+q.unit))
	}
	for i := range s.series[0].values {
		fmt.Fprintf(&b, "\n%8s", s.at[i].Round(time.Second))
		for _, q := range s.series {
			fmt.Fprintf(&b, " %14s", compact(q.values[i]))
		}
	}
	return b.String()
}

func compact(v float64) string {
	if v < 10 && v != float64(int(v)) {
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// plot draws each series as a line of bars, from 0 to its largest value.
func (s *soak) plot() string {
	bars := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, q := range s.series {
		most := slices.Max(q.values)
		fmt.Fprintf(&b, "%12s |", q.name)
		for _, v := range q.values {
			if most > 0 {
				v = max(0, v/most)
			}
			b.WriteRune(bars[int(v*float64(len(bars)-1)+0.5)])
		}
		fmt.Fprintf(&b, "| to %s %s\n", compact(most), q.unit)
	}
	return b.String()
}

// judge compares the medians of the first and of the second half after the first sixth. In a
// run so short that nothing has to be gone by then, it only tells them.
func (s *soak) judge() {
	median := func(values []float64) float64 {
		sorted := slices.Sorted(slices.Values(values))
		return sorted[len(sorted)/2]
	}
	var b strings.Builder
	for _, q := range s.series {
		from := len(q.values) / 6
		middle := (from + len(q.values)) / 2
		if middle == from {
			return // too short
		}
		first, second := median(q.values[from:middle]), median(q.values[middle:])
		verdict := ""
		if limit := first*1.5 + q.spare; q.flat && s.at[from] > 2*forgetWithin && second > limit {
			s.t.Errorf("%s: the median was %s %s, and later %s; at most %s are allowed", q.name, compact(first), q.unit,
				compact(second), compact(limit))
		} else if q.flat {
			verdict = fmt.Sprintf(" (at most %s)", compact(limit))
		}
		fmt.Fprintf(&b, "%12s: %s, then %s %s%s\n", q.name, compact(first), compact(second), q.unit, verdict)
	}
	s.t.Logf("medians of the two halves after the first sixth:\n%s", b.String())
}
