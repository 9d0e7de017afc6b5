package processor

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/processor/internal/shard"

	"github.com/seed18712806/lapse/sink/wire"
)

// generationKeys are the keys of old generations.
func (r *rig) generationKeys() []string {
	r.t.Helper()
	return keysOf(r.t, r, "*:docs:*.*")
}

// generationConfigs are the configurations of old generations that are stored.
func (r *rig) generationConfigs() (names []string) {
	r.t.Helper()
	for _, key := range keysOf(r.t, r, "*:config") {
		fields, err := r.redis.HKeys(context.Background(), key).Result()
		if err != nil {
			r.t.Fatal(err)
		}
		names = append(names, slices.DeleteFunc(fields, func(name string) bool { return !strings.Contains(name, ".") })...)
	}
	return names
}

// backlog writes n documents that inherit, and waits until they are older than a
// second: a default of a second expires all of them at the instant at which it is set.
func (r *rig) backlog(collection string, n int, body string) {
	r.t.Helper()
	for i := range n - 1 {
		r.sendAsync(prefix.Write(wire.Upsert, collection, fmt.Sprint(i)), body)
		if i%1000 == 0 {
			r.flush()
		}
	}
	r.flush()
	last := r.put(collection, "last", body)
	eventually(r.t, "a second passes", func() bool { return time.Now().UnixMilli() > int64(last.Ts)+1000 })
}

// lastSeq is the last sequence of the log.
func (r *rig) lastSeq() uint64 {
	r.t.Helper()
	log, err := r.js.Stream(context.Background(), prefix.LogStream())
	if err != nil {
		r.t.Fatal(err)
	}
	return log.CachedInfo().State.LastSeq
}

// reads waits until a processor has read the log up to a sequence.
func (p *process) reads(t *testing.T, seq uint64) {
	end := time.After(limit)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for p.current().queue.ReadUpTo().Seq < seq {
		select {
		case <-tick.C:
		case <-t.Context().Done(): // the test has ended
			return
		case <-end:
			t.Errorf("the log is not read up to %d", seq)
			return
		}
	}
}

// outcome sends a message, and returns where its outcome will come.
func (r *rig) outcome(subject, body string, headers ...string) *nats.Subscription {
	r.t.Helper()
	sub, err := r.nc.SubscribeSync(r.nc.NewInbox())
	if err != nil {
		r.t.Fatal(err)
	}
	r.send(subject, body, append(headers, wire.HeaderReplyTo, sub.Subject)...)
	return sub
}

// comesTo waits for an outcome, which has to have a status.
func (r *rig) comesTo(what string, sub *nats.Subscription, status int) {
	r.t.Helper()
	reply, err := sub.NextMsg(limit)
	if err != nil {
		r.t.Fatalf("outcome of %s: %v", what, err)
	}
	var o wire.Outcome
	if err := json.Unmarshal(reply.Data, &o); err != nil || o.Status != status {
		r.t.Fatalf("outcome of %s: %s, want %d", what, reply.Data, status)
	}
}

// TestG9_DrainingHoldsUpNothing: many documents are due in a collection that is dropped,
// whose indexing mode becomes none, whose default changes for the 65th time since a document was
// due, or in which a document that is older than a former default allowed begins to inherit with the clock that it has.
// The message is applied at once, and so are later messages of its shard. The due
// documents are reaped later, and each gets its event.
//
// Goes red if the message, or one of another collection, waits until all are reaped.
func TestG9_DrainingHoldsUpNothing(t *testing.T) {
	t.Parallel()
	const keeps = "a patch that takes the ttl away, and keeps the clock"
	for what, messages := range map[string][]string{
		"drop": {`{"defaultTtl":1}`, ""},
		"none": {`{"defaultTtl":1}`, `{}`, `{"indexingMode":"none"}`},
		"kept": {`{"defaultTtl":1}`, `{"defaultTtl":3600}`, keeps},
		"defaults": append(slices.Repeat([]string{`{"defaultTtl":1}`, `{"defaultTtl":2}`}, fold.MaxEpochs/2+1),
			`{"defaultTtl":3600}`),
	} {
		for _, b := range backends {
			t.Run(what+"/"+b.name, func(t *testing.T) {
				t.Parallel()
				// The reaper may take some chunks, which are small beside reads, and then waits for the outcomes.
				chunks := len(messages) + 10
				many := (chunks+2)*shard.ReapChunk + shard.ReapChunk
				r := newRigOn(t, b, Options{})
				r.store = func(s Store) Store { return reading{s, &atomic.Int64{}} }
				before := r.start(nil)
				before.ready(t)
				r.config("c", `{"defaultTtl":-1}`)
				old := r.put("c", "kept", `{"ttl":-1}`)
				r.backlog("c", many, `{}`)
				r.caughtUp(before)
				before.stop(t)
				eventually(t, "it is older than a second", func() bool { return time.Now().UnixMilli() > int64(old.Ts)+2000 })
				var answers []*nats.Subscription
				for _, body := range messages {
					subject := prefix.Config("c")
					switch body {
					case "":
						subject = prefix.Drop("c")
					case keeps:
						answers = append(answers, r.outcome(prefix.Write(wire.Patch, "c", "kept"), `{"ttl":null}`, wire.HeaderClock,
							wire.ClockKeep))
						continue
					}
					answers = append(answers, r.outcome(subject, body))
				}
				write := r.outcome(prefix.Write(wire.Create, "other", "x"), `{}`)
				var found atomic.Int64
				release := make(chan struct{})
				started, all := make(chan struct{}), r.lastSeq()
				var p *process
				p = r.start(func(here crash.Point) error {
					if here != crash.AfterFind {
						return nil
					}
					<-started
					p.reads(t, all) // before it reaps the first chunk
					if found.Add(1) == int64(chunks) {
						<-release
					}
					return nil
				})
				close(started)
				goOn := sync.OnceFunc(func() { close(release) })
				t.Cleanup(goOn)
				for i, answer := range answers {
					status := 200
					if messages[i] == "" {
						status = 204
					}
					r.comesTo(fmt.Sprintf("message %d, %s", i+1, messages[i]), answer, status)
				}
				r.comesTo("the write", write, 201)
				if len(r.events("c")) >= many {
					t.Error("all was reaped before")
				}
				goOn()
				first := wire.Time(0)
				for _, e := range r.waitEvents("c", many) {
					if first == 0 {
						first = e.ExpiredAt
					}
					if e.ExpiredAt != first || e.TTL != 1 {
						t.Fatalf("%s expired at %s by %d, want %s by 1, when the first default came", e.ID, e.ExpiredAt, e.TTL, first)
					}
				}
				r.caughtUp(p)
				if r.body("c", "7") != "" {
					t.Error("an expired document is there")
				}
				eventually(t, "nothing is left of what drained", func() bool {
					return len(r.generationKeys()) == 0 && len(r.generationConfigs()) == 0
				})
				p.stop(t)
			})
		}
	}
}

// TestG4_WritesMeetOldGenerations: a write to a collection that was dropped finds an
// expired document of the old generation that is not reaped yet: the event of that comes
// first, whatever the result of the write. A document that was live at the drop is gone.
//
// Goes red if a write does not read the old generations, or finds a live document there.
func TestG4_WritesMeetOldGenerations(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		first := r.start(nil)
		first.ready(t)
		const many, live = 1500, 30
		r.config("c", `{"defaultTtl":-1}`)
		for i := range live {
			r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint("live", i)), `{"ttl":3600}`)
		}
		r.backlog("c", many, `{}`)
		r.caughtUp(first)
		first.stop(t)
		write := func(i int, id string) {
			op := []wire.Op{wire.Upsert, wire.Create, wire.Replace, wire.Patch, wire.Touch, wire.Delete, "frob"}[i%7]
			body := ""
			if op.HasBody() {
				body = fmt.Sprintf(`{"n":%d}`, i)
			}
			r.sendAsync(prefix.Write(op, "c", id), body)
		}
		for _, defaults := range []string{`{"defaultTtl":1}`, `{"defaultTtl":2}`} {
			r.send(prefix.Config("c"), defaults)
			r.send(prefix.Drop("c"), ``)
			r.send(prefix.Config("c"), `{"defaultTtl":-1}`)
			for i := range many / 2 { // the reaper begins with the lowest
				write(i, fmt.Sprint(many-2-i))
			}
			for i := range live {
				write(i, fmt.Sprint("live", i))
			}
		}
		r.flush()
		met := atomic.Int64{}
		started, all := make(chan struct{}), r.lastSeq()
		var p *process
		p = r.start(func(here crash.Point) error {
			<-started
			switch here {
			case crash.AfterFind:
				p.reads(t, all) // before it reaps anything
			case crash.AfterRead:
				if len(p.session.owner.Collections().Generations("c")) > 0 {
					met.Add(1)
				}
			}
			return nil
		})
		close(started)
		p.ready(t)
		r.caughtUp(p)
		if met.Load() == 0 {
			t.Error("no write met an old generation")
		}
		r.agrees()
		r.expiredBeforeRejected()
		p.stop(t)
	})
}

// TestSettlesUnderTraffic: a shard settles collections once a second, even if it is
// never idle.
//
// Goes red if only an idle shard settles.
func TestSettlesUnderTraffic(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		var p *process
		var part *shard.Owner
		// On a busy machine the shard may settle before it is stopped.
		for round := 0; part == nil || len(part.Collections().Config("c").History) < 2; round++ {
			if round == 20 {
				t.Fatal("everything was settled before, each time")
			}
			p = r.start(once(crash.AfterControl, 2, func() error { return errStop }))
			p.ready(t)
			r.config("c", `{"defaultTtl":3600}`)
			r.send(prefix.Config("c"), `{"defaultTtl":60}`)
			<-p.done
			part = p.session.owner // which nobody else has now
		}
		if worked, err := part.Tidy(t.Context(), time.Time{}); worked || err != nil {
			t.Errorf("too early: %v, %v", worked, err)
		}
		if worked, err := part.Tidy(t.Context(), time.Now().Add(2*shard.HeartbeatEvery)); !worked || err != nil {
			t.Errorf("nothing was settled: %v", err)
		}
		state, err := p.store.Load(t.Context())
		if err != nil || len(state.Configs["c"].History) != 1 || len(part.Collections().Config("c").History) != 1 {
			t.Errorf("settled is %v (%v)", state.Configs["c"], err)
		}
	})
}

// TestCountsWhatIsDueAfterModeNone: while the indexing mode is none, the documents are counted that had
// expired before and are not reaped, and no others.
func TestCountsWhatIsDueAfterModeNone(t *testing.T) {
	onBoth(t, func(t *testing.T, r *rig) {
		const many, first = 6000, 500 // more than a step reaps
		var drains, due atomic.Bool
		sent, held, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
		p := r.startWatched(func(p *shard.Owner, here crash.Point) error {
			if here == crash.AfterFind && due.Load() {
				<-sent // all, before anything is reaped
			}
			if here == crash.AfterFind && p.Collections().Config("c").NoIndex && drains.CompareAndSwap(false, true) {
				close(held)
				<-release
			}
			return nil
		})
		allSent, goOn := sync.OnceFunc(func() { close(sent) }), sync.OnceFunc(func() { close(release) })
		t.Cleanup(func() { allSent(); goOn() })
		p.ready(t)
		r.config("c", `{"defaultTtl":-1}`)
		r.backlog("c", many, `{}`)
		due.Store(true)
		for _, body := range []string{`{"defaultTtl":1}`, `{}`, `{"indexingMode":"none"}`} {
			r.sendAsync(prefix.Config("c"), body)
		}
		for i := range first {
			r.sendAsync(prefix.Write(wire.Upsert, "c", fmt.Sprint("new", i)), `{"ttl":1}`)
		}
		r.flush()
		allSent()
		select {
		case <-held:
		case <-time.After(limit):
			t.Fatal("no find while the mode is none")
		}
		published := len(r.events("c"))
		count, err := r.reader.Count(t.Context(), "c")
		if err != nil || count.Expired == 0 || count.Expired > int64(many-published)+shard.ReapChunk || count.Live > first {
			t.Errorf("while some are due, %d have an event, and the count is %+v, %v", published, count, err)
		}
		if c, err := r.reader.Config(t.Context(), "c"); err != nil || c.IndexingMode != wire.NoIndex {
			t.Errorf("configuration %+v, %v", c, err)
		}
		goOn()
		r.waitEvents("c", many)
		r.caughtUp(p)
		r.agrees()
		eventually(t, "its history is settled", func() bool {
			state, err := p.store.Load(t.Context())
			return err == nil && len(state.Configs["c"].History) <= 1
		})
		p.stop(t)
	})
}

// expiredBeforeRejected fails the test unless every document that had expired when a
// rejected write came has its event before the rejection.
func (r *rig) expiredBeforeRejected() {
	r.t.Helper()
	log := r.readStream(prefix.LogStream(), 1)
	type expiry struct{ at, etag, stored int64 }
	expired := map[string][]expiry{} // by the subject's end
	published := r.outputs()
	for _, s := range published {
		if rest, ok := strings.CutPrefix(s.subject, "lapse.expired."); ok {
			var e wire.Event
			if err := json.Unmarshal(s.data, &e); err != nil {
				r.t.Fatal(err)
			}
			expired[rest] = append(expired[rest], expiry{int64(e.ExpiredAt), int64(e.Etag), int64(s.seq)})
		}
	}
	for _, s := range published {
		rest, ok := strings.CutPrefix(s.subject, "lapse.rejected.")
		if !ok {
			continue
		}
		seq, err := strconv.ParseInt(s.header.Get(wire.HeaderSeq), 10, 64)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, e := range expired[rest] {
			if e.etag < seq && e.at <= log[seq-1].at.UnixMilli() && e.stored > int64(s.seq) {
				r.t.Errorf("the event of %s, version %d, comes after the rejection of %d", rest, e.etag, seq)
			}
		}
	}
}

// TestG1_G3_CrashWhileDraining lets processes die, stop or fail a step at every named
// point, over and over, under traffic, while many documents are due in collections that
// are dropped or get the indexing mode none, or whose default changes often. It uses the usual
// bounds, and bounds at which messages wait.
//
// Goes red if a due document is lost by a crash, or an event is published twice or out of
// order.
func TestG1_G3_CrashWhileDraining(t *testing.T) {
	t.Parallel()
	fates := []error{errDead, errStop, errFail}
	for i, at := range append(points[:len(points):len(points)], drainPoints...) {
		on, nth, drains := backends[i%2:][:1], 1+i%3, i >= len(points)
		if drains {
			on, nth = backends, 1
		}
		for n, b := range on {
			if quick && ((i/2+n)%2 == 1 || !drains && i%3 > 0) { // two points, and half of the drains
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", at, b.name), func(t *testing.T) {
				t.Parallel()
				r := newRigOn(t, b, Options{})
				if i%4 == 0 || at == crash.AfterDrain {
					bounds := shard.DefaultBounds
					bounds.Epochs, bounds.Generations = fold.MaxEpochs+2, 0
					r.bounds = &bounds
				}
				s := &survivor{r: r, at: at, nth: nth, err: fates[(i+n)%3], times: 5}
				s.draining(uint64(i))
				r.agrees()
				if drains {
					s.wasHit()
				}
			})
		}
	}
}

// draining lets a history happen in which many documents are due in collections that
// drain.
func (s *survivor) draining(seed uint64) {
	r := s.r
	r.t.Helper()
	many := 300
	if raceEnabled {
		many = 100
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	eventually(r.t, "the streams are there", func() bool {
		_, err := r.js.Stream(context.Background(), prefix.EventsStream())
		return s.alive() && err == nil
	})
	write := func(collection string) {
		op := []wire.Op{wire.Upsert, wire.Upsert, wire.Create, wire.Replace, wire.Patch, wire.Touch, wire.Delete}[rng.IntN(7)]
		body := ""
		if op.HasBody() {
			body = []string{`{"n":1}`, `{"n":2,"ttl":1}`, `{"ttl":-1}`}[rng.IntN(3)]
		}
		r.sendAsync(prefix.Write(op, collection, fmt.Sprint(rng.IntN(many))), body)
	}
	writes := func(collection string, n int) {
		for range rng.IntN(n + 1) {
			write(collection)
		}
	}
	config := func(collection string, bodies ...string) {
		for _, body := range bodies {
			r.sendAsync(prefix.Config(collection), body)
			writes(collection, 2)
		}
	}
	rounds := 2
	if raceEnabled {
		rounds = 1
	}
	// Whether a message has to wait for due documents depends on how fast they are reaped: a round may have none.
	for n := 0; n < rounds || s.misses() && n < 8*rounds; n++ {
		for _, c := range []string{"a", "b", "d"} {
			config(c, `{}`, `{"defaultTtl":-1}`)
			for i := range many {
				r.sendAsync(prefix.Write(wire.Upsert, c, fmt.Sprint(i)), []string{`{}`, `{"n":1}`, `{"ttl":3600}`}[i%3])
			}
		}
		r.flush()
		next := time.Now().Add(1100 * time.Millisecond)
		eventually(r.t, "a second passes", func() bool { s.alive(); return time.Now().After(next) })
		// Nothing comes in between, so that documents are still due.
		r.sendAsync(prefix.Config("a"), `{"defaultTtl":1}`)
		r.sendAsync(prefix.Drop("a"), ``)
		for _, body := range []string{`{"defaultTtl":1}`, `{}`, `{"indexingMode":"none"}`} {
			r.sendAsync(prefix.Config("b"), body)
		}
		for i := range fold.MaxEpochs + rng.IntN(10) {
			config("d", fmt.Sprintf(`{"defaultTtl":%d}`, 1+i%2))
		}
		r.sendAsync(prefix.Drop("a"), ``)
		writes("a", 40)
		writes("b", 40)
		for range 6 {
			switch rng.IntN(6) {
			case 0:
				config("b", `{"indexingMode":"consistent"}`)
			case 1:
				config("b", `{"indexingMode":"consistent"}`, `{"defaultTtl":1}`, `{}`, `{"indexingMode":"none"}`)
			case 2:
				r.sendAsync(prefix.Drop([]string{"a", "b", "d"}[rng.IntN(3)]), ``)
			case 3:
				config("a", `{"defaultTtl":1}`)
			case 4:
				config("b", `{"indexingMode":"none"}`)
			case 5:
				config("d", `{"defaultTtl":3600}`, `{"defaultTtl":1}`)
			}
			writes("a", 10)
			writes("b", 10)
			writes("d", 10)
		}
		r.flush()
	}
	config("a", `{}`)
	config("b", `{}`)
	config("d", `{}`)
	r.flush()
	s.settles()
}
