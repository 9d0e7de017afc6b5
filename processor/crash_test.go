package processor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
)

// points are those that every history passes, and drainPoints those that it passes only while
// documents are due in collections that are dropped.
var points = []crash.Point{
	crash.AfterTake, crash.AfterRead, crash.AfterFind, crash.BeforeFence, crash.AfterFence, crash.BeforePublish,
	crash.AfterPublish, crash.BeforeCommit, crash.AfterCommit,
	crash.AfterControl, crash.BeforeCheckpoint, crash.AfterCheckpoint,
}

var drainPoints = []crash.Point{crash.AfterDrain, crash.BeforeFinish, crash.AfterFinish}

// takeoverPoints are those of a takeover.
var takeoverPoints = []crash.Point{crash.AfterTake, crash.BeforeFence, crash.AfterFence}

// TestG1_G3_CrashAtEveryPoint lets processes die, stop or fail a step at every named
// point, over and over, during a random history, and compares all events and all documents
// with the model at the end. It fails if a commit separates the offset from the effects, if
// outputs are published after the commit, if an owner does not look up outputs that may
// have been published, or if a checkpoint is ahead of the publications.
func TestG1_G3_CrashAtEveryPoint(t *testing.T) {
	t.Parallel()
	type fate struct {
		name string
		err  error
		nth  int
	}
	for i, at := range points {
		fates := []fate{{"dies at once", errDead, 1}, {"dies later", errDead, 3}, {"stops", errStop, 2},
			{"fails", errFail, 3}}
		for n, how := range append(fates[:1:1], fates[1+i%3]) {
			if !chosen(i, n) {
				continue
			}
			if slices.Contains(takeoverPoints, at) {
				how.nth = 1 // a process takes over once
			}
			t.Run(fmt.Sprintf("%s/%s", at, how.name), func(t *testing.T) {
				t.Parallel()
				r := newRigOn(t, backends[(i+n)%2], Options{})
				s := &survivor{r: r, at: at, nth: how.nth, err: how.err, times: 4}
				s.history(uint64(i), 6)
				r.agrees()
				s.wasHit()
			})
		}
	}
}

// chosen reports whether a process suffers its n-th fate at the i-th point. In make test it suffers one of
// two at each point, which are half of the cases, on both backends; in make check, both.
func chosen(i, n int) bool { return !quick || n == i/2%2 }

// quick is whether these are the tests of make test. The simulation, which runs beside them, has many more
// crashes and losses; make check runs every case here.
var quick = os.Getenv("LAPSE_QUICK") != ""

// TestG3_OutagesBeyondTheDuplicateWindow: the same, with the shortest window in which the
// stream recognises a duplicate, and processes that are away for longer. It fails if only
// the stream keeps an event from being published twice.
func TestG3_OutagesBeyondTheDuplicateWindow(t *testing.T) {
	t.Parallel()
	window := 100 * time.Millisecond
	for i, at := range []crash.Point{crash.AfterPublish, crash.BeforeCommit, crash.AfterCommit} {
		for _, nth := range []int{1, 4} {
			t.Run(fmt.Sprintf("%s/%d", at, nth), func(t *testing.T) {
				t.Parallel()
				r := newRigOn(t, backends[(i+nth)%2], Options{DuplicateWindow: &window})
				s := &survivor{r: r, at: at, nth: nth, err: errDead, times: 4, away: 400 * time.Millisecond}
				s.history(uint64(i), 8)
				r.agrees()
			})
		}
	}
}

// TestG3_HeldUpOnTheWayToTheStream: an owner pauses right before its publication, for
// longer than the stream recognises a duplicate. Meanwhile another owner publishes the
// same event. It fails if a publication does not name the fence, or a new owner stores
// none.
func TestG3_HeldUpOnTheWayToTheStream(t *testing.T) {
	t.Parallel()
	window := 100 * time.Millisecond
	for i, before := range []string{"never fenced", "fenced", "on replicas"} {
		t.Run(before, func(t *testing.T) {
			t.Parallel()
			opts := Options{DuplicateWindow: &window}
			if before == "on replicas" {
				opts.Replicas = 3
			}
			r := newRigOn(t, backends[i%2], opts)
			if before == "fenced" { // as an owner is that did not begin the log
				first := r.start(nil)
				first.ready(t)
				first.stop(t)
			}
			held, release := make(chan struct{}), make(chan struct{})
			stale := r.startOn(r.connect(r.url), r.redis, once(crash.BeforePublish, 1, func() error {
				close(held)
				<-release
				return nil
			}))
			stale.ready(t)
			r.send(prefix.Config("c"), `{"defaultTtl":-1}`)
			r.send(prefix.Write(wire.Upsert, "c", "x"), `{"ttl":1}`)
			<-held
			owner := r.startOn(r.connect(r.url), r.redis, nil)
			published := r.waitEvents("c", 1)[0]
			eventually(t, "the stream has forgotten it", func() bool { return time.Since(published.stored.at) > 10*window })
			close(release)
			r.put("c", "y", `{"ttl":1}`)
			r.waitEvents("c", 2)
			stale.stop(t) // else the two take the shard from each other
			r.caughtUp(owner)
			r.agrees()
			owner.stop(t)
			r.agrees()
		})
	}
}

// TestG3_PublishedJustBeforeTheFence: a former owner publishes an event after the new owner
// has looked it up, and before the new owner has stored its fence. The new owner does not
// publish it again, although the stream no longer recognises the duplicate. It fails if
// the look-up is not repeated behind the fence.
func TestG3_PublishedJustBeforeTheFence(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprint(replicas, " replicas"),
			func(t *testing.T) { t.Parallel(); publishedJustBeforeTheFence(t, replicas) })
	}
}

func publishedJustBeforeTheFence(t *testing.T, replicas int) {
	window := 100 * time.Millisecond
	r := newRigOn(t, backends[1], Options{Replicas: replicas, DuplicateWindow: &window})
	hold := func(at crash.Point) (held, release chan struct{}, fault func(crash.Point) error) {
		held, release = make(chan struct{}), make(chan struct{})
		return held, release, once(at, 1, func() error {
			close(held)
			<-release
			return nil
		})
	}
	held, release, fault := hold(crash.BeforePublish)
	former := r.startOn(r.connect(r.url), r.redis, func(here crash.Point) error {
		if here == crash.AfterPublish {
			return errDead
		}
		return fault(here)
	})
	former.ready(t)
	r.send(prefix.Config("c"), `{"defaultTtl":-1}`)
	r.send(prefix.Write(wire.Upsert, "c", "x"), `{"ttl":1}`)
	<-held
	looked, fence, fault2 := hold(crash.BeforeFence)
	owner := r.startOn(r.connect(r.url), r.redis, fault2)
	<-looked
	close(release)
	published := r.waitEvents("c", 1)[0]
	<-former.done
	eventually(t, "the stream has forgotten it", func() bool { return time.Since(published.stored.at) > 10*window })
	close(fence)
	r.put("c", "y", `{"ttl":1}`)
	r.waitEvents("c", 2)
	r.caughtUp(owner)
	r.agrees()
	owner.stop(t)
}

// TestG1_TwoOwners: two processors on the same shards, all the time. It fails if
// a step does not check the fence.
func TestG1_TwoOwners(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		other := r.startOn(r.connect(r.url), r.redis, nil)
		s := &survivor{r: r}
		s.history(77, 12)
		r.agrees()
		other.stop(t)
		r.agrees()
	})
}

// TestG3_ACheckpointCoversWhatIsPublished: a configuration has expired more documents than
// one step reaps, and the processor is stopped. The next one publishes the remaining
// events. It fails if the checkpoint is judged by the configuration before.
func TestG3_ACheckpointCoversWhatIsPublished(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const n = 2000
		p := r.start(once(crash.AfterControl, 3, func() error { return errStop }))
		p.ready(t)
		r.config("c", `{"defaultTtl":-1}`)
		for i := range n - 1 {
			r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint(i)), `{}`)
		}
		last := r.put("c", "last", `{}`)
		eventually(t, "a second passes", func() bool { return time.Now().UnixMilli() >= int64(last.Ts)+1000 })
		seq := r.send(prefix.Config("c"), `{"defaultTtl":1}`)
		<-p.done
		r.run()
		for _, e := range r.waitEvents("c", n) {
			if e.TTL != 1 {
				t.Fatalf("after the configuration %d: %+v", seq, e)
			}
		}
	})
}

// TestSeveralStartAtOnce: processes that start on an empty Redis at the same time, without
// leases, take shards from each other. None of them ends, and the last one goes on. It
// fails if one takes a state that another has just made for a foreign one.
func TestSeveralStartAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		p := r.start(nil)
		p.ready(t)
		p.stop(t)
		for range 5 {
			if err := r.redis.FlushAll(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
			const processes = 4
			var all []*process
			var took [processes]atomic.Int64 // how often each has taken a shard
			for i := range processes {
				all = append(all, r.start(func(here crash.Point) error {
					if here == crash.AfterTake {
						took[i].Add(1)
					}
					return nil
				}))
			}
			comes(t, "each has taken a shard", func() error {
				var missing, all int64
				for i := range took {
					n := took[i].Load()
					all += n
					if n == 0 {
						missing++
					}
				}
				if missing == 0 {
					return nil
				}
				return fmt.Errorf("%d processes have taken none, the others %d", missing, all)
			})
			for _, p := range all[1:] {
				p.stop(t)
			}
			all[0].ready(t)
			all[0].stop(t)
		}
	})
}

// TestG3_AFencedOwnerPublishesNothing: an owner that has lost its shard, and does not
// know it yet, publishes nothing, not even a rejection, for which it reads nothing from
// Redis. It fails if outputs that follow from a message alone are published without
// verifying: where the stream of events is replicated, nothing else refuses them.
func TestG3_AFencedOwnerPublishesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		stored := store.New(r.redis, prefix, 0, 1)
		p := r.start(func(here crash.Point) error {
			if here != crash.BeforePublish {
				return nil
			}
			state, err := stored.Load(context.Background())
			if err != nil || state.Version == "another's" {
				t.Errorf("something is published by an owner that is fenced off (%v)", err)
			}
			return nil
		})
		p.ready(t)
		for _, bad := range []string{"lapse.write.upsert.c", "lapse.config.c"} {
			eventually(t, "another takes the shard", func() bool {
				state, err := stored.Load(t.Context())
				if err == nil {
					err = stored.Take(t.Context(), state, "another's", 0)
				}
				if err != nil && !errors.Is(err, store.ErrFenced) { // the owner has committed in between
					t.Fatal(err)
				}
				return err == nil
			})
			r.must(400, bad, `[]`)
		}
		p.stop(t)
	})
}

// survivor runs a processor that is hit by a fault when it passes a point for the
// nth time, and is started again, and hit again.
type survivor struct {
	r     *rig
	at    crash.Point
	nth   int
	err   error
	times int           // how often it is hit
	away  time.Duration // before it is started again
	asks  bool          // for snapshots, all the time
	wipes bool          // Redis, before it is started again

	nc     *nats.Conn    // the rig's if nil
	client *redis.Client // likewise
	p      *process
	died   time.Time
	hit    atomic.Bool // it was, at least once
}

// wasHit fails the test if the processor has never passed the point so often.
func (s *survivor) wasHit() {
	s.r.t.Helper()
	if !s.hit.Load() {
		s.r.t.Errorf("no fault has happened %s", s.at)
	}
}

// misses reports whether a fault is still to happen.
func (s *survivor) misses() bool { return s.err != nil && !s.hit.Load() }

// alive reports whether a processor runs, and starts one if it is time.
func (s *survivor) alive() bool {
	s.r.t.Helper()
	if s.p != nil {
		select {
		case <-s.p.done:
		default:
			if s.asks {
				s.r.askSnapshot()
			}
			return true
		}
		if s.p.err != nil && !errors.Is(s.p.err, errDead) && !errors.Is(s.p.err, errFail) {
			s.r.t.Fatalf("run: %v", s.p.err)
		}
		if s.died.IsZero() {
			s.died = time.Now()
		}
		if time.Since(s.died) < s.away {
			return false
		}
	}
	if s.wipes && !s.died.IsZero() {
		s.wipe()
	}
	s.died = time.Time{}
	nc, client := s.r.nc, s.r.redis
	if s.nc != nil {
		nc = s.nc
	}
	if s.client != nil {
		client = s.client
	}
	s.p = s.r.startOn(nc, client, s.fault())
	return true
}

// wipe removes everything from Redis.
func (s *survivor) wipe() {
	s.r.t.Helper()
	if err := s.r.redis.FlushAll(context.Background()).Err(); err != nil {
		s.r.t.Fatal(err)
	}
}

// fault is what hits the next processor.
func (s *survivor) fault() func(crash.Point) error {
	if s.times == 0 {
		return nil
	}
	s.times--
	var mu sync.Mutex
	passed, dead := 0, false
	return func(here crash.Point) error {
		mu.Lock()
		defer mu.Unlock()
		if dead {
			return errDead
		}
		if here != s.at {
			return nil
		}
		passed++
		switch {
		case passed%s.nth != 0:
			return nil
		case errors.Is(s.err, errDead):
			dead = true
		case errors.Is(s.err, errStop):
		case passed > s.nth*10: // fails often, not for ever
			return nil
		}
		s.hit.Store(true)
		return s.err
	}
}

// history lets a random history happen, and waits until all that follows from it
// has come about.
func (s *survivor) history(seed uint64, rounds int) {
	s.r.t.Helper()
	s.happens(seed, rounds)
	s.settles()
}

// happens lets a random history happen. On a busy machine the processor passes fewer points in a round: there are more
// rounds then, until a fault has happened.
func (s *survivor) happens(seed uint64, rounds int) {
	r := s.r
	r.t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	eventually(r.t, "the streams are there", func() bool {
		_, err := r.js.Stream(context.Background(), prefix.EventsStream())
		return s.alive() && err == nil
	})
	r.sendAsync(prefix.Config("a"), `{"defaultTtl":1,"changes":true}`)
	// The rounds are a quarter of a second apart, so that each meets the deadlines
	// of the one a second before.
	next := time.Now()
	for n := 0; n < rounds || s.misses() && n < 8*rounds; n++ {
		for range 60 {
			subject, body, header := randomMessage(rng)
			r.sendMsgAsync(&nats.Msg{Subject: subject, Data: []byte(body), Header: header})
		}
		next = next.Add(250 * time.Millisecond)
		eventually(r.t, "the next round begins", func() bool { s.alive(); return time.Now().After(next) })
	}
	r.sendAsync(prefix.Config("a"), `{"defaultTtl":-1}`)
	r.sendAsync(prefix.Config("b"), `{}`)
	r.flush()
}

// settles waits until nothing will happen any more.
func (s *survivor) settles() {
	r := s.r
	r.t.Helper()
	last := int64(0)
	m, _ := r.model()
	for _, d := range m.Live(m.LogTime()) {
		if d.ExpiresAt != nil {
			last = max(last, int64(*d.ExpiresAt))
		}
	}
	eventually(r.t, "all deadlines have passed", func() bool { s.alive(); return time.Now().UnixMilli() > last })
	// First the whole log is applied: a document that is not stored yet is not counted as expired either.
	caughtUp := func() { r.eachCaughtUp(func() *process { s.alive(); return s.p }) }
	caughtUp()
	eventually(r.t, "all that is due is reaped", func() bool {
		s.alive()
		for _, name := range m.Collections() {
			if c, err := r.reader.Count(context.Background(), name); err != nil || c.Expired != 0 {
				return false
			}
		}
		return true
	})
	caughtUp()
}

// randomMessage is a message of a history: mostly writes to few documents, some with
// a short TTL of their own, some conditional, some wrong; a few configurations.
func randomMessage(rng *rand.Rand) (subject, body string, header nats.Header) {
	collection := []string{"a", "a", "b"}[rng.IntN(3)]
	n := rng.IntN(1000)
	if n < 30 {
		configs := []string{`{"defaultTtl":1}`, `{"defaultTtl":2,"warnBefore":[1],"changes":true}`,
			`{"defaultTtl":-1,"warnBefore":[1,2]}`, `{}`, `{"defaultTtl":2,"changes":true}`, `{"defaultTtl":1,"paused":true}`}
		if collection == "b" {
			configs = []string{`{"indexingMode":"none"}`, `{"changes":true}`, `{"defaultTtl":1}`, `{"defaultTtl":-1}`,
				`{"defaultTtl":1,"paused":true}`, `{"indexingMode":"none"}`}
		}
		return prefix.Config(collection), configs[rng.IntN(len(configs))], nil
	}
	if n < 34 {
		return prefix.Drop(collection), "", nil
	}
	op := []wire.Op{wire.Upsert, wire.Upsert, wire.Upsert, wire.Create, wire.Replace, wire.Patch, wire.Touch,
		wire.Delete}[rng.IntN(8)]
	if n < 60 {
		op = "frob"
	}
	if op.HasBody() {
		body = fmt.Sprintf(`{"n":%d`, n)
		switch rng.IntN(6) {
		case 0, 1:
			body += fmt.Sprintf(`,"ttl":%d`, 1+rng.IntN(2))
		case 2:
			body += `,"ttl":-1`
		case 3:
			if op == wire.Patch {
				body += `,"ttl":null`
			}
		}
		body += `}`
	}
	if n > 980 && op.HasBody() {
		body = `{"n":`
	}
	if n > 900 && n < 950 {
		header = nats.Header{wire.HeaderIfMatch: {[]string{"*", "7"}[rng.IntN(2)]}}
	}
	if n > 500 && n < 700 && op.HasBody() { // a patch with a target is refused
		header = nats.Header{wire.HeaderTarget: {[]string{"mail", "mail.send", "a.b.c"}[n%3]}}
	}
	return prefix.Write(op, collection, fmt.Sprint("d", rng.IntN(25))), body, header
}
