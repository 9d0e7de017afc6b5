package retention

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/processor/health"
	"github.com/seed18712806/lapse/processor/internal/shard"
	"github.com/seed18712806/lapse/processor/internal/streams"
	"github.com/seed18712806/lapse/sink/wire"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(hours float64) time.Time { return start.Add(time.Duration(hours * float64(time.Hour))) }

// keeper forgets within 50 hours, so that its interval is 10 hours.
func keeper() *Keeper {
	board := health.New(slog.New(slog.DiscardHandler))
	k := New(Parts{Status: shard.NewStatus(board)}, 50*time.Hour)
	k.kept, k.oldest = &kept{Since: start.UnixMilli()}, math.MaxUint64
	return k
}

func logAt(hours float64, first, last uint64) *jetstream.StreamInfo {
	info := &jetstream.StreamInfo{Created: start, TimeStamp: at(hours)}
	info.State = jetstream.StreamState{FirstSeq: first, LastSeq: last, Msgs: last + 1 - first,
		Bytes: 1000 * (last + 1 - first), LastTime: at(hours)}
	return info
}

func taken(hours float64, offset uint64) wire.Generation {
	return wire.Generation{Begun: at(hours).UnixMilli(), Taken: at(hours).UnixMilli(), Offset: offset, Bytes: 100}
}

// TestWants: the shard gets a snapshot when its last is an interval old, when the log has grown, when
// somebody asks, and in place of a damaged one; and none while nothing is left that should be gone.
func TestWants(t *testing.T) {
	clean := func(k *Keeper) {
		k.generations = []wire.Generation{taken(20, 10), taken(10, 10)}
		k.kept.Log, k.kept.Objects, k.kept.Redis = edges{{at(9).UnixMilli(), 8}}, edges{{at(9).UnixMilli(), 3}},
			at(9).UnixMilli()
		k.stirred = at(8).UnixMilli()
	}
	for _, c := range []struct {
		name  string
		hours float64
		first uint64
		last  uint64
		set   func(*Keeper)
		want  bool
	}{
		{"young log", 9.9, 1, 10, nil, false},
		{"old log", 10, 1, 10, nil, true},
		{"an old snapshot", 14, 1, 10, func(k *Keeper) { k.generations = []wire.Generation{taken(4, 5)} }, true},
		{"not yet", 13.9, 1, 10, func(k *Keeper) { k.generations = []wire.Generation{taken(4, 5)} }, false},
		{"the newest counts", 14, 1, 10, func(k *Keeper) { k.generations = []wire.Generation{taken(5, 5), taken(4, 5)} },
			false},
		{"a log that has grown", 9, 1, 100_000, nil, true},
		{"a log that has grown since the last", 9, 1, 100_000, func(k *Keeper) {
			k.generations = []wire.Generation{taken(8,
				1)}
		}, true},
		{"a log that has grown less than it costs", 9, 1, 100_000, func(k *Keeper) {
			k.generations = []wire.Generation{{Offset: 1, Begun: at(8).UnixMilli(), Bytes: 50 << 20}}
		}, false},
		{"asked", 1, 1, 10, func(k *Keeper) { k.asked.Store(at(1).UnixMilli()) }, true},
		{"taken since", 1, 1, 10, func(k *Keeper) {
			k.asked.Store(at(1).UnixMilli())
			k.generations = []wire.Generation{taken(1, 5)}
		}, false},
		{"damaged", 1, 1, 10, func(k *Keeper) { k.tries.anew = 2 }, true},
		{"failed just before", 1, 1, 10, func(k *Keeper) { k.tries = tries{anew: 1, until: at(1.1)} }, false},
		{"clean", 40, 10, 10, clean, false},
		{"clean but for Redis", 40, 10, 10, func(k *Keeper) { clean(k); k.kept.Redis = at(7).UnixMilli() }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keeper()
			k.stirred = at(c.hours).UnixMilli()
			if c.set != nil {
				c.set(k)
			}
			if got := k.wants(logAt(c.hours, c.first, c.last)); got != c.want {
				t.Errorf("a snapshot is wanted: %t", got)
			}
		})
	}
}

// TestReport: the report is a bound for each place. Bytes that are in a file of before the last edges
// count until the file is gone.
func TestReport(t *testing.T) {
	k := keeper()
	if r := k.Known(at(0)); r != nil {
		t.Errorf("before anything is known: %+v", r)
	}
	hours := func(place string, now float64) float64 { return k.Known(at(now)).Oldest[place] / 3600 }
	k.seen, k.stirred = logAt(30, 1, 100), at(30).UnixMilli()
	if got := hours(inLog, 30); got != 30 {
		t.Errorf("without snapshots the log is clean for %v hours", got)
	}
	k.generations = []wire.Generation{taken(25, 90), taken(15, 50)}
	k.kept.Log = edges{{at(5).UnixMilli(), 20}, {at(15).UnixMilli(), 48}, {at(25).UnixMilli(), 88}}
	k.kept.Objects = edges{{at(5).UnixMilli(), 2}, {at(15).UnixMilli(), 9}, {at(25).UnixMilli(), 12}}
	k.kept.Redis = at(20).UnixMilli()
	if got := hours(inLog, 30); got != 30 {
		t.Errorf("before the log is truncated it has bytes for %v hours", got)
	}
	k.seen = logAt(30, 50, 100)
	for place, want := range map[string]float64{inLog: 15, inSnapshots: 15, inRedis: 10} {
		if got := hours(place, 30); got != want {
			t.Errorf("%s: %v hours, want %v", place, got, want)
		}
	}
	k.stirred = at(14).UnixMilli()
	for _, place := range []string{inLog, inSnapshots, inRedis} {
		if got := hours(place, 60); got != 0 {
			t.Errorf("nothing has died since, and %s has bytes for %v hours", place, got)
		}
	}
	k.eventsAge, k.kept.Events = 40*time.Hour, edges{{at(10).UnixMilli(), 1}, {at(19).UnixMilli(), 2},
		{at(22).UnixMilli(), 3}}
	if got := hours(inEvents, 60); got != 41 {
		t.Errorf("events: %v hours", got)
	}
}

// TestProblem: the promise is broken when bytes are older than it, unless it was made later.
func TestProblem(t *testing.T) {
	k := keeper()
	k.seen, k.stirred = logAt(50, 1, 100), at(50).UnixMilli()
	if err := k.Problem(at(50)); err != nil {
		t.Errorf("in time: %v", err)
	}
	k.failure = errors.New("no disk")
	if err := k.Problem(at(50.1)); err == nil || !strings.Contains(err.Error(), "the log may have bytes of documents "+
		"that are gone for 50h6m0s, and --forget-within promises 50h0m0s") || !strings.Contains(err.Error(), "no disk") {
		t.Errorf("late: %v", err)
	}
	k.kept.Since = at(10).UnixMilli()
	if err := k.Problem(at(59)); err != nil {
		t.Errorf("the promise was made later: %v", err)
	}
	k.stirred = at(-1).UnixMilli()
	if err := k.Problem(at(99)); err != nil {
		t.Errorf("nothing has died: %v", err)
	}
}

// TestProblemOfABeginning: the keeper cannot read what it has done before. It fails if nobody learns of
// that, as nothing is known to be late.
func TestProblemOfABeginning(t *testing.T) {
	k := keeper()
	for _, when := range []float64{1, 2} {
		k.note(errors.New("no bucket"), at(when))
	}
	for hours, want := range map[float64]bool{1: false, 1.01: false, 1.02: true, 9: true} {
		if err := k.Problem(at(hours)); (err != nil) != want || want && !strings.Contains(err.Error(), "no bucket") {
			t.Errorf("after %v hours: %v", hours, err)
		}
	}
	k.note(nil, at(10))
	if err := k.Problem(at(11)); err != nil {
		t.Errorf("it has succeeded: %v", err)
	}
}

// TestPauses: pauses grow, and stay short where lapse has to forget soon.
func TestPauses(t *testing.T) {
	k := keeper()
	for failures, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second,
		100: 10 * time.Minute} {
		if got := k.pauseAfter(failures); got != want {
			t.Errorf("after %d failures %s, want %s", failures, got, want)
		}
	}
	k.within = 10 * time.Second
	if got := k.pauseAfter(9); got != 500*time.Millisecond {
		t.Errorf("of a short promise: %s", got)
	}
}

// TestNewServers: where everything is new, nothing has to go yet. Fails if a filling goes to a stream, or
// Redis writes its files, before anything can be old.
func TestNewServers(t *testing.T) {
	k := keeper()
	info := logAt(4, 1, 100)
	had, err := k.end(t.Context(), nil, at(4), info, streams.Filling{}, k.interval()/2)
	if err != nil || !slices.Equal(had, edges{{At: start.UnixMilli()}}) {
		t.Errorf("the edges of a new stream are %v, %v", had, err)
	}
	var redis rewrites
	k.Redis, k.stirred = &redis, at(4).UnixMilli()
	if err := k.rewriteRedis(t.Context(), info); err != nil || redis != 0 {
		t.Errorf("Redis has written its files %d times, %v", redis, err)
	}
}

type rewrites int

func (r *rewrites) Rewrite(context.Context) error { *r++; return nil }

// TestG12_OnDisk: the log is truncated only behind two generations that this process has known for the sync
// interval, and a snapshot begins only once the newest is on disk.
//
// It goes red if a generation counts as on disk as soon as it is recorded.
func TestG12_OnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keeper()
		k.Sync = time.Minute
		some := func(newest uint64) []wire.Generation {
			return []wire.Generation{{Generation: newest, Offset: 10 * newest, Begun: at(9).UnixMilli()},
				{Generation: newest - 1, Offset: 10 * (newest - 1)}}
		}
		check := func(when string, behind uint64, wanted bool) {
			t.Helper()
			if got := k.behind(); got != behind {
				t.Errorf("%s: the log is truncated up to %d, want %d", when, got, behind)
			}
			if got := k.wants(logAt(20, 1, 100)); got != wanted {
				t.Errorf("%s: a snapshot is wanted: %t", when, got)
			}
		}
		k.stirred = at(20).UnixMilli()
		k.put(some(2)[:1])
		time.Sleep(time.Minute)
		check("there is one", 0, true)
		k.put(some(3))
		check("the second is new", 0, false)
		time.Sleep(time.Minute - 1)
		check("it is not on disk", 0, false)
		time.Sleep(time.Nanosecond)
		check("both are on disk", 20, true)
		k.put(some(4))
		check("a third one is new", 20, false)
		time.Sleep(time.Minute)
		check("the third one is on disk", 30, true)
		k.put(nil)
		check("one is damaged", 0, true)
	})
}

// TestTurn: a log that is full has no room for a filling. Its file of an instant has ended when the log has
// stored as much in place of what it had then, and not before.
func TestTurn(t *testing.T) {
	full := func(hours float64, first, last uint64) *jetstream.StreamInfo {
		info := logAt(hours, first, last)
		info.State.Bytes = 9 << 20
		return info
	}
	k := keeper().kept
	k.turn(full(1, 100, 200))
	k.turn(full(5, 200, 300))
	if len(k.Log) > 0 {
		t.Errorf("the file has ended while a message of then is there: %v", k.Log)
	}
	k.turn(logAt(6, 201, 301))
	if len(k.Log) > 0 {
		t.Errorf("the file has ended with so little behind it: %v", k.Log)
	}
	k.turn(full(7, 201, 310))
	if !slices.Equal(k.Log, edges{{at(1).UnixMilli(), 310}}) || k.Turn != (edge{at(7).UnixMilli(), 310}) {
		t.Errorf("the edges are %v, and the next turn began with %v", k.Log, k.Turn)
	}
}

// TestReportAfterARest: nothing was left, and lapse has rested for longer than the promise. What dies then is no older
// than the end of the rest.
//
// It goes red if the report counts from the last snapshots.
func TestReportAfterARest(t *testing.T) {
	k := keeper()
	look := func(hours float64, settled bool) {
		k.saw(at(hours), settled)
		k.seen = logAt(hours, 10, 10)
	}
	look(8, false)
	k.generations = []wire.Generation{taken(20, 10), taken(10, 10)}
	k.kept.Log, k.kept.Objects, k.kept.Redis = edges{{at(9).UnixMilli(), 8}}, edges{{at(9).UnixMilli(), 3}},
		at(9).UnixMilli()
	look(21, true)
	look(500, true)
	look(501, false)
	for _, place := range []string{inLog, inSnapshots, inRedis} {
		if got := k.Known(at(502)).Oldest[place]; got < 7200 || got > 7260 {
			t.Errorf("%s has bytes for %v s, and the rest has ended 2 hours ago", place, got)
		}
	}
	if err := k.Problem(at(502)); err != nil {
		t.Errorf("after a rest: %v", err)
	}
	if err := k.Problem(at(552)); err == nil {
		t.Error("what has died after the rest is never late")
	}
}

// TestHolds: the shards share the files of the snapshots. A shard without changes takes snapshots until its last two
// lie behind what another shard has removed, and rewrites the files of Redis if it is the first.
//
// It goes red if a shard goes only by its own documents.
func TestHolds(t *testing.T) {
	k := keeper()
	k.Names.Shards = 2
	k.generations = []wire.Generation{{Generation: 8, Begun: at(20).UnixMilli(), Offset: 10},
		{Generation: 7, Begun: at(10).UnixMilli(), Offset: 10}}
	k.kept.Log, k.kept.Objects, k.kept.Redis = edges{{at(9).UnixMilli(), 8}}, edges{{at(9).UnixMilli(), 3}},
		at(9).UnixMilli()
	k.kept.Floors, k.stirred = []floor{{8, 60}, {7, 40}}, at(8).UnixMilli()
	want := func(when string, stirred float64, files edges, wanted bool) {
		t.Helper()
		k.others = map[int]kept{1: {Stirred: at(stirred).UnixMilli(), Objects: files}}
		if got := k.wants(logAt(40, 10, 10)); got != wanted {
			t.Errorf("%s: a snapshot is wanted: %t", when, got)
		}
	}
	want("the other shard is new", 1, nil, false)
	want("its files were ended before these snapshots", 8, edges{{at(9).UnixMilli(), 40}, {at(11).UnixMilli(), 70}}, false)
	want("they were ended after the older one", 8, edges{{at(7).UnixMilli(), 30}, {at(9).UnixMilli(), 41}}, true)
	want("something has died since", 9, edges{{at(9).UnixMilli(), 40}}, true)
	k.kept.Floors = k.kept.Floors[:1]
	want("it is not known where the older one lies", 8, edges{{at(9).UnixMilli(), 40}}, true)

	k.oldest, k.seen = 3, logAt(40, 10, 10)
	if k.clean(k.seen) {
		t.Error("nothing is left, and another shard still has a snapshot in the file")
	}
	k.oldest = 4
	if !k.clean(k.seen) {
		t.Error("something is left")
	}
	var redis rewrites
	k.Redis = &redis
	k.others[1] = kept{Stirred: at(9).UnixMilli()}
	if k.clean(k.seen) {
		t.Error("Redis's files have nothing of the other shard")
	}
}

// TestForget: an order to forget takes snapshots until both lie behind the files that were ended for it, of the shard
// and of the others; then it is done, and no more are taken.
func TestForget(t *testing.T) {
	k := keeper()
	k.Names.Shard, k.Names.Shards = 1, 2
	k.stirred, k.seen = at(19).UnixMilli(), logAt(20, 1, 100)
	k.generations = []wire.Generation{taken(19, 90), taken(18, 80)}
	k.forget.Store(at(20).UnixMilli())
	want := func(when string, wanted, done bool) {
		t.Helper()
		if got := k.wants(logAt(20.01, 1, 100)); got != wanted {
			t.Errorf("%s: a snapshot is wanted: %t", when, got)
		}
		if got := k.letGo(at(20).UnixMilli()); got != done {
			t.Errorf("%s: it is done: %t", when, got)
		}
	}
	want("no file was ended", true, false)
	k.kept.Log, k.kept.Objects = edges{{at(20).UnixMilli(), 100}}, edges{{at(20).UnixMilli(), 50}}
	want("no snapshot was taken since", true, false)
	k.generations = []wire.Generation{
		{Generation: 4, Begun: at(20.002).UnixMilli(), Offset: 101},
		{Generation: 3, Begun: at(20.001).UnixMilli(), Offset: 100},
	}
	k.kept.Floors = []floor{{4, 60}, {3, 50}}
	k.oldest = 50
	want("the log is not truncated, and an old snapshot is there", false, false)
	k.others = map[int]kept{0: {Objects: edges{{at(20).UnixMilli(), 55}}}}
	want("another shard has ended the file of one", true, false)
	k.kept.Floors = []floor{{4, 60}, {3, 55}}
	k.oldest, k.seen = 56, logAt(20.01, 100, 101)
	want("all is gone", false, true)
	k.others = map[int]kept{0: {Objects: edges{{at(20).UnixMilli(), 70}}}}
	want("another shard has ended a later file, and nobody asks any more", false, true)
	k.ordered.Store(time.Now().UnixMilli())
	want("somebody waits for the other shard", true, true)
	k.others = nil
	want("no other shard needs one", false, true)
}
