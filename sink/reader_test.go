package sink_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// want is a document as a reader is to return it.
func (r *rig) want(collection, id string, d sink.Stored) sink.Document {
	w := sink.Document{ID: id, Etag: wire.Etag(d.Header.Etag), Ts: wire.Time(d.Header.Ts), Body: []byte(d.Body)}
	if at, ok := ttlrules.Deadline(d.Header.Ts, d.Header.TTL, r.configs[collection].History.Current()); ok {
		w.ExpiresAt = (*wire.Time)(&at)
	}
	return w
}

// compare holds every answer of the reader against the model at an instant.
func (r *rig) compare(collection string, now int64) {
	r.t.Helper()
	live := r.live(collection, now)
	var wanted []sink.Document
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(r.docs[collection])) {
		ids = append(ids, id)
		d, err := r.reader.Get(ctx, collection, id)
		l, ok := live[id]
		if !ok {
			wantErr(r.t, err, sink.ErrNotFound, "get "+id)
			continue
		}
		w := r.want(collection, id, l)
		wanted = append(wanted, w)
		if diff := cmp.Diff(w, d); err != nil || diff != "" {
			r.t.Errorf("get %s: %v\n%s", id, err, diff)
		}
	}
	many, err := r.reader.GetMany(ctx, collection, append([]string{"missing"}, ids...))
	if diff := cmp.Diff(wanted, slices.Clip(many)); err != nil || diff != "" && len(wanted)+len(many) > 0 {
		r.t.Errorf("get many: %v\n%s", err, diff)
	}
	for _, limit := range []int{1, 3, wire.MaxListLimit} {
		times, _ := r.list(collection, sink.ListOptions{Limit: limit})
		for id, n := range times {
			if _, ok := live[id]; !ok || n != 1 {
				r.t.Errorf("the list has %s %d times; it is live: %t", id, n, ok)
			}
		}
		if len(times) != len(live) {
			r.t.Errorf("the list has %d documents, want %d", len(times), len(live))
		}
	}
	if r.configs[collection].Building {
		return
	}
	count, err := r.reader.Count(ctx, collection)
	if want := (wire.CountReply{Live: int64(len(live)), Expired: int64(len(r.docs[collection]) - len(live))}); err != nil || count != want {
		r.t.Errorf("count is %+v, %v; want %+v", count, err, want)
	}
	r.compareForecast(collection, now, 7, 31*time.Second)
}

// compareForecast holds a forecast against what the rules say of each document.
func (r *rig) compareForecast(collection string, now int64, buckets int, within time.Duration) {
	r.t.Helper()
	f, err := r.reader.Forecast(ctx, collection, buckets, within)
	if err != nil || len(f.Buckets) != buckets {
		r.t.Fatalf("forecast: %+v, %v", f, err)
	}
	if from, until := f.Buckets[0].From, f.Buckets[buckets-1].Until; int64(from) != now || int64(until) != now+within.Milliseconds() {
		r.t.Errorf("the forecast is from %v to %v, want %v and %s more", from, until, wire.Time(now), within)
	}
	for i, b := range f.Buckets {
		want := int64(0)
		for _, d := range r.live(collection, now) {
			x, ok := r.configs[collection].History.ExpiredAt(d.Header.Ts, d.Header.TTL)
			if ok && x.At > int64(b.From) && x.At <= int64(b.Until) {
				want++
			}
		}
		if b.Count != want {
			r.t.Errorf("%d expire from %v to %v, want %d", b.Count, b.From, b.Until, want)
		}
		if i > 0 && b.From != f.Buckets[i-1].Until {
			r.t.Errorf("bucket %d does not begin where the one before ends", i)
		}
	}
}

// TestG2_NeverAtItsDeadline reads a millisecond before a deadline, at it and after
// it, by the log time and (on miniredis, whose clock can be set) by the clock: the
// later of the two counts, whichever it is.
//
// Goes red if the reader judges by one of the two alone, by its own clock, or with
// < instead of <=.
func TestG2_NeverAtItsDeadline(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		for off := int64(-1); off <= 1; off++ {
			// By the log time.
			check := func(r *rig, now int64) {
				r.put("orders", "inherit", sink.Header{Ts: far - 60_000, Etag: 1}, `{"a":1}`)
				r.put("orders", "own", sink.Header{Ts: far - 5_000, Etag: 2, TTL: 5}, `{"a":2}`)
				r.put("orders", "never", sink.Header{Ts: 1, Etag: 3, TTL: -1}, `{"a":3}`)
				r.put("orders", "later", sink.Header{Ts: far, Etag: 3}, `{"a":4}`)
				r.withDefault("orders", 0, 60)
				if live := r.live("orders", now); (len(live) == 4) != (off < 0) {
					t.Fatalf("the model has %d live documents", len(live))
				}
				r.compare("orders", now)
			}
			check(newRig(t, s, 3, far+off), far+off)
			if s.mini == nil {
				continue
			}
			s.mini.SetTime(time.UnixMilli(far + off))
			check(newRig(t, s, 3, 1_000_000), far+off)
			s.mini.SetTime(time.UnixMilli(far + off - 1000)) // the clock is behind the log
			check(newRig(t, s, 3, far+off), far+off)
			// Less than a millisecond before the deadline is before the deadline.
			s.mini.SetTime(time.UnixMilli(far + off).Add(999 * time.Microsecond))
			check(newRig(t, s, 3, 1_000_000), far+off)
		}
	})
}

// TestG2_TheServersClock: on a real Redis, too, the clock expires what no commit
// has come for.
//
// Goes red if get.lua does not read the server's time, or the reader the wrong
// part of it.
func TestG2_TheServersClock(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		now := time.Now().UnixMilli()
		if s.mini != nil {
			s.mini.SetTime(time.UnixMilli(now))
		}
		r := newRig(t, s, 2, 1_000_000)
		r.withDefault("orders", 0, 60)
		r.put("orders", "old", sink.Header{Ts: now - 61_000, Etag: 1}, "{}")
		r.put("orders", "new", sink.Header{Ts: now, Etag: 2}, "{}")
		_, err := r.reader.Get(ctx, "orders", "old")
		wantErr(t, err, sink.ErrNotFound, "get what is a second over its time")
		if _, err := r.reader.Get(ctx, "orders", "new"); err != nil {
			t.Errorf("get what has a minute: %v", err)
		}
	})
}

// TestG5_ExpiredIsFinal: what a former default expired is not read again under a
// longer one, none, or off, before it is reaped.
//
// Goes red if the reader judges by the current default alone.
func TestG5_ExpiredIsFinal(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		for _, next := range []ttlrules.Default{ttlrules.Off, ttlrules.NoDefault, 3600} {
			r := newRig(t, s, 2, far)
			for i := range 20 {
				r.put("orders", fmt.Sprint("i", i), sink.Header{Ts: far - int64(i)*1000, Etag: 1}, "{}")
				r.put("orders", fmt.Sprint("o", i), sink.Header{Ts: far - int64(i)*1000, Etag: 1, TTL: ttlrules.TTL(i + 1)}, "{}")
			}
			r.withDefault("orders", 0, 10)
			r.withDefault("orders", far-2000, next)
			if live := len(r.live("orders", far)); live == 0 || live == 40 {
				t.Fatalf("the model has %d live documents", live)
			}
			r.compare("orders", far)
		}
	})
}

// TestG6_AConfigurationWritesNoDocument: a change of the default costs one script
// that writes a few fields, however many documents there are.
//
// Goes red if a commit of a configuration touches documents or an index.
func TestG6_AConfigurationWritesNoDocument(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		r.withDefault("orders", 0, 60)
		r.putMany("orders", 5000, far-30_000)
		before := r.dump()
		r.withDefault("orders", far, 10)
		after := r.dump()
		for _, key := range []string{"docs:orders", "inherit:orders"} {
			if before[r.key(0, key)] != after[r.key(0, key)] {
				t.Errorf("%s was changed", key)
			}
		}
		count, err := r.reader.Count(ctx, "orders")
		if err != nil || count != (wire.CountReply{Expired: 5000}) {
			t.Errorf("count is %+v, %v", count, err)
		}
		if s.mini == nil {
			calls := commandCalls(t, s.client)
			r.withDefault("orders", far, 20)
			for name, n := range commandCalls(t, s.client) {
				if n -= calls[name]; n > 20 {
					t.Errorf("a change of the default takes %d calls of %s", n, name)
				}
			}
		}
	})
}

// commandCalls is how often Redis has run each command.
func commandCalls(t *testing.T, client *redis.Client) map[string]int {
	t.Helper()
	stats, err := client.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for name, text := range stats["Commandstats"] {
		var n int
		if _, err := fmt.Sscanf(text, "calls=%d", &n); err != nil {
			t.Fatal(err)
		}
		calls[name] = n
	}
	return calls
}

// TestForecast: an empty range, all of it, and its limits.
func TestForecast(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 4, far)
		for i := range 300 {
			r.put("orders", strconv.Itoa(i), sink.Header{Ts: far - int64(i)*331, Etag: 1, TTL: ttlrules.TTL(i%4) * 13}, "{}")
		}
		for _, d := range []ttlrules.Default{ttlrules.Off, 60, 10, ttlrules.NoDefault, 120, ttlrules.Off} {
			r.withDefault("orders", far, d)
			for _, buckets := range []int{1, 2, 7} {
				r.compareForecast("orders", far, buckets, time.Minute+7*time.Millisecond)
				r.compareForecast("orders", far, buckets, ttlrules.MaxSeconds*time.Second)
			}
		}
		r.withDefault("orders", far, 90)
		r.compareForecast("orders", far, wire.MaxBuckets, time.Minute+7*time.Millisecond)
		f, err := r.reader.Forecast(ctx, "orders", 0, 0)
		if err != nil || len(f.Buckets) != wire.DefaultBuckets || int64(f.Buckets[9].Until) != far+wire.DefaultWithin.Milliseconds() {
			t.Errorf("the default forecast is %+v, %v", f, err)
		}
		for _, bad := range []struct {
			buckets int
			within  time.Duration
		}{{-1, 0}, {wire.MaxBuckets + 1, 0}, {10, 9 * time.Millisecond}, {1, -1}, {1, ttlrules.MaxSeconds*time.Second + 1}} {
			_, err := r.reader.Forecast(ctx, "orders", bad.buckets, bad.within)
			wantErr(t, err, sink.ErrInvalidRequest, fmt.Sprint("forecast ", bad))
		}
	})
}

func TestReadConfig(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 3, far)
		expect := func(want wire.Config) {
			t.Helper()
			got, err := r.reader.Config(ctx, "orders")
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("config: %v\n%s", err, diff)
			}
		}
		minus, hour := int32(-1), int32(3600)
		expect(wire.Config{IndexingMode: wire.Consistent})
		r.withDefault("orders", 0, ttlrules.NoDefault)
		expect(wire.Config{IndexingMode: wire.Consistent, DefaultTTL: &minus})
		r.withDefault("orders", 9, 3600)
		expect(wire.Config{IndexingMode: wire.Consistent, DefaultTTL: &hour})
		r.configure("orders", &sink.Config{NoIndex: true})
		expect(wire.Config{IndexingMode: wire.NoIndex})
		r.configure("orders", &sink.Config{})
		// One partition is still building its index: so the collection is.
		r.commit(2, []sink.ConfigChange{{Collection: "orders", Config: &sink.Config{Building: true}}})
		expect(wire.Config{IndexingMode: wire.Consistent, IndexBuilding: true})
		r.configure("orders", nil)
		expect(wire.Config{IndexingMode: wire.Consistent})
	})
}

// TestGetManyRepeats: an id that is asked for twice is answered twice, in order.
func TestGetManyRepeats(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 4, far)
		for _, id := range []string{"a", "b", "ü/.*", "c"} {
			r.put("orders", id, sink.Header{Ts: far, Etag: 1}, "{}")
		}
		found, err := r.reader.GetMany(ctx, "orders", []string{"c", "x", "a", "ü/.*", "c", "c", "b", "x", "a"})
		var ids []string
		for _, d := range found {
			ids = append(ids, d.ID)
		}
		if want := []string{"c", "a", "ü/.*", "c", "c", "b", "a"}; err != nil || !slices.Equal(ids, want) {
			t.Errorf("found %q, %v; want %q", ids, err, want)
		}
		if found, err := r.reader.GetMany(ctx, "orders", nil); err != nil || len(found) > 0 {
			t.Errorf("found %v, %v of nothing", found, err)
		}
	})
}

// late holds back the first reply of a script until it is told.
type late struct {
	held    atomic.Bool
	arrived chan struct{}
	release chan struct{}
}

func (l *late) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *late) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (l *late) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && strings.HasPrefix(cmd.Name(), "evalsha") && l.held.CompareAndSwap(false, true) {
			close(l.arrived)
			<-l.release
		}
		return err
	}
}

// TestALateReplyIsNotAnOlderState: of two reads at the same time, the one that was
// answered first may be looked at last. Its partition has not gone back.
func TestALateReplyIsNotAnOlderState(t *testing.T) {
	onBoth(t, func(t *testing.T, s server) {
		r := newRig(t, s, 1, far)
		r.put("orders", "a", sink.Header{Ts: far, Etag: 1}, "{}")
		if _, err := r.reader.Get(ctx, "orders", "a"); err != nil { // the script is known to the server
			t.Fatal(err)
		}
		l := &late{arrived: make(chan struct{}), release: make(chan struct{})}
		client := redis.NewClient(s.client.Options())
		defer func() { _ = client.Close() }()
		client.AddHook(l)
		reader, err := sink.NewReader(client, sink.ReaderOptions{Prefix: r.prefix, Partitions: 1})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { _, err := reader.Get(ctx, "orders", "a"); done <- err }()
		<-l.arrived
		r.put("orders", "b", sink.Header{Ts: far, Etag: 2}, "{}")
		if _, err := reader.Get(ctx, "orders", "b"); err != nil {
			t.Error(err)
		}
		close(l.release)
		if err := <-done; err != nil {
			t.Errorf("the read that was answered first: %v", err)
		}
		// What it has seen is not forgotten over it.
		s.client.HIncrBy(ctx, r.key(0, "state"), "offset", -1)
		_, err = reader.Get(ctx, "orders", "a")
		wantErr(t, err, sink.ErrUnavailable, "a state that has gone back")
		s.client.HSet(ctx, r.key(0, "state"), "log", "another")
		if _, err := reader.Get(ctx, "orders", "a"); err != nil {
			t.Errorf("a log that was made anew: %v", err)
		}
	})
}

// TestRedisIsGone: every call fails, and within its context's deadline.
func TestRedisIsGone(t *testing.T) {
	calls := func(r *rig, ctx context.Context) map[string]error {
		errs := map[string]error{}
		p := r.store.Partition(0)
		_, errs["load"] = p.Load(ctx)
		errs["take"] = p.Take(ctx, sink.State{}, "v", 0)
		errs["verify"] = p.Verify(ctx, "v0", nil)
		errs["commit"] = p.Commit(ctx, r.progress(0), nil, nil)
		_, errs["due"] = p.Due(ctx, r.state[0].Version, nil, 1, 1, true)
		_, errs["read"] = p.Read(ctx, "v0", nil)
		_, _, _, errs["scan"] = p.Scan(ctx, "v0", "orders", "0", 1)
		errs["clear"] = p.Clear(ctx)
		_, errs["leftovers"] = p.Leftovers(ctx)
		errs["check"] = r.store.Check(ctx)
		_, errs["get"] = r.reader.Get(ctx, "orders", "a")
		_, errs["get many"] = r.reader.GetMany(ctx, "orders", []string{"a"})
		_, errs["list"] = r.reader.List(ctx, "orders", sink.ListOptions{})
		_, errs["count"] = r.reader.Count(ctx, "orders")
		_, errs["forecast"] = r.reader.Forecast(ctx, "orders", 1, time.Hour)
		_, errs["config"] = r.reader.Config(ctx, "orders")
		return errs
	}
	t.Run("stopped", func(t *testing.T) {
		client := startRedis(t)
		r := newRig(t, server{client: client}, 2, far)
		client.ShutdownNoSave(ctx)
		for name, err := range calls(r, ctx) {
			if err == nil || errors.Is(err, sink.ErrNotFound) || errors.Is(err, sink.ErrUnavailable) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	})
	t.Run("silent", func(t *testing.T) {
		client := startRedis(t)
		r := newRig(t, server{client: client}, 2, far)
		silence(t, client)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		for name, err := range calls(r, ctx) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: error %v", name, err)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}
