package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// verdictCase is something that may have been lost, and what an examination makes of it.
type verdictCase struct {
	name  string
	past  func(w *world)
	want  string // see summary
	says  string // part of the error, or of why snapshots cannot be used
	gives bool   // a person gives lost outputs up
}

// summary is what an owner does after an examination.
func (w *world) summary(v verdict, err error) string {
	if err != nil {
		return "nothing is known"
	}
	if r := v.Refusal; r != nil {
		name := map[error]string{
			streams.ErrLogTruncated: "the log is truncated", streams.ErrLogBehind: "the log is behind",
			streams.ErrLogChanged: "another log",
			streams.ErrRefused:    "the shard", events.ErrLost: "events are lost",
		}[r.Kind]
		if r.Accept == "" {
			name += ", and nobody can decide"
		}
		return "refused: " + name
	}
	from := "begins with the log"
	switch {
	case v.Snapshot != nil:
		from = fmt.Sprint("loads ", v.Snapshot.Offset)
	case v.Stored:
		from = "goes on"
	}
	if len(v.Lost) > 0 {
		from += ", publishes again"
	}
	text := fmt.Sprintf("%s: published %d, last output %d, tail", from, v.Published().Seq, v.LastOutput().Seq)
	for _, seq := range rejected {
		if _, found := w.tail.Find(w.rejection(seq, 0)); found {
			text += fmt.Sprint(" ", seq)
		}
	}
	return text
}

var lostPlace = placeOf(9, 9) // the stream of events ends before it

// verdicts are what the log, the stream of events, Redis, the checkpoint and the snapshots may have lost.
var verdicts = []verdictCase{
	{name: "nothing is lost", past: func(*world) {}, want: "goes on: published 5, last output 3, tail 8"},

	// The log.
	{name: "the state is of another log", past: func(w *world) { w.state.Log = "1" }, want: "refused: another log",
		says: "Redis holds documents of the log that was created at"},
	{name: "there is no state", past: func(w *world) { w.state = store.State{Log: "1"} },
		want: "begins with the log: published 5, last output 2, tail 8"},
	{name: "the log ends before the state", past: func(w *world) { w.state.Offset = 11 },
		want: "refused: the log is behind", says: "applied up to 11"},
	{name: "the log ends with the checkpoint", past: func(w *world) { w.checkpoint.Seq = 10 },
		want: "goes on: published 10, last output 3, tail 8"},
	{name: "the log ends before the checkpoint", past: func(w *world) { w.checkpoint.Seq = 11 },
		want: "refused: the log is behind", says: "up to 11 was published"},
	{name: "the log ends before the stamp of the state", past: func(w *world) { w.state.Stamp.Seq = 11 },
		want: "refused: the log is behind", says: "lapse has applied message 11"},
	{name: "the log has another message than the state", past: func(w *world) { w.state.Stamp.At++ },
		want: "refused: another log", says: "message 9 of the log"},
	{name: "the log has another message than the checkpoint",
		past: func(w *world) { w.checkpoint.Stamp = store.Stamp{Seq: 5, At: 1}.String() }, want: "refused: another log",
		says: "message 5 of the log"},
	{name: "the log has what comes next", past: func(w *world) { w.truncate(w.streams.Log, 10) },
		want: "goes on: published 5, last output 3, tail 8"},
	{name: "the log is truncated", past: func(w *world) {
		w.state.Offset, w.none = 3, true
		w.truncate(w.streams.Log,
			5)
	}, want: "refused: the log is truncated", says: "the log begins at sequence 5"},
	{name: "the log is truncated, and there is no snapshot",
		past: func(w *world) { w.state.Offset = 3; w.truncate(w.streams.Log, 5) },
		want: "refused: the log is truncated", says: "and the shard has no snapshot"},
	{name: "the log is truncated behind a snapshot",
		past: func(w *world) { w.state.Offset = 3; w.manifest(7); w.truncate(w.streams.Log, 8) },
		want: "loads 7: published 5, last output 3, tail 8"},
	{name: "an older snapshot has the outputs", past: func(w *world) {
		w.state.Offset, w.checkpoint = 3, Checkpoint{}
		w.manifest(7)
		w.truncate(w.streams.Log, 8)
	},
		want: "loads 7: published 4, last output 3, tail 5 8"},
	{name: "the log is truncated behind the newest snapshot",
		past: func(w *world) { w.state.Offset = 3; w.manifest(2); w.truncate(w.streams.Log, 5) },
		want: "refused: the log is truncated", says: "the snapshot of generation 1, at sequence 2: the log no " +
			"longer reaches back"},
	{name: "the log is truncated behind one snapshot",
		past: func(w *world) { w.state.Offset = 3; w.manifest(2); w.manifest(7); w.truncate(w.streams.Log, 5) },
		want: "loads 7: published 5, last output 3, tail 8", says: "at sequence 2: the log no longer reaches back"},
	{name: "the log ends before a snapshot",
		past: func(w *world) { w.state.Offset = 3; w.manifest(9).Offset = 11; w.truncate(w.streams.Log, 5) },
		want: "refused: the log is behind", says: "applied up to 11"},
	{name: "the log has another message than a snapshot",
		past: func(w *world) { w.state.Offset = 3; w.manifest(7).Stamp.At++; w.truncate(w.streams.Log, 5) },
		want: "refused: another log", says: "message 7 of the log"},

	// Redis, and snapshots.
	{name: "the state is whole, and there is a snapshot", past: func(w *world) { w.manifest(7) },
		want: "goes on: published 5, last output 3, tail 8"},
	{name: "damage", past: func(w *world) { w.damage = store.ErrDamaged },
		want: "begins with the log: published 5, last output 3, tail 8"},
	{name: "damage, and a snapshot", past: func(w *world) { w.damage = store.ErrDamaged; w.manifest(7) },
		want: "loads 7: published 5, last output 3, tail 8"},
	{name: "damage, and a damaged snapshot",
		past: func(w *world) { w.damage = store.ErrDamaged; w.manifest(7); w.objects.damaged = ".0" },
		want: "begins with the log: published 5, last output 3, tail 8",
		says: "at sequence 7: the snapshot is damaged"},
	{name: "damage, and the log is truncated",
		past: func(w *world) { w.damage = store.ErrDamaged; w.truncate(w.streams.Log, 5) }, want: "refused: the shard",
		says: "it cannot be rebuilt, as the log begins at sequence 5"},
	{name: "damage, and the log begins where the shard began", past: func(w *world) {
		w.damage,
			w.checkpoint.Origin = store.ErrDamaged, 4
		w.truncate(w.streams.Log, 5)
	}, want: "begins with the log: published 5, last output 3, tail 8"},
	{name: "damage, and the log is truncated behind a snapshot",
		past: func(w *world) { w.damage = store.ErrDamaged; w.manifest(7); w.truncate(w.streams.Log, 8) },
		want: "loads 7: published 5, last output 3, tail 8"},
	{name: "no state, and the log is truncated",
		past: func(w *world) { w.state = store.State{}; w.truncate(w.streams.Log, 5) },
		want: "refused: the log is truncated"},
	{name: "no state, and the log begins where the shard began", past: func(w *world) {
		w.state,
			w.checkpoint.Origin = store.State{}, 4
		w.truncate(w.streams.Log, 5)
	}, want: "begins with the log: published 5, last output 2, tail 8"},
	{name: "no state, and a snapshot that a load would find damaged",
		past: func(w *world) { w.state = store.State{}; w.manifest(7); w.objects.damaged = ".0" },
		want: "loads 7: published 5, last output 2, tail 8"},
	{name: "no state, the log is truncated, and a damaged snapshot", past: func(w *world) {
		w.state = store.State{}
		w.manifest(7)
		w.objects.damaged = ".0"
		w.truncate(w.streams.Log, 5)
	},
		want: "refused: the log is truncated", says: "at sequence 7: the snapshot is damaged"},
	{name: "a damaged manifest", past: func(w *world) {
		w.state.Offset = 3
		w.manifest(7)
		w.objects.damaged = "1.manifest"
		w.truncate(w.streams.Log, 5)
	},
		want: "refused: the log is truncated", says: "and no snapshot can be used: generation 1: the snapshot is " +
			"damaged"},
	{name: "the newest snapshot is damaged", past: func(w *world) {
		w.state.Offset = 3
		w.manifest(8)
		w.manifest(7)
		w.objects.damaged = "2.0"
		w.truncate(w.streams.Log, 5)
	},
		want: "loads 7: published 5, last output 3, tail 8",
		says: "generation 2, at sequence 8: the snapshot is damaged"},

	// The stream of events.
	{name: "the last output of the state is lost", past: func(w *world) {
		w.state.Events, w.none = lostPlace.String(),
			true
	}, want: "begins with the log, publishes again: published 5, last output 2, tail 8"},
	{name: "it has another output than the state", past: func(w *world) { w.state.Events = placeOf(3, 7).String() },
		want: "begins with the log, publishes again: published 5, last output 2, tail 8"},
	{name: "what the state remembers cannot be read", past: func(w *world) { w.state.Events = "?" },
		want: "nothing is known", says: `"?" in the stream of events is not valid`},
	{name: "the last output of the checkpoint is lost", past: func(w *world) { w.checkpoint.Last = lostPlace },
		want: "begins with the log, publishes again: published 0, last output 0, tail 3 5 8"},
	{name: "where the tail begins is lost", past: func(w *world) {
		w.checkpoint.From, w.checkpoint.Last = lostPlace,
			placeOf(3, 8)
	}, want: "goes on: published 5, last output 3, tail"},
	{name: "outputs are lost, and there is a snapshot",
		past: func(w *world) { w.state.Events = lostPlace.String(); w.manifest(7) },
		want: "loads 7, publishes again: published 5, last output 2, tail 8"},
	{name: "outputs of the checkpoint are lost, and there is a snapshot",
		past: func(w *world) { w.checkpoint.Last = lostPlace; w.manifest(7) },
		want: "loads 7, publishes again: published 4, last output 2, tail 3 5 8"},
	{name: "outputs are lost, and what came before those behind the snapshot was removed", past: func(w *world) {
		w.checkpoint.Last = lostPlace
		w.manifest(7).From = placeOf(2, 5)
		w.truncate(w.streams.Events, 3)
	}, want: "loads 7, publishes again: published 4, last output 2, tail 8"},
	{name: "outputs are lost, and some behind the snapshot were removed", past: func(w *world) {
		w.checkpoint.Last = lostPlace
		w.manifest(7).From = placeOf(1, 3)
		w.truncate(w.streams.Events, 3)
	}, want: "refused: events are lost", says: "the stream has removed what it had from sequence 2 to 2, which is " +
		"from after the snapshot"},
	{name: "outputs are lost, and those of the snapshot too",
		past: func(w *world) { w.state.Events = lostPlace.String(); w.manifest(7).Last = lostPlace },
		want: "begins with the log, publishes again: published 5, last output 2, tail 8",
		says: "generation 1, at sequence 7: the stream of events has lost"},
	{name: "outputs were removed since",
		past: func(w *world) { w.checkpoint.Last = lostPlace; w.truncate(w.streams.Events, 3) },
		want: "refused: events are lost",
		says: "no snapshot is from before, and the stream has removed what it had before sequence 3"},
	{name: "outputs are lost that the log does not have",
		past: func(w *world) { w.state.Events = lostPlace.String(); w.truncate(w.streams.Log, 5) },
		want: "refused: events are lost",
		says: "all or some of the 6 messages from sequence 4 to 9, stored since 20"},
	{name: "and a snapshot is damaged", past: func(w *world) {
		w.state.Events = lostPlace.String()
		w.truncate(w.streams.Log, 5)
		w.manifest(7)
		w.objects.damaged = ".0"
	}, want: "refused: events are lost",
		says: "at sequence 7: the snapshot is damaged: 0.1.0"},
	{name: "others have taken their place", past: func(w *world) {
		w.state.Events = placeOf(3, 7).String()
		w.state.Watermark = 1
		w.truncate(w.streams.Log, 5)
	}, want: "refused: events are lost",
		says: "the 1 messages from sequence 3 to 3, and it has stored others there since; they cannot be published " +
			"again: the log begins at sequence 5"},
	{name: "the stream was made anew", past: func(w *world) {
		w.state.Events = lostPlace.String()
		w.state.Watermark, w.checkpoint.Watermark = 1, 2
		w.truncate(w.streams.Log, 5)
	}, want: "refused: events are lost",
		says: "the 9 messages from sequence 1 to 9, as it was deleted and made anew at 20"},
	{name: "only lost outputs keep a snapshot from being used",
		past: func(w *world) { w.state.Offset = 3; w.manifest(7).Last = lostPlace; w.truncate(w.streams.Log, 5) },
		want: "refused: events are lost",
		says: "they cannot be published again: the log no longer reaches back"},
	{name: "lost outputs keep two snapshots from being used", past: func(w *world) {
		w.state.Offset = 3
		w.manifest(8).Last = lostPlace
		w.manifest(7).Last = placeOf(8, 8)
		w.truncate(w.streams.Log, 5)
	},
		want: "refused: events are lost", says: "at sequence 9: it lacks all or some of the 6 messages from " +
			"sequence 4 to 9"},

	// What a person has given up.
	{name: "given up now", gives: true,
		past: func(w *world) { w.state.Events = lostPlace.String(); w.truncate(w.streams.Log, 5) },
		want: "goes on: published 5, last output 2, tail 8"},
	{name: "given up now, and the tail begins elsewhere", gives: true, past: func(w *world) {
		w.state.Events, w.checkpoint.From = lostPlace.String(), placeOf(8, 8)
		w.truncate(w.streams.Log, 5)
	},
		want: "goes on: published 5, last output 2, tail 3 5 8"},
	{name: "given up now, and a snapshot is used", gives: true, past: func(w *world) {
		m := w.manifest(7)
		w.state.Offset, m.Last, m.From, m.Published = 3, lostPlace, placeOf(8, 8), 6
		w.truncate(w.streams.Log, 5)
	},
		want: "loads 7: published 6, last output 3, tail 3 5 8"},
	{name: "given up when the state was older", past: func(w *world) {
		w.state.Events,
			w.checkpoint.GivenUp = lostPlace.String(), 10
	}, want: "goes on: published 5, last output 2, tail 8"},
	{name: "given up when the state was there", past: func(w *world) {
		w.state.Events,
			w.checkpoint.GivenUp = lostPlace.String(), 9
	}, want: "begins with the log, publishes again: published 5, last output 2, tail 8"},
	{name: "given up, and the checkpoint has lost others", past: func(w *world) {
		w.checkpoint.Last,
			w.checkpoint.GivenUp = lostPlace, 10
	}, want: "begins with the log, publishes again: published 0, last output 0, tail 3 5 8"},
	{name: "given up when a snapshot was older", past: func(w *world) {
		m := w.manifest(7)
		w.state.Offset, w.checkpoint.GivenUp, m.Last, m.From, m.Published = 3, 8, lostPlace, placeOf(8, 8), 6
		w.truncate(w.streams.Log, 5)
	},
		want: "loads 7: published 6, last output 3, tail 3 5 8"},
	{name: "given up when a snapshot was there", past: func(w *world) {
		w.state.Offset, w.checkpoint.GivenUp, w.manifest(7).Last = 3, 7, lostPlace
		w.truncate(w.streams.Log, 5)
	}, want: "refused: events are lost"},

	// What outputs name.
	{name: "an output names a lost message", past: func(w *world) { w.reject(12, w.ms[10]) },
		want: "refused: the log is behind", says: "the log ends at sequence 10, and message 4 of the stream of " +
			"events follows from message 12 of the log"},
	{name: "an output names the last message", past: func(w *world) { w.reject(10, w.ms[10]) },
		want: "goes on: published 5, last output 3, tail 8"},
	{name: "a rejection of a message that was stored before", past: func(w *world) { w.reject(9, w.ms[9]-1) },
		want: "refused: another log", says: "message 9 of the log was stored at"},
	{name: "a rejection of a message that was stored later", past: func(w *world) { w.reject(9, w.ms[9]+1) },
		want: "refused: another log", says: "message 4 of the stream of events follows from"},
	{name: "a rejection that does not tell", past: func(w *world) { w.reject(9, 0) },
		want: "goes on: published 5, last output 3, tail 8"},
	{name: "a version expires after it was written", past: func(w *world) { w.expire(9, w.ms[9]+1) },
		want: "goes on: published 5, last output 3, tail 8"},
	{name: "a version expires before it was written", past: func(w *world) { w.expire(9, w.ms[9]-1) },
		want: "refused: another log"},
	{name: "an output of a message before the checkpoint", past: func(w *world) { w.reject(4, w.ms[4]-1) },
		want: "goes on: published 5, last output 3, tail 8"},
	{name: "an output of a message that was truncated",
		past: func(w *world) { w.checkpoint = Checkpoint{}; w.truncate(w.streams.Log, 5) },
		want: "goes on: published 0, last output 3, tail 3 5 8"},
}

func (c verdictCase) check(t *testing.T, w *world, v verdict, err error) {
	t.Helper()
	if v.Refusal != nil {
		err = v.Refusal
	}
	if got := w.summary(v, nil); got != c.want && (c.want != "nothing is known" || err == nil) {
		t.Errorf("%s\nwant %s\n%v", got, c.want, err)
	}
	said := fmt.Sprint(errors.Join(err, v.Skipped))
	if !strings.Contains(said, c.says) {
		t.Errorf("it says: %s\nwant: %s", said, c.says)
	}
}

// TestG12_Verdicts: whatever was lost, in the log, the stream of events, Redis, the checkpoints or the
// snapshots, an examination finds it, and the owner goes on only from what is whole. The rest it refuses by name.
//
// An examination asks NATS many questions. Each time the connection is lost in place of another one of them, and
// never does the examination tell the owner anything but that. It fails if an error is taken for a loss, or for none.
func TestG12_Verdicts(t *testing.T) {
	s := newServer(t)
	for _, c := range verdicts {
		t.Run(c.name, func(t *testing.T) {
			w := s.newWorld(t)
			c.past(w)
			e := w.store()
			v, err := w.examine(t.Context(), e, c.gives)
			c.check(t, w, v, err)
			for cut := 1; ; cut++ {
				w.tail.Release()
				s.questions.from(cut)
				v, err := w.examine(t.Context(), e, c.gives)
				asked := s.questions.since()
				if len(asked) < cut {
					s.questions.from(0)
					return
				}
				if !errors.Is(err, streams.ErrDisconnected) || streams.AsRefusal(err) != nil || v.Refusal != nil {
					t.Errorf("without an answer to question %d, %s: %s, %v", cut, asked[cut-1], w.summary(v, err), err)
				}
			}
		})
	}
}

// TestG12_WhatAnExaminationLeaves: the rest of what an owner goes on with.
func TestG12_WhatAnExaminationLeaves(t *testing.T) {
	s := newServer(t)
	lost := func(w *world) { w.state.Events, w.damage = lostPlace.String(), nil; w.truncate(w.streams.Log, 5) }
	for _, tt := range []struct {
		name  string
		past  func(w *world)
		gives bool
		is    func(v verdict) bool
	}{
		{"the end of the log", func(*world) {}, false, func(v verdict) bool {
			return v.Log.State.LastSeq == messages && v.Why == nil && v.Skipped == nil && v.Gone == nil
		}},
		{"why the state is old", func(w *world) { w.state.Offset = 3; w.manifest(7); w.truncate(w.streams.Log, 5) },
			false,
			func(v verdict) bool { return errors.Is(v.Why, streams.ErrLogTruncated) && v.Skipped == nil }},
		{"a state whose outputs are gone is whole", lost, false, func(v verdict) bool {
			return v.Damage == nil && v.Refusal.Kind == events.ErrLost && slices.Equal(v.Gone,
				[]events.Place{lostPlace})
		}},
		{"what was given up", lost, true, func(v verdict) bool {
			return v.Given != nil && v.Refusal == nil && v.Lost == nil && v.Output == events.Place{}
		}},
		{"what a person does not look for any more is not asked for",
			func(w *world) { w.checkpoint.Last = lostPlace; w.checkpoint.Origin, w.checkpoint.GivenUp = 0, 3 }, false,
			func(v verdict) bool {
				return v.Known.GivenUp == 3 && v.Known.Log == v.State.Log && v.Known.Seq == 0
			}},
		{"the position of the checkpoint", func(w *world) { w.manifest(7).Published = 5 }, false,
			func(v verdict) bool { return v.Published() == v.Known }},
		{"the position of the snapshot", func(w *world) { w.damage = store.ErrDamaged; w.manifest(7).Published = 6 },
			false, func(v verdict) bool {
				c, m := v.Published(), v.Snapshot
				return c.Seq == 6 && c.Watermark == m.PublishedTime && c.From == m.From && c.Last == m.Last &&
					c.Log == m.Log && c.Stamp == v.Known.Stamp
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := s.newWorld(t)
			tt.past(w)
			if v, err := w.examine(t.Context(), w.store(), tt.gives); err != nil || !tt.is(v) {
				t.Errorf("%+v, %v", v, err)
			}
		})
	}
}

// TestG12_OfManyOutputsSomeAreCompared: an old checkpoint leaves many outputs. The messages that they name are
// compared, the last one first, and of many only one in so many: a takeover has a limit.
func TestG12_OfManyOutputsSomeAreCompared(t *testing.T) {
	w := newServer(t).newWorld(t)
	w.checkpoint = Checkpoint{}
	named := len(rejected)
	w.append(2*64 + 1)
	for _, tt := range []struct{ outputs, compared int }{{3, 3}, {64, 64}, {65, 33}, {128, 64}, {129, 43}} {
		for ; named < tt.outputs; named++ {
			w.reject(uint64(messages+1+named), w.ms[messages+1+named])
		}
		e := w.store()
		w.server.questions.from(0)
		if _, err := w.examine(t.Context(), e, false); err != nil {
			t.Fatal(err)
		}
		compared := -1 // that of the stamp of the state
		for _, one := range w.server.questions.since() {
			if strings.HasSuffix(one, "STREAM.MSG.GET."+w.prefix.LogStream()) {
				compared++
			}
		}
		if compared != tt.compared {
			t.Errorf("of %d outputs the messages of %d are compared, want %d", tt.outputs, compared, tt.compared)
		}
		w.tail.Release()
	}
}

// TestG7_ASnapshotThatCannotBeReadIsNotDamaged: nothing is known of it, and an older one must not take its place.
func TestG7_ASnapshotThatCannotBeReadIsNotDamaged(t *testing.T) {
	s := newServer(t)
	for _, name := range []string{"2.manifest", "2.0"} {
		w := s.newWorld(t)
		w.state.Offset, w.objects.damaged = 3, name
		w.manifest(8)
		w.manifest(7)
		w.truncate(w.streams.Log, 5)
		e := w.store()
		ctx, stop := context.WithCancel(t.Context())
		w.objects.lost = func() error { stop(); return errLost } // or it is read again for long
		if v, err := w.examine(ctx, e, false); !errors.Is(err, errLost) || streams.AsRefusal(err) != nil {
			t.Errorf("%s: %s, %v", name, w.summary(v, err), err)
		}
	}
}

// TestG12_AnExaminationReadsUpToTheFence: behind its fence the owner needs all that the stream of events has before
// that, also where a server that answers does not have it yet. And it does not wait for ever.
func TestG12_AnExaminationReadsUpToTheFence(t *testing.T) {
	w := newServer(t).newWorld(t)
	e := w.store()
	w.tail.Hold()
	v, err := e.Examine(t.Context(), w.facts())
	if err != nil {
		t.Fatal(err)
	}
	if v, err := e.Again(t.Context(), v, 4); err == nil || v.Refusal != nil {
		t.Errorf("the stream ends before the fence: %v, %v", v.Refusal, err)
	}
	if v, err = e.Again(t.Context(), v, 3); err != nil ||
		w.summary(v, nil) != "goes on: published 5, last output 3, tail 8" {
		t.Errorf("%s, %v", w.summary(v, nil), err)
	}
	w.limit = 1
	if _, err := w.store().Examine(t.Context(), w.facts()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beyond its limit: %v", err)
	}
}
