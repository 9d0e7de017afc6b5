package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// reaping is an owner that reaps without NATS, and what it has reaped.
type reaping struct {
	*Owner
	t      *rapid.T
	ahead  bool                       // it looks documents up ahead
	found  int                        // look-ups ahead that have found documents
	stored map[fold.Key]*store.Header // what Redis has
	ended  map[uint64]int             // how often each version was reaped, or found expired by a write
	order  map[string][]int64         // the scores that were reaped, of each index
}

func newReaping(t *rapid.T, redis redistest.Server, prefix wire.Prefix, ahead bool) *reaping {
	s := store.New(redis.Client, prefix, 0, 1)
	if err := s.Take(context.Background(), store.State{}, "x-0", 0); err != nil {
		t.Fatal(err)
	}
	p := New(Parts{Store: s, Status: NewStatus(health.New(slog.New(slog.DiscardHandler))), Shards: 1,
		Pace: NewPace(nil)})
	p.progress.Claim("x")
	p.progress.Resume(store.State{}, p.progress.Claimed(), 0)
	p.announcer.Begin(Checkpoint{}, 0, events.Place{})
	p.collections = fold.NewCollections(nil, nil)
	return &reaping{Owner: p, t: t, ahead: ahead, stored: map[fold.Key]*store.Header{}, ended: map[uint64]int{},
		order: map[string][]int64{}}
}

// commit commits changes at a log time.
func (r *reaping) commit(now int64, configs []store.ConfigChange, changes []store.CollectionChanges) {
	to := fold.Position{Seq: r.progress.Offset + 1, Time: now}
	pr := r.progress.Next(to, "")
	if err := r.Store.Commit(context.Background(), pr, configs, changes); err != nil {
		r.t.Fatal(err)
	}
	for _, c := range changes {
		r.collections.Committed(c, &r.due)
	}
	r.progress.Committed(pr)
	r.progress.Advance(to)
}

// step does what a step does, but for the publication: it reaps some of what is due beside writes. It reports whether
// anything was due.
func (r *reaping) step(now int64, writes map[fold.Key]*store.Header) bool {
	ctx := context.Background()
	if err := r.lookUp(ctx, r.progress.Offset, now, ReapChunk, reapBytes); err != nil {
		r.t.Fatal(err)
	}
	due := slices.DeleteFunc(r.due.Due(now), func(d *fold.DueDocument) bool { return writes[d.Key] != nil })
	if r.ahead {
		before := r.due.Len()
		if err := r.lookAhead(ctx, &work{due: due, to: fold.Position{Seq: r.progress.Offset + 1,
			Time: now}}); err != nil {
			r.t.Fatal(err)
		}
		if r.due.Len() > before {
			r.found++
		}
	}
	changes := fold.New(fold.Limits{}, r.collections, now).Changes(due)
	for _, d := range due {
		delete(r.stored, d.Key)
		if r.ended[d.Header.Etag]++; r.ended[d.Header.Etag] > 1 {
			r.t.Fatalf("looking ahead: %t: version %d is reaped again", r.ahead, d.Header.Etag)
		}
		score, in := d.Header.Clock().Score()
		index := fmt.Sprint(d.Key.Collection, in)
		r.order[index] = append(r.order[index], score)
	}
	for key, h := range writes {
		old := r.stored[key]
		if old != nil && r.expired(key, now) {
			r.ended[old.Etag]++ // the write finds it expired
		}
		r.stored[key] = h
		i := slices.IndexFunc(changes, func(c store.CollectionChanges) bool { return c.Collection == key.Collection })
		if i < 0 {
			i, changes = len(changes), append(changes, store.CollectionChanges{Collection: key.Collection})
		}
		changes[i].Changes = append(changes[i].Changes, store.Change{ID: key.ID, Old: old, New: h, Body: []byte("{}")})
	}
	r.commit(now, nil, changes)
	return len(due) > 0
}

func (r *reaping) expired(key fold.Key, now int64) bool {
	x, ok := r.collections.Config(key.Collection).History.ExpiredAt(r.stored[key].Clock())
	return ok && x.At <= now
}

// drop drops a collection, which is then made again.
func (r *reaping) drop(name string, seq uint64, now int64) {
	due := r.collections.MayBeDue(name, now, &r.due)
	r.forget()
	for key, h := range maps.Clone(r.stored) {
		if key.Collection != name {
			continue
		}
		if r.expired(key, now) {
			r.stored[fold.Key{Collection: fold.GenerationName(name, seq), ID: key.ID}] = h
		}
		delete(r.stored, key)
	}
	configs, changes := r.collections.Drop(name, seq, now, due)
	r.commit(now, configs, changes)
	r.configure(name, seq, now)
}

// configure gives a collection a default TTL of a second.
func (r *reaping) configure(name string, seq uint64, now int64) {
	config := store.Config{History: ttlrules.History{}.With(now, seq, 1)}
	r.commit(now, r.collections.Reconfigure(name, config, now), nil)
}

// TestG3_LookedUpAheadOrOneAtATime reaps random indexes: while documents are due, writes come to documents of the due
// queue and to new ones, of which some are due before what was found or at the same instant, and collections are
// dropped. An owner that looks documents up ahead reaps each version once, and the same ones as an owner that makes
// one look-up at a time; where nothing is written meanwhile, in the order of their deadlines.
//
// It fails if a look-up ahead finds a document of the queue again, or passes over one that is not there.
func TestG3_LookedUpAheadOrOneAtATime(t *testing.T) {
	redis := redistest.StartMini(t)
	tries, ahead := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		tries++
		draw := func(what string, least, most int) int { return rapid.IntRange(least, most).Draw(t, what) }
		collections := []string{"a", "b", "c"}[:draw("collections", 1, 3)]
		spread := []int{1, 3, 2000}[draw("spread", 0, 2)] // of the deadlines
		const begin = 1_000_000
		now, seq, quiet := int64(begin), uint64(len(collections)), draw("quiet", 0, 3) == 3
		header := func() *store.Header {
			seq++
			h := &store.Header{Ts: now, Etag: seq}
			switch draw("kind", 0, 2) {
			case 0:
				h.Kept = begin - int64(draw("kept", 0, spread)) // like those that are stored already
			case 1:
				h.Absolute = now + int64(draw("deadline", 0, spread)-spread/2)
			default:
				h.TTL = ttlrules.TTL(draw("ttl", 1, 2))
			}
			return h
		}
		first := map[fold.Key]*store.Header{}
		for _, c := range collections {
			for i := range 300 * draw("documents", 1, 4) {
				seq++
				h := &store.Header{Ts: now - int64(i*7919%spread), Etag: seq}
				if i%3 == 0 {
					h.TTL = ttlrules.TTL(1 + i%2)
				}
				first[fold.Key{Collection: c, ID: fmt.Sprint("m", i)}] = h
			}
		}
		both := [2]*reaping{}
		for i := range both {
			r := newReaping(t, redis, wire.Prefix(fmt.Sprintf("p%d-%d", tries, i)), i == 0)
			for j, c := range collections {
				r.configure(c, uint64(j+1), 1)
			}
			r.step(now, first)
			both[i] = r
		}
		now += 1000
		for range draw("steps", 4, 8) {
			now += int64(draw("passes", 0, 300))
			writes := map[fold.Key]*store.Header{}
			what := draw("what", 0, 5)
			if !quiet && what < 4 {
				for range draw("writes", 1, 4) {
					id := fmt.Sprint([]string{"m", "a", "z"}[draw("id", 0, 2)], draw("number", 0, 999))
					writes[fold.Key{Collection: collections[draw("in", 0, len(collections)-1)], ID: id}] = header()
				}
			}
			seq++
			for _, r := range both {
				if !quiet && what == 5 {
					r.drop(collections[0], seq, now)
				}
				r.step(now, writes)
			}
		}
		now += 10_000
		for _, r := range both {
			for r.step(now, nil) {
			}
			for key := range r.stored {
				if r.expired(key, now) {
					t.Fatalf("looking ahead: %t: %v is due, and is not found", r.ahead, key)
				}
			}
			for etag, n := range r.ended {
				if n != 1 {
					t.Fatalf("looking ahead: %t: version %d was reaped %d times", r.ahead, etag, n)
				}
			}
			for index, scores := range r.order {
				if quiet && !slices.IsSorted(scores) {
					t.Fatalf("looking ahead: %t: not in order: %s %v", r.ahead, index, scores)
				}
			}
		}
		if !maps.Equal(both[0].ended, both[1].ended) {
			t.Fatalf("looking ahead %d versions were reaped, and with one look-up at a time %d", len(both[0].ended),
				len(both[1].ended))
		}
		ahead += both[0].found
	})
	if ahead == 0 {
		t.Error("nothing was looked up ahead")
	}
	t.Logf("%d look-ups ahead in %d tries", ahead, tries)
}

// many writes documents that are due a second later, three steps full of them, and returns their ids.
func (r *rig) many() (ids []string) {
	r.t.Helper()
	for i := range 3 * ReapChunk {
		ids = append(ids, fmt.Sprintf("m%03d", i))
		r.write(start, ids[i], `{}`)
	}
	r.idle()
	return ids
}

// failing makes the owner fail at a point, once it has passed it so many times.
func (r *rig) failing(at crash.Point, after int) {
	r.at[at] = func() {
		if after--; after < 0 {
			delete(r.at, at)
			r.failAt = len(r.passed) // this point
		}
	}
}

// TestG3_AFailureWaitsForThePublicationBesideIt: the owner does not go on from a failed look-up or commit before the
// publication beside it has ended: that would run beside the takeover. Each document still has one event.
//
// It fails if the step returns while NATS is asked.
func TestG3_AFailureWaitsForThePublicationBesideIt(t *testing.T) {
	for name, tt := range map[string]struct {
		at        crash.Point
		after     int
		published int
	}{
		"the look-up": {"due", 1, ReapChunk + 1},    // a message comes beside
		"the commit":  {"commit", 0, 3 * ReapChunk}, // of the first step, while the second one is published
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.idle()
			ttlOf1(r)
			ids := r.many()
			r.passTime(start + 1000)
			r.handOut()
			r.failing(tt.at, tt.after)
			_, err := r.runOnce(t.Context())
			if n := value(t, r.Metrics.Emitted); !errors.Is(err, errFault) || n != float64(tt.published) {
				t.Errorf("it has ended with %v, and knows of %v events", err, n)
			}
			r.recover(err)
			r.idle()
			same(t, "events", r.expired(), ids)
			same(t, "documents", r.documents(), nil)
		})
	}
}

// TestG3_CommitsBesideThePublication: of many documents that are due, the first look-up alone is waited for. While the
// events of a step are published, the owner commits the step before, and looks up the next documents; and it commits no
// step that is not published. Meanwhile comes a write to a document of the due queue, a write that is due before what
// was found, a drop, or a failure of the look-up. Each document has one event.
func TestG3_CommitsBesideThePublication(t *testing.T) {
	for name, beside := range map[string]func(r *rig){
		"nothing":                            func(r *rig) {},
		"a write to a document of the queue": func(r *rig) { r.write(start+1000, "m300", `{"ttl":-1}`); r.handOut() },
		"a document that is due before": func(r *rig) {
			r.collections.Note(r.collections.Collection("c"), &store.Header{Ts: start - 1})
		},
		"a drop":                 func(r *rig) { r.send(start+1000, prefix.Drop("c"), ""); r.handOut() },
		"the look-up has failed": func(r *rig) { r.failing("due", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.Bounds.Reap = time.Hour
			r.idle()
			ttlOf1(r)
			ids := r.many()
			r.passTime(start + 1000)
			r.handOut()
			r.passed = nil
			r.at[crash.BeforePublish] = func() { delete(r.at, crash.BeforePublish); beside(r) }
			err := r.try()
			if failed := name == "the look-up has failed"; errors.Is(err, errFault) != failed || !failed && err != nil {
				t.Fatal(err)
			}
			if err != nil {
				r.recover(err)
				r.idle()
			}
			same(t, "events", r.expired(), ids)
			var left []string
			if name == "a write to a document of the queue" {
				left = []string{"m300"}
			}
			same(t, "documents", r.documents(), left)
			if name != "nothing" {
				return
			}
			flow := slices.DeleteFunc(r.passed, func(what string) bool {
				return !slices.Contains([]string{"due", "commit", string(crash.BeforePublish),
					string(crash.AfterPublish)}, what)
			})
			want := []string{"due",
				string(crash.BeforePublish), "due", string(crash.AfterPublish),
				string(crash.BeforePublish), "commit", string(crash.AfterPublish), "commit"}
			if len(flow) < len(want) || !slices.Equal(flow[:len(want)], want) {
				t.Errorf("the owner has passed %q, want %q", flow, want)
			}
		})
	}
}

// TestG9_GoesOnWithWhatIsDue: after a full step the owner goes on with more documents that are due. It looks after its
// messages first if one waits that this step does not apply, if the step names documents, or if its time is up. It does
// not go on with few documents.
func TestG9_GoesOnWithWhatIsDue(t *testing.T) {
	for name, tt := range map[string]struct {
		reaps, due, waiting, applies int
		names, late, goesOn          bool
	}{
		"many are due":          {reaps: ReapChunk, due: ReapChunk, goesOn: true},
		"its own message":       {reaps: ReapChunk, due: ReapChunk, waiting: 1, applies: 1, goesOn: true},
		"a message waits":       {reaps: ReapChunk, due: ReapChunk, waiting: 2, applies: 1},
		"it names documents":    {reaps: ReapChunk, due: ReapChunk, names: true},
		"its time is up":        {reaps: ReapChunk, due: ReapChunk, late: true},
		"it has reaped few":     {reaps: ReapChunk - 1, due: ReapChunk},
		"few are due behind it": {reaps: ReapChunk, due: ReapChunk - 1},
	} {
		r := newRig(t)
		r.idle()
		ttlOf1(r)
		r.idle()
		r.Queue.Rewind(r.progress.Offset)
		now := int64(start + 1000) // behind the configuration: the pace does not decide
		for i := range tt.waiting {
			r.Queue.put(&fold.Message{Position: fold.Position{Seq: r.progress.Offset + uint64(i) + 1}}, r.Queue.rewinds)
		}
		r.due.Set(dueAt(now, tt.due))
		w := &work{decision: fold.New(r.Limits, r.collections, now), due: dueAt(now, tt.reaps),
			messages: make([]*fold.Message, tt.applies), to: fold.Position{Seq: r.progress.Offset, Time: now}}
		if tt.names {
			w.decision.Slot(fold.Key{Collection: "c", ID: "another"})
		}
		until := time.Now().Add(time.Hour)
		if tt.late {
			until = time.Now().Add(-time.Hour)
		}
		next := r.following(w, until)
		if goesOn := next != nil; goesOn != tt.goesOn || goesOn && len(next.due) != tt.due {
			t.Errorf("%s: it goes on: %t", name, goesOn)
		}
	}
}
