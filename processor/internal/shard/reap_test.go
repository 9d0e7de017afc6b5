package shard

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/processor/internal/crash"
	"github.com/seed18712806/lapse/processor/internal/fold"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// dueAt are n documents that are due at an instant.
func dueAt(at int64, n int) (docs []*fold.DueDocument) {
	for i := range n {
		docs = append(docs, &fold.DueDocument{Key: fold.Key{Collection: "c", ID: fmt.Sprint(i)},
			Expiry: ttlrules.Expiry{At: at}})
	}
	return docs
}

// TestG9_Paced: of the documents that a configuration has made due, if they are many, the pace decides how many are
// reaped, but for as many as there are messages; not of what becomes due by itself, or is few, or has a message waiting
// for it.
//
// It fails if the owner reaps many documents although there is no room, or goes by the room without need.
func TestG9_Paced(t *testing.T) {
	const changed, never = 1000, math.MaxInt64
	for name, tt := range map[string]struct {
		first   int64 // when a document outside the due queue is due
		queued  int   // documents that are due at changed
		now     int64
		hurries bool
		paced   bool
	}{
		"just made due":           {changed, 0, changed, false, true},
		"made due before":         {changed - 1, 0, changed, false, true},
		"due by itself":           {changed + 1, 0, changed + 1, false, false},
		"not due yet":             {changed, 0, changed - 1, false, false},
		"few in the queue":        {never, leastRoom, changed, false, false},
		"many in the queue":       {never, leastRoom + 1, changed, false, true},
		"a message waits for it":  {changed, 0, changed, true, false},
		"many, but not due yet":   {never, leastRoom + 1, changed - 1, false, false},
		"there is nothing at all": {never, 0, changed, false, false},
	} {
		for _, load := range []struct {
			demand   int64
			messages int
			most     int // where the pace decides
		}{{busiest, 0, leastRoom}, {busiest, leastRoom, leastRoom}, {busiest, leastRoom + 1, leastRoom + 1},
			{100, 20, 160}, {0, 20, mostRoom}} {
			p := at8(nil, 10)
			p.Parts = Parts{Pace: NewPace(nil)}
			p.Pace.demand.Store(load.demand)
			p.collections = fold.NewCollections(map[string]store.Config{"c": {History: ttlrules.History{}.With(0, 1,
				-1)}}, nil)
			if tt.first != never {
				p.collections.LookedUp(p.collections.Collection("c"), store.NoScore, tt.first)
			}
			p.due.Set(dueAt(changed, tt.queued))
			p.reaper = reaper{hurries: tt.hurries, changed: changed}
			want := ReapChunk + load.messages
			if tt.paced {
				want = load.most
			}
			if may, paced := p.mayReap(tt.now, load.messages); may != want || paced != tt.paced ||
				p.Pace.isUsed() != tt.paced {
				t.Errorf("%s, %+v: it may reap %d, want %d; the pace decides: %t", name, load, may, want, paced)
			}
		}
	}
}

// TestReapsManyWhileBehind: a step after a full one may reap many, unless it drains.
func TestReapsManyWhileBehind(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.send(start, "lapse.config.c", `{"defaultTtl":-1}`)
	r.idle()
	for _, tt := range []struct {
		due             int
		hurries, behind bool
	}{{ReapChunk - 1, false, false}, {ReapChunk, false, true}, {ReapChunk, true, true}} {
		r.due.Set(dueAt(start, tt.due))
		d := fold.New(r.Limits, r.collections, r.progress.Watermark)
		if _, _, err := r.reap(t.Context(), d, nil, fold.Position{Seq: 9, Time: start}); err != nil {
			t.Fatal(err)
		}
		want := ReapChunk + 7
		if tt.behind && !tt.hurries {
			want = reapMany + 7
		}
		r.reaper.hurries, r.reaper.changed = tt.hurries, 0 // the pace does not decide
		if may, _ := r.mayReap(start, 7); may != want || r.reaper.behind != tt.behind {
			t.Errorf("after %d due documents, draining %t: it may reap %d, want %d", tt.due, tt.hurries, may, want)
		}
	}
}

// TestG4_LookedUpAhead: documents are looked up a little before the first of them is due, and not much earlier; many
// that are in the queue already come first.
func TestG4_LookedUpAhead(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.send(start, "lapse.config.c", `{"defaultTtl":-1}`)
	r.idle()
	for _, tt := range []struct {
		first  int64 // deadline outside the queue
		queued int
		looks  bool
	}{
		{start + lookUpAgain, 0, true}, {start + lookUpAgain + 1, 0, false},
		{start + 1, ReapChunk/4 - 1, true}, {start + 1, ReapChunk / 4, false}, {start, ReapChunk / 4, true},
	} {
		r.due.Set(dueAt(start+1000, tt.queued))
		r.collections.LookedUp(r.collections.Collection("c"), store.NoScore, tt.first)
		r.passed = nil
		if err := r.lookUp(t.Context(), 9, start, ReapChunk, reapBytes); err != nil ||
			(r.calls("due") > 0) != tt.looks {
			t.Errorf("%+v: it was looked up: %q, %v", tt, r.passed, err)
		}
	}
}

// TestG4_LookedUpInASilentLog: documents are looked up before their deadline by the log's clock too, while no message
// moves log time on. Where messages wait it goes by log time alone: a log that is read late would be looked up in at
// each step.
func TestG4_LookedUpInASilentLog(t *testing.T) {
	r := newRig(t)
	r.idle()
	now := time.Now().UnixMilli()
	r.send(now, "lapse.config.c", `{"defaultTtl":-1}`)
	r.idle()
	first := func(at int64) { r.collections.LookedUp(r.collections.Collection("c"), store.NoScore, at) }
	for messages, looks := range []bool{true, false} {
		first(now)
		r.passed, r.pending = nil, make([]*fold.Message, messages)
		d := fold.New(r.Limits, r.collections, r.progress.Watermark)
		if _, _, err := r.reap(t.Context(), d, nil, fold.Position{Seq: 9, Time: now - 60_000}); err != nil ||
			(r.calls("due") > 0) != looks {
			t.Errorf("while %d messages wait: it was looked up: %q, %v", messages, r.passed, err)
		}
	}
	if first(now); r.lookUpIn() != time.Millisecond {
		t.Errorf("a document is due: it rests for %s", r.lookUpIn())
	}
	if r.due.Set(dueAt(now, ReapChunk/4)); r.lookUpIn() != HeartbeatEvery {
		t.Errorf("the queue has enough: it rests for %s", r.lookUpIn())
	}
	r.due.Set(nil)
	if first(now + 3_600_000); r.lookUpIn() != HeartbeatEvery {
		t.Errorf("the first document is due in an hour: it rests for %s", r.lookUpIn())
	}
}

// TestG4_WhatIsLookedUp: the queue gets what is due within lookUpAhead, with the bodies for the events, and the owner
// knows exactly when the next document is due, by the default or by a TTL of its own.
func TestG4_WhatIsLookedUp(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.send(start, "lapse.config.c", `{"defaultTtl":9}`)
	r.write(start, "first", `{"ttl":2}`)
	r.write(start+lookUpAhead, "ahead", `{"ttl":2}`)
	r.write(start+lookUpAhead+1, "later", `{"ttl":2}`)
	r.write(start+lookUpAhead+1, "inherits", `{}`)
	r.idle()
	if err := r.lookUp(t.Context(), r.progress.Offset, start+2000, ReapChunk, reapBytes); err != nil {
		t.Fatal(err)
	}
	bodies := map[string]string{}
	for doc := range r.due.All() {
		bodies[doc.Key.ID] = string(doc.Body)
	}
	if want := map[string]string{"first": `{"ttl":2}`, "ahead": `{"ttl":2}`}; !maps.Equal(bodies, want) ||
		r.due.FirstDue() != start+2000 {
		t.Errorf("the queue has %v", bodies)
	}
	if at := r.collections.FirstDue(); at != start+2000+lookUpAhead+1 {
		t.Errorf("the next is due at %d", at-start)
	}
	r.forget()
	if r.due.Len() != 0 || r.firstDue() != start+2000 {
		t.Errorf("it has forgotten that a document is due: %d", r.firstDue()-start)
	}
	r.passTime(start + 5000)
	r.idle()
	same(t, "events", r.expired(), []string{"first", "ahead", "later"})
	if at := r.firstDue(); at != start+lookUpAhead+1+9000 {
		t.Errorf("the next is due at %d", at-start)
	}
	r.passTime(start + 4000) // log time never goes back
	r.idle()
	if r.progress.Watermark != start+5000 {
		t.Errorf("log time is %d", r.progress.Watermark-start)
	}
}

// TestG2_NoEventBeforeReadersKnow: a document is due by the log, and the clock of readers is behind: they may still
// return it. So the owner commits the log time, by which readers go, before it publishes the event.
//
// It fails if the event comes first, or if a document is reaped by the readers' clock.
func TestG2_NoEventBeforeReadersKnow(t *testing.T) {
	for name, expires := range map[string]func(r *rig){
		"time passes":      func(r *rig) { r.passTime(start + 1000) },
		"a write meets it": func(r *rig) { r.write(start+1000, "a", `{"ttl":-1}`) },
		"a write of another goes first": func(r *rig) {
			r.write(start+999, "b", `{"ttl":-1}`)
			r.write(start+1000, "a",
				`{"ttl":-1}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.idle()
			ttlOf1(r)
			r.write(start, "a", `{}`)
			r.idle()
			r.clock = start + 5000
			r.passTime(start + 998)
			r.idle()
			if ids := r.expired(); len(ids) > 0 {
				t.Errorf("by the clock of readers %v have expired", ids)
			}
			r.clock = start + 999
			published := 0
			r.at[crash.BeforePublish] = func() {
				published++
				if s := r.state(); s.Watermark < start+1000 {
					t.Errorf("readers have reached %d", s.Watermark-start)
				}
			}
			expires(r)
			r.commits = nil
			r.idle()
			same(t, "events", r.expired(), []string{"a"})
			last := r.sent[len(r.sent)-1]
			if first := r.commits[0]; published != 1 || name == "a write meets it" && (first.Offset != last.Seq-1 ||
				first.Watermark != start+1000) {
				t.Errorf("%d publications; the first commit is %+v", published, first)
			}
			if name == "a write of another goes first" && (r.commits[0].Offset != last.Seq-1 ||
				r.commits[0].Watermark != start+999) {
				t.Errorf("the first commit is %+v", r.commits[0])
			}
		})
	}
}

// TestG2_TheClockOfReaders: where the clock of readers is known to have reached the deadline, the write need not wait.
func TestG2_TheClockOfReaders(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{}`)
	r.idle()
	r.clock = math.MinInt64 // it is not known
	r.at["due"] = func() { r.clock = start + 1000 }
	m := r.write(start+1000, "a", `{"ttl":-1}`)
	r.commits = nil
	if r.idle(); r.commits[0].Offset != m.Seq {
		t.Errorf("the first commit is %+v", r.commits[0])
	}
	same(t, "events", r.expired(), []string{"a"})
}

// TestG9_OnlyWhatThereIsRoomFor: of what a configuration has made due, a step reaps as many documents as the pace says:
// few while requests come, and all that a step can while none do.
func TestG9_OnlyWhatThereIsRoomFor(t *testing.T) {
	const few, many = 2*leastRoom + 5, mostRoom + 100
	for name, tt := range map[string]struct {
		demand    int64
		documents int
		want      []uint64 // in all, after each step
	}{
		"under load": {busiest, few, []uint64{leastRoom, 2 * leastRoom, few}},
		"idle":       {0, many, []uint64{mostRoom, many}},
	} {
		r := newRig(t)
		r.send(start, "lapse.config.c", `{}`)
		r.idle()
		r.Pace.demand.Store(tt.demand)
		for i := range tt.documents {
			r.write(start, fmt.Sprint(i), `{}`)
		}
		r.idle()
		r.send(start+1000, "lapse.config.c", `{"defaultTtl":1}`)
		for step, want := range tt.want {
			r.handOut()
			if _, err := r.runOnce(t.Context()); err != nil || r.Status.Reaped.Load() != want {
				t.Errorf("%s, step %d: %d are reaped, want %d; %v", name, step, r.Status.Reaped.Load(), want, err)
			}
		}
	}
}

// TestG9_ReapNow: before a message that waits for due documents, and after a takeover, the owner reaps a chunk whatever
// the pace is. In its next step it reaps as many as there is room for.
func TestG9_ReapNow(t *testing.T) {
	r := newRig(t)
	r.send(start, prefix.Config("c"), `{}`)
	for i := range ReapChunk + 2*leastRoom {
		r.write(start, fmt.Sprint(i), `{}`)
	}
	r.idle()
	r.send(start+1000, prefix.Config("c"), `{"defaultTtl":1}`)
	r.handOut()
	if err := r.control(t.Context(), r.pending[0]); err != nil {
		t.Fatal(err)
	}
	r.Pace.demand.Store(busiest)
	if err := r.reapNow(t.Context()); err != nil || r.Status.Reaped.Load() != ReapChunk {
		t.Errorf("%d are reaped at once, want %d; %v", r.Status.Reaped.Load(), ReapChunk, err)
	}
	if _, err := r.step(t.Context(), nil, fold.Position{}); err != nil ||
		r.Status.Reaped.Load() != ReapChunk+leastRoom {
		t.Errorf("%d are reaped after a step, want %d; %v", r.Status.Reaped.Load(), ReapChunk+leastRoom, err)
	}
}

// TestG11_RestsWhileASnapshotIsTaken: the owner rests for a second; while it takes a snapshot, until the next scan.
func TestG11_RestsWhileASnapshotIsTaken(t *testing.T) {
	p := &Owner{collections: fold.NewCollections(nil, nil), Parts: Parts{Ticker: NewTicker(nil, nil, "", nil, nil)}}
	if rest := p.rest(); rest != HeartbeatEvery {
		t.Errorf("it rests for %s", rest)
	}
	p.tenure.recording = beginRecording(full{}, fold.NewCollections(nil, nil))
	if rest := p.rest(); rest <= 0 || rest >= HeartbeatEvery {
		t.Errorf("with a snapshot it rests for %s", rest)
	}
}

// TestG7_ASnapshotThatFails: a snapshot whose writer has failed is over, and nothing more is scanned for it.
func TestG7_ASnapshotThatFails(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.tenure.recording, r.passed = beginRecording(full{failed: true}, r.collections), nil
	if err := r.record(t.Context()); err != nil || r.tenure.recording != nil || r.calls("copy") > 0 {
		t.Errorf("it goes on: %q, %v", r.passed, err)
	}
}

// full is the writer of a snapshot that has no room, or has failed.
type full struct {
	snapshotWriter
	failed bool
}

func (f full) Failed() bool { return f.failed }

func (full) Room() bool { return false }

// TestG4_TidyEverySecond: beside traffic collections are settled once a second.
func TestG4_TidyEverySecond(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.idle()
	now := time.Now()
	for since, want := range map[time.Duration]bool{HeartbeatEvery - 1: false, HeartbeatEvery: true} {
		r.collections.Configure(r.collections.Collection("c"), store.Config{History: ttlrules.History{}.With(1, 1, 1)})
		r.duties.settled = now.Add(-since)
		if worked, err := r.Tidy(t.Context(), now); worked != want || err != nil ||
			want != (len(r.collections.Config("c").History) == 1) {
			t.Errorf("after %s: it has settled: %t, %v", since, worked, err)
		}
	}
}

// TestG4_WhatEndsIsSettled: an old generation ends once its documents are reaped. The owner tells that there was
// something to end, as there may be more.
func TestG4_WhatEndsIsSettled(t *testing.T) {
	r := newRig(t)
	r.idle()
	ttlOf1(r)
	r.write(start, "a", `{}`)
	r.idle()
	r.send(start+2000, prefix.Drop("c"), ``)
	r.handOut()
	if err := r.control(t.Context(), r.pending[0]); err != nil {
		t.Fatal(err)
	}
	for step, want := range []bool{false, true, false} { // a document is due; it is reaped
		if worked, err := r.settle(t.Context()); worked != want || err != nil {
			t.Errorf("step %d: something has ended: %t, %v", step, worked, err)
		}
		if err := r.reapNow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestG9_ReapsAsMuchAsItApplies: while messages come faster than they are applied, and all that they write expires, a
// step reaps as many documents as it applies messages, and more: so what is due does not pile up. After a
// configuration, also of another collection, it reaps as many.
func TestG9_ReapsAsMuchAsItApplies(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		configures bool
	}{{"small", `{}`, false}, {"large", `{"x":"` + strings.Repeat("x", 4096) + `"}`, false}, {"after a configuration",
		`{}`, true}} {
		t.Run(tt.name, func(t *testing.T) { reapsAsMuchAsItApplies(t, tt.body, tt.configures) })
	}
}

func reapsAsMuchAsItApplies(t *testing.T, body string, configures bool) {
	const many = 2 * fold.BatchMessages
	r := newRig(t)
	r.idle()
	r.send(start, "lapse.config.c", `{"defaultTtl":1}`)
	for i := range many {
		r.write(start, fmt.Sprint("due", i), body)
	}
	r.idle()
	if configures {
		r.send(start+2000, "lapse.config.other", `{}`)
		r.handOut()
		if _, err := r.runOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for i := range many {
		r.write(start+2000, fmt.Sprint("new", i), body)
	}
	r.handOut()
	begin := r.progress.Offset
	for range 10 {
		if _, err := r.runOnce(t.Context()); err != nil {
			t.Fatal(err)
		}
		applied, reaped := int(r.progress.Offset-begin), len(r.expired())
		if reaped < min(applied, many) {
			t.Fatalf("it has applied %d messages and reaped %d documents that were due before them", applied, reaped)
		}
		if applied == many {
			return
		}
	}
	t.Errorf("ten steps have applied %d of %d messages", r.progress.Offset-begin, many)
}

// TestG4_AWriteFindsAnExpiredDocument: where a write comes at the deadline of a document that was looked up ahead, the
// step reads once, and the event has the body.
//
// It fails if the body is read again.
func TestG4_AWriteFindsAnExpiredDocument(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.send(start, "lapse.config.c", `{"defaultTtl":9}`)
	r.write(start, "a", `{"ttl":2}`)
	r.idle()
	if err := r.lookUp(t.Context(), r.progress.Offset, start+2000, ReapChunk, reapBytes); err != nil {
		t.Fatal(err)
	}
	r.passed = nil
	next := r.write(start+2000, "a", `{"ttl":9}`)
	r.idle()
	if n := r.calls("read"); n != 1 || r.statusOf(next) != wire.StatusCreated {
		t.Errorf("it was read %d times, and the write has status %d", n, r.statusOf(next))
	}
	same(t, "events", r.expired(), []string{"a"})
}

// TestG3_LookedUpAcrossTheCheckpoint: in a rebuild a look-up finds a document that was due before the checkpoint, whose
// event is published, and one that is due just behind it, whose event is not. That one needs its body.
func TestG3_LookedUpAcrossTheCheckpoint(t *testing.T) {
	r := newRig(t)
	r.idle()
	r.send(start, "lapse.config.c", `{"defaultTtl":-1}`)
	r.write(start, "before", `{"ttl":2}`)
	r.write(start+lookUpAhead/2, "behind", `{"ttl":2}`)
	r.idle()
	r.passTime(start + 2000)
	r.idle()
	same(t, "events", r.expired(), []string{"before"})
	r.checkpoint()
	r.wipe()
	r.restart()
	r.idle()
	if r.progress.Rebuild == 0 && value(t, r.Metrics.Rebuilds) == 0 {
		t.Fatal("nothing was rebuilt")
	}
	r.passTime(start + 2000 + lookUpAhead)
	r.idle()
	same(t, "events", r.expired(), []string{"before", "behind"})
	info, err := r.streams.Events.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	last, err := r.streams.Events.GetMsg(t.Context(), info.State.LastSeq)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(last.Data), `"document":{"ttl":2}`) {
		t.Errorf("the event is %s", last.Data)
	}
}
