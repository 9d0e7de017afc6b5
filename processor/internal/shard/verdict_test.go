package shard

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/internal/snapshot"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/events"
	"github.com/seed18712806/lapse/sink/store"
)

// someFacts are those of a log that has messages 5 to 20, and of a state at 10.
func someFacts() *facts {
	f := &facts{LogID: "7", Log: &jetstream.StreamInfo{Created: time.Unix(0, 7)}, Events: &jetstream.StreamInfo{}}
	f.Log.State = jetstream.StreamState{FirstSeq: 5, LastSeq: 20}
	f.Events.State = jetstream.StreamState{FirstSeq: 1, LastSeq: 9}
	f.State = store.State{Version: "v", Log: "7", Offset: 10, Stamp: store.Stamp{Seq: 10, At: 100}, Events: placeOf(4,
		8).String()}
	f.Checkpoint = Checkpoint{Seq: 9, Stamp: store.Stamp{Seq: 9, At: 90}.String(), Last: placeOf(3, 7), From: placeOf(2,
		6)}
	f.Stamps = map[uint64]stamp{10: {100, true}, 9: {90, true}}
	f.Holds = map[events.Place]bool{placeOf(4, 8): true, placeOf(3, 7): true, placeOf(2, 6): true}
	return f
}

// TestG12_JudgeLog: by what the log has, and what Redis and the checkpoint remember of it, a shard can go on from a
// source, or cannot, by name, with the flag that gives it up. Nothing is removed from an empty Redis.
func TestG12_JudgeLog(t *testing.T) {
	for _, tt := range []struct {
		name    string
		facts   func(f *facts)
		from    func(f *facts) source
		kind    error // nil: it can
		accept  streams.Loss
		removes bool
	}{
		{"it fits", func(f *facts) {}, (*facts).stored, nil, "", false},
		{"the state is of another log", func(f *facts) { f.Elsewhere = true }, (*facts).stored, streams.ErrLogChanged,
			streams.LostLogEnd, true},
		{"but the shard was begun anew", func(f *facts) {
			f.Elsewhere = true
			f.Checkpoint.Anew,
				f.Checkpoint.Origin = 5, 4
		}, (*facts).stored, nil, "", false},
		{"the next message is the first", func(f *facts) { f.State.Offset = 4 }, (*facts).stored, nil, "", false},
		{"the next message is truncated", func(f *facts) { f.State.Offset = 3 }, (*facts).stored,
			streams.ErrLogTruncated, streams.LostLogBeginning, true},
		{"there is no state", func(f *facts) { f.State = store.State{} }, (*facts).stored, streams.ErrLogTruncated,
			streams.LostLogBeginning, false},
		{"damage", func(f *facts) { f.Damage = store.ErrDamaged }, (*facts).stored, streams.ErrRefused,
			streams.LostDocuments, true},
		{"damage, and the shard began there", func(f *facts) { f.Damage, f.Checkpoint.Origin = store.ErrDamaged, 4 },
			(*facts).stored, nil, "", false},
		{"it ends at the state", func(f *facts) { f.State.Offset = 20 }, (*facts).stored, nil, "", false},
		{"it ends before the state", func(f *facts) { f.State.Offset = 21 }, (*facts).stored, streams.ErrLogBehind,
			streams.LostLogEnd, true},
		{"it ends before the checkpoint", func(f *facts) { f.Checkpoint.Seq = 21 }, (*facts).stored,
			streams.ErrLogBehind, streams.LostLogEnd, true},
		{"it has another message", func(f *facts) { f.Stamps[9] = stamp{91, true} }, (*facts).stored,
			streams.ErrLogChanged, streams.LostLogEnd, true},
		{"the message was deleted", func(f *facts) { f.Stamps[9] = stamp{} }, (*facts).stored, nil, "", false},
		{"it lost a message that was applied", func(f *facts) { f.Gaps = []streams.Gap{{First: 8, Last: 10}} },
			(*facts).stored, nil, "", false},
		{"it lost a message that was not", func(f *facts) { f.Gaps = []streams.Gap{{First: 8, Last: 11}} },
			(*facts).stored, streams.ErrLogGap, streams.LostLogMessages, false},
		{"a snapshot of another end", func(f *facts) { f.Stamps[12] = stamp{1, true} }, func(*facts) source {
			return ofSnapshot(&snapshot.Manifest{Offset: 12, Stamp: store.Stamp{Seq: 12, At: 2}})
		}, streams.ErrLogChanged, streams.LostLogEnd, true},
		{"damage, and a snapshot that is too old", func(f *facts) { f.Damage = store.ErrDamaged }, func(*facts) source {
			return ofSnapshot(&snapshot.Manifest{Offset: 3})
		}, streams.ErrLogTruncated, streams.LostLogBeginning, true},
	} {
		f := someFacts()
		tt.facts(f)
		r := judgeLog(f, tt.from(f))
		if r == nil && tt.kind == nil {
			continue
		}
		if r == nil || r.Kind != tt.kind || r.Accept != tt.accept || r.Removes != tt.removes {
			t.Errorf("%s: %+v, want %v, given up by %s", tt.name, r, tt.kind, tt.accept)
		}
	}
}

// TestG12_Recall: of what is remembered of the stream of events, what the stream has lost is told, and what a person
// has given up, or what is from before the shard was begun anew, does not count.
func TestG12_Recall(t *testing.T) {
	stored, last := placeOf(4, 8), placeOf(3, 7)
	for _, tt := range []struct {
		name  string
		facts func(f *facts)
		lost  int
		seq   uint64 // of the checkpoint that counts
		last  uint64 // where the last output is
	}{
		{"all is there", func(f *facts) {}, 0, 9, 4},
		{"the last output of the state is lost", func(f *facts) { f.Holds[stored] = false }, 1, 9, 3},
		{"that of the checkpoint is lost", func(f *facts) { f.Holds[last] = false }, 1, 0, 0},
		{"both are", func(f *facts) { f.Holds[last], f.Holds[stored] = false, false }, 2, 0, 0},
		{"a person gives them up", func(f *facts) {
			f.Holds[last], f.Holds[stored], f.Given = false, false,
				[]events.Place{last, stored}
		}, 0, 9, 0},
		{"a person gives another one up", func(f *facts) { f.Holds[stored], f.Given = false, []events.Place{last} }, 1,
			9, 3},
		{"it was given up when the state was older", func(f *facts) {
			f.Holds[stored], f.Checkpoint.GivenUp = false,
				11
		}, 0, 9, 3},
		{"it was given up when the state was there", func(f *facts) {
			f.Holds[stored], f.Checkpoint.GivenUp = false,
				10
		}, 1, 9, 3},
		{"the state is from before the shard was begun anew", func(f *facts) {
			f.Holds[stored],
				f.Checkpoint.Anew = false, 5
		}, 0, 9, 3},
	} {
		f := someFacts()
		tt.facts(f)
		got := recall(f, f.stored())
		if len(got.Lost) != tt.lost || got.Known.Seq != tt.seq || got.LastOutput().Seq != tt.last {
			t.Errorf("%s: %d are lost, the checkpoint is at %d, the last output at %d; want %d, %d, %d", tt.name,
				len(got.Lost), got.Known.Seq, got.LastOutput().Seq, tt.lost, tt.seq, tt.last)
		}
	}
}

// TestG7_Former: a state counts unless it is from before a person has begun the shard anew: it had applied less of
// the log than that begins with, or its last output is from before the fence of then.
func TestG7_Former(t *testing.T) {
	for _, tt := range []struct {
		anew, origin uint64
		former       bool
	}{{0, 0, false}, {4, 10, false}, {5, 10, true}, {4, 11, true}} {
		f := someFacts()
		f.Checkpoint.Anew, f.Checkpoint.Origin = tt.anew, tt.origin
		if f.former() != tt.former || f.stored().Stored == tt.former {
			t.Errorf("begun anew at %d behind message %d: %v", tt.anew, tt.origin, f.former())
		}
		f.State = store.State{}
		if f.former() {
			t.Error("nothing is stored, and it is from before")
		}
	}
}

// TestG12_JudgeNamed: a message that an output names has to be in the log, and to be the one that was there then.
func TestG12_JudgeNamed(t *testing.T) {
	for _, tt := range []struct {
		named events.Named
		kind  error
	}{
		{events.Named{Seq: 20, Since: 1, By: 1 << 40}, nil},
		{events.Named{Seq: 21}, streams.ErrLogBehind},
		{events.Named{Seq: 10, Since: 100, By: 100}, nil},
		{events.Named{Seq: 10, Since: 101, By: 200}, streams.ErrLogChanged},
		{events.Named{Seq: 10, Since: 0, By: 99}, streams.ErrLogChanged},
		{events.Named{Seq: 6, Since: 1, By: 1}, nil}, // the log does not have it any more
	} {
		var kind error
		if r := judgeNamed(someFacts(), []events.Named{tt.named}); r != nil {
			kind = r.Kind
		}
		if kind != tt.kind {
			t.Errorf("%+v: %v, want %v", tt.named, kind, tt.kind)
		}
	}
}

// TestG7_Judge: from which source a shard goes on, or why it does not, follows from how each source fits.
func TestG7_Judge(t *testing.T) {
	fits := func(from source) trial { return trial{source: from} }
	refused := func(from source, kind error) trial {
		return trial{source: from, Refusal: streams.Refuse(kind, "", "reason %d", from.Offset)}
	}
	state, beginning := source{Stored: true, Offset: 10}, source{}
	snap := func(offset uint64) source {
		return ofSnapshot(&snapshot.Manifest{Generation: offset, Offset: offset})
	}
	unfit := func(from source, why error) trial { return trial{source: from, Unfit: why} }
	lost := func(from source) trial { return trial{source: from, Lost: []events.Place{placeOf(9, 9)}} }
	none, damage := func(*facts) {}, func(f *facts) { f.Damage = store.ErrDamaged }
	for _, tt := range []struct {
		name      string
		facts     func(*facts)
		first     trial
		snapshots []trial
		again     *trial
		from      source // where it does not refuse
		kind      error
		says      string
	}{
		{"the state fits", none, fits(state), nil, nil, state, nil, ""},
		{"the log is behind, whatever snapshots say", none, refused(state, streams.ErrLogBehind), nil, nil, source{},
			streams.ErrLogBehind, "reason 10"},
		{"damage, and a snapshot", damage, fits(beginning), []trial{fits(snap(8))}, nil, snap(8), nil, ""},
		{"damage, and none", damage, fits(beginning), nil, nil, beginning, nil, ""},
		{"damage, and a damaged one", damage, fits(beginning), []trial{unfit(snap(8), snapshot.ErrDamaged)}, nil,
			beginning, nil, ""},
		{"truncated, and a snapshot", none, refused(state, streams.ErrLogTruncated), []trial{fits(snap(8))}, nil,
			snap(8), nil, ""},
		{"truncated, and an older snapshot", none, refused(state, streams.ErrLogTruncated),
			[]trial{unfit(snap(8), snapshot.ErrDamaged), fits(snap(7))}, nil, snap(7), nil, ""},
		{"truncated, and none", none, refused(state, streams.ErrLogTruncated), nil, nil, source{},
			streams.ErrLogTruncated, "reason 10; and the shard has no snapshot"},
		{"truncated, also behind the snapshot", none, refused(state, streams.ErrLogTruncated),
			[]trial{refused(snap(8), streams.ErrLogTruncated)}, nil, source{}, streams.ErrLogTruncated,
			"no snapshot can be used: the snapshot of generation 8, at sequence 8"},
		{"a snapshot has seen another end (E3)", none, refused(state, streams.ErrLogTruncated),
			[]trial{refused(snap(8), streams.ErrLogChanged)}, nil, source{}, streams.ErrLogChanged, "reason 8"},
		{"only a gap keeps a snapshot from being used (E9)", none, refused(state, streams.ErrLogTruncated),
			[]trial{refused(snap(8), streams.ErrLogGap)}, nil, source{}, streams.ErrLogGap, "reason 8"},
		{"the gap of the state comes first (E9)", none, refused(state, streams.ErrLogGap),
			[]trial{refused(snap(8), streams.ErrLogGap)}, nil, source{}, streams.ErrLogGap, "reason 10"},
		{"a gap, and a snapshot behind it", none, refused(state, streams.ErrLogGap), []trial{fits(snap(15))}, nil,
			snap(15), nil, ""},
		{"only lost outputs keep a snapshot from being used (E8)", none, refused(state, streams.ErrLogTruncated),
			[]trial{unfit(snap(8), events.ErrLost)}, nil, source{}, events.ErrLost, "cannot be published again"},
		{"outputs are lost, and a snapshot", none, lost(state), []trial{fits(snap(8))}, nil, snap(8), nil, ""},
		{"outputs are lost, and the log reaches back", none, lost(state), nil, &trial{source: beginning,
			Known: Checkpoint{Seq: 1}}, beginning, nil, ""},
		{"outputs are lost, and the log does not", none, lost(state), nil,
			&trial{Refusal: streams.Refuse(streams.ErrLogTruncated, "", "x")}, source{}, events.ErrLost,
			"the log begins at sequence 5"},
		{"outputs are lost, and the log has lost its end", none, lost(state), nil,
			&trial{Refusal: streams.Refuse(streams.ErrLogBehind, "", "x")}, source{}, streams.ErrLogBehind, "x"},
	} {
		f := someFacts()
		tt.facts(f)
		v := judge(f, tt.first, tt.snapshots, nil, tt.again)
		switch {
		case tt.kind == nil:
			if v.Refusal != nil || v.source != tt.from && (v.Snapshot == nil || tt.from.Snapshot == nil ||
				v.Offset != tt.from.Offset) {
				t.Errorf("%s: %+v, %v, want %+v", tt.name, v.source, v.Refusal, tt.from)
			}
			if v.Stored == (v.Why != nil) {
				t.Errorf("%s: why the state is not gone on from: %v", tt.name, v.Why)
			}
		case v.Refusal == nil || v.Refusal.Kind != tt.kind || !strings.Contains(v.Refusal.Error(), tt.says):
			t.Errorf("%s: %v, want %v: %s", tt.name, v.Refusal, tt.kind, tt.says)
		case errors.Is(v.Refusal, events.ErrLost) && (v.Refusal.Accept != streams.LostEvents || v.Refusal.Removes):
			t.Errorf("%s: given up by %s", tt.name, v.Refusal.Accept)
		}
		if goes := goesBack(&tt.first, tt.snapshots); goes != (tt.again != nil) {
			t.Errorf("%s: the beginning of the log is tried: %v", tt.name, goes)
		}
	}
}
