package processor

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/nats-io/nats.go"
	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestG4_LogTime: log time is the greatest stamp so far, wherever reading began, as long
// as whoever reads knows the log time there.
//
// Goes red if reading anew forgets a stamp that later ones fell short of, or knows one
// that comes later.
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
		var c clock
		read := began
		for range rapid.IntRange(1, 5).Draw(t, "readings") {
			start := rapid.IntRange(began, read).Draw(t, "start")
			c.back(uint64(start))
			end := rapid.IntRange(start, len(stamps)).Draw(t, "end")
			for i := start; i < end; i++ {
				got := max(c.stamp(uint64(i+1), stamps[i]), greatest(began))
				if want := greatest(i + 1); got != want {
					t.Fatalf("from %d, back at %d: log time at %d of %v is %d, want %d", began, start, i+1, stamps, got, want)
				}
			}
			read = max(read, end)
		}
	})
}

// TestG3_Soon: what falls due comes in its order, once, and what was taken out does not.
func TestG3_Soon(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s soon
		left := map[docKey]int64{}
		var docs []*dueDoc
		for i, at := range rapid.SliceOfN(rapid.Int64Range(0, 9), 0, 20).Draw(t, "instants") {
			key := docKey{[]string{"a", "b"}[i%2], fmt.Sprint(i)}
			docs = append(docs, &dueDoc{key: key, header: sink.Header{Etag: uint64(i)}, expiry: ttlrules.Expiry{At: at}})
			left[key] = at
		}
		all := slices.Clone(docs)
		s.set(docs)
		for range 25 {
			now := rapid.Int64Range(-1, 10).Draw(t, "now")
			var want []string
			next := map[string]int64{"a": math.MaxInt64, "b": math.MaxInt64}
			for key, at := range left {
				next[key.collection] = min(next[key.collection], at)
				if at <= now {
					want = append(want, key.id)
				}
			}
			var got []string
			due := s.due(now)
			for _, d := range due {
				got = append(got, d.key.id)
			}
			if !slices.IsSortedFunc(due, func(a, b *dueDoc) int { return cmp.Compare(a.expiry.At, b.expiry.At) }) {
				t.Fatalf("due at %d, out of order: %v", now, got)
			}
			slices.Sort(want)
			slices.Sort(got)
			if !slices.Equal(got, want) || s.len() != len(left) || s.next() != min(next["a"], next["b"]) || s.nextOf("a") != next["a"] || s.nextOf("b") != next["b"] {
				t.Fatalf("due at %d: %v, want %v; next %d, of a %d, of b %d, want %v", now, got, want, s.next(), s.nextOf("a"), s.nextOf("b"), next)
			}
			if len(all) > 0 {
				key := rapid.SampledFrom(all).Draw(t, "gone").key
				if _, there := left[key]; s.has(key) != there {
					t.Fatalf("%v is there: %v, want %v", key, s.has(key), there)
				}
				delete(left, key)
				s.remove(key)
			}
		}
	})
}

// TestG3_WrongGuess: a batch is applied on the guess that the documents that it writes
// are new, and one is not. With it documents fall due, and their events are published
// before the guess is found to be wrong: they are not published again, to whoever
// listens without the stream either, and the documents go.
//
// Goes red if the step that is refused leaves a trace in what the partition knows: how
// far it is, what is due, what was said.
func TestG3_WrongGuess(t *testing.T) {
	t.Parallel()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			r := newRigOn(t, b, Options{Partitions: 1})
			var mu sync.Mutex
			heard := map[string]int{}
			if _, err := r.nc.Subscribe("lapse.expired.>", func(m *nats.Msg) {
				mu.Lock()
				defer mu.Unlock()
				heard[m.Subject]++
			}); err != nil {
				t.Fatal(err)
			}
			var armed atomic.Bool
			held, release := make(chan struct{}), make(chan struct{})
			p := r.start(func(here point) error {
				if here == beforeCommit && armed.CompareAndSwap(true, false) {
					close(held)
					<-release
				}
				return nil
			})
			p.ready(t)
			r.config("c", `{"defaultTtl":-1}`)
			r.put("c", "there", `{"n":1}`)
			const many = 20
			last := wire.Time(0)
			for i := range many { // enough for the next to be guessed to be new, too
				last = r.put("c", fmt.Sprint(i), `{"ttl":1}`).Ts
			}
			armed.Store(true)
			r.sendAsync(prefix.Write(wire.Upsert, "c", "new"), `{}`)
			r.flush()
			<-held
			eventually(t, "all that expires is due", func() bool { return time.Now().UnixMilli() > int64(last)+1000 })
			for i := range 3 {
				r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint("new", i)), `{}`)
			}
			r.sendAsync(prefix.Write(wire.Upsert, "c", "there"), `{"n":2}`)
			r.flush()
			close(release)
			r.waitEvents("c", many)
			r.caughtUp(p)
			if fresh := p.partitions[0].fresh; fresh >= guessAfter {
				t.Errorf("the guess was not found to be wrong: %d", fresh)
			}
			r.agrees()
			if err := r.nc.Flush(); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for subject, n := range heard {
				if n != 1 {
					t.Errorf("%s was published %d times", subject, n)
				}
			}
			p.stop(t)
		})
	}
}

// TestG2_ReadersAreNotBehindEvents: no document is read after its event was published,
// even if the clock of Redis is an hour behind that of NATS: then readers go by the log
// time, which has to be committed first. So it is with what is reaped, and with what a
// write finds expired: that comes first, or behind another write.
//
// Goes red if who publishes an event does not ask how late it is for readers.
func TestG2_ReadersAreNotBehindEvents(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string]time.Duration{"an hour": time.Hour, "some": 300 * time.Millisecond, "nothing": 0} {
		for _, met := range []string{"reaped", "met", "met later"} {
			t.Run(name+"/"+met, func(t *testing.T) {
				t.Parallel()
				mr := miniredis.RunT(t)
				slow := backend{"miniredis", func(*testing.T) dialer {
					return func(ctx context.Context) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, "tcp", mr.Addr())
					}
				}}
				r := newRigOn(t, slow, Options{Partitions: 1})
				if behind > 0 {
					mr.SetTime(time.Now().Add(-behind)) // where it stands still
				}
				var seen atomic.Int32
				reader := r.newReader()
				look := func(here point) error {
					if here == afterPublish {
						page, err := reader.List(context.Background(), "c", sink.ListOptions{})
						if err != nil || len(page.Documents) != 0 {
							t.Errorf("after the event was published, %d documents are read (%v)", len(page.Documents), err)
						}
						seen.Add(1)
					}
					return nil
				}
				p := r.start(look)
				p.ready(t)
				r.config("c", `{"defaultTtl":1}`)
				first := r.put("c", "a", `{}`)
				if met != "reaped" {
					p.stop(t)
					eventually(t, "it is expired", func() bool { return time.Now().UnixMilli() >= int64(*first.ExpiresAt) })
					if met == "met later" {
						r.send(prefix.Write(wire.Upsert, "other", "b"), `{}`)
					}
					r.send(prefix.Write(wire.Delete, "c", "a"), ``)
					p = r.start(look)
				}
				r.waitEvents("c", 1)
				r.caughtUp(p)
				if seen.Load() == 0 {
					t.Error("nothing was looked at")
				}
				r.agrees()
				p.stop(t)
			})
		}
	}
}

// TestTickerWakes: a partition is woken by the first message at or after the instant that
// it waits for, whatever message that is, and only then.
func TestTickerWakes(t *testing.T) {
	woken := []int{}
	tk := newTicker(nil, nil, "", 3, func() bool { return false }, nil)
	tk.wake = func(i int) { woken = append(woken, i) }
	tk.want(0, 100)
	tk.want(1, 200)
	for _, step := range []struct {
		now  int64
		want []int
	}{{99, nil}, {100, []int{0}}, {150, nil}, {200, []int{1}}, {math.MaxInt64 - 1, nil}} {
		woken = nil
		if tk.passed(step.now); !slices.Equal(woken, step.want) {
			t.Errorf("at %d were woken %v, want %v", step.now, woken, step.want)
		}
	}
}

// TestTickerNext: a tick is needed when what is waited for has come by the log's clock,
// unless messages come, or one is on its way.
func TestTickerNext(t *testing.T) {
	tk := newTicker(nil, nil, "", 1, func() bool { return false }, nil)
	if _, needed := tk.next(); needed {
		t.Error("a tick is needed for nothing")
	}
	tk.stamped(false, time.Now().Add(time.Minute)) // the log is a minute ahead
	tk.want(0, time.Now().Add(time.Hour).UnixMilli())
	if pause, needed := tk.next(); !needed || pause < 58*time.Minute || pause > 59*time.Minute {
		t.Errorf("an instant that is 59 minutes off by the log's clock: %s, %v", pause, needed)
	}
	tk.want(0, time.Now().Add(time.Second).UnixMilli())
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

// TestGuesses: only of writes that say the same of any document that is not there.
func TestGuesses(t *testing.T) {
	m := func(op wire.Op, id string) *message { return &message{kind: write, op: op, collection: "c", id: id} }
	conditional := m(wire.Upsert, "a")
	conditional.ifMatch.set = true
	p := &partition{fresh: guessAfter}
	p.soon.set([]*dueDoc{{key: docKey{"c", "due"}}})
	for _, tt := range []struct {
		messages []*message
		want     bool
	}{
		{nil, false},
		{[]*message{m(wire.Upsert, "a"), m(wire.Create, "b"), {kind: malformed}}, true},
		{[]*message{m(wire.Upsert, "a"), m(wire.Upsert, "due")}, false},
		{[]*message{m(wire.Upsert, "a"), conditional}, false},
		{[]*message{m(wire.Upsert, "a"), m(wire.Replace, "b")}, false},
		{[]*message{m(wire.Patch, "a")}, false}, {[]*message{m(wire.Touch, "a")}, false}, {[]*message{m(wire.Delete, "a")}, false},
	} {
		if got := p.guesses(tt.messages); got != tt.want {
			var ops []string
			for _, m := range tt.messages {
				ops = append(ops, string(m.op)+" "+m.id)
			}
			t.Errorf("%s: %v, want %v", strings.Join(ops, ", "), got, tt.want)
		}
	}
	if p.fresh--; p.guesses([]*message{m(wire.Upsert, "a")}) {
		t.Error("guessed too early")
	}
}

// TestG3_TimeAtWhatMayHaveBeenSaid: a former owner knew the log time of all of the log, so
// what was due by the messages of other partitions may have been said too. The log time
// at the end of what it can have read is not known here, where one's own message came
// first after it: it is taken for later, never for earlier.
//
// Goes red if the time is that of the partition's own messages up to there.
func TestG3_TimeAtWhatMayHaveBeenSaid(t *testing.T) {
	const upTo = 10
	for _, tt := range []struct {
		name     string
		messages []*message
		to       mark
		want     int64
		here     mark
	}{
		{"nothing is beyond", []*message{{seq: 9, at: 900}}, mark{10, 950}, math.MaxInt64, mark{10, 950}},
		{"a message of others is", nil, mark{12, 1200}, 1200, mark{12, 1200}},
		{"so is one's own", []*message{{seq: 9, at: 900}, {seq: 12, at: 1200}, {seq: 14, at: 1400}}, mark{15, 1500}, 1200, mark{15, 1500}},
		{"and more has come than is applied", []*message{{seq: 12, at: 1200}}, mark{}, 1200, mark{12, 1200}},
	} {
		p := &partition{offset: 8, watermark: 800, pending: tt.messages}
		p.said = newSaid(Checkpoint{}, upTo)
		if here := p.reach(tt.messages, tt.to); here != tt.here || p.said.time != tt.want {
			t.Errorf("%s: applied up to %v, may have been said up to %d; want %v, %d", tt.name, here, p.said.time, tt.here, tt.want)
		}
	}
	p := &partition{offset: 8, watermark: 800, pending: []*message{{seq: 9, at: 900}, {seq: 11, at: 1100}}}
	if here := p.reach(p.pending[:1], mark{12, 1200}); here != (mark{9, 900}) {
		t.Errorf("with a message left, the log is applied up to %v", here)
	}
}
