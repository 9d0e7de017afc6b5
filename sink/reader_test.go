package sink_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// want is a document as the reader must return it.
func (r *rig) want(collection, id string, d store.Stored) sink.Document {
	w := sink.Document{ID: id, Etag: wire.Etag(d.Header.Etag), Ts: wire.Time(d.Header.Ts), Target: d.Header.Target,
		Clock: wire.Time(d.Header.Clock().Begin()), Trace: d.Header.Trace, Body: []byte(d.Body)}
	if at := wire.Time(d.Header.Created); at != w.Clock {
		w.Created = at
	}
	if at := wire.Time(d.Header.Absolute); at != 0 {
		w.Deadline = &at
	}
	if at := wire.Time(d.Header.NotAfter); at != 0 {
		w.NotAfter = &at
	}
	if at, ok := d.Header.Clock().Deadline(r.Configs[collection].History.Current()); ok {
		w.ExpiresAt = (*wire.Time)(&at)
	}
	return w
}

// compare compares every answer of the reader with the model, at an instant.
func (r *rig) compare(collection string, now int64) {
	r.T.Helper()
	live := r.Live(collection, now)
	var wanted []sink.Document
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(r.Docs[collection])) {
		ids = append(ids, id)
		d, err := r.Reader.Get(ctx, collection, id)
		l, ok := live[id]
		if !ok {
			wantErr(r.T, err, sink.ErrNotFound, "get "+id)
			continue
		}
		w := r.want(collection, id, l)
		wanted = append(wanted, w)
		if diff := cmp.Diff(w, d); err != nil || diff != "" {
			r.T.Errorf("get %s: %v\n%s", id, err, diff)
		}
	}
	many, err := r.Reader.GetMany(ctx, collection, append([]string{"missing"}, ids...))
	if diff := cmp.Diff(wanted, slices.Clip(many)); err != nil || diff != "" && len(wanted)+len(many) > 0 {
		r.T.Errorf("get many: %v\n%s", err, diff)
	}
	for _, limit := range []int{1, 3, wire.MaxListLimit} {
		times, _ := r.list(collection, sink.ListOptions{Limit: limit})
		for id, n := range times {
			if _, ok := live[id]; !ok || n != 1 {
				r.T.Errorf("the list has %s %d times; it is live: %t", id, n, ok)
			}
		}
		if len(times) != len(live) {
			r.T.Errorf("the list has %d documents, want %d", len(times), len(live))
		}
	}
	for _, limit := range []int{2, wire.MaxListLimit} {
		if got, want := r.byDeadline(collection, limit), r.expiringIn(collection, now, math.MaxInt64); !slices.Equal(got,
			want) {
			r.T.Errorf("by deadline there are %q, want %q", got, want)
		}
	}
	count, err := r.Reader.Count(ctx, collection)
	if want := (wire.CountReply{Live: int64(len(live)),
		Expired: int64(len(r.Docs[collection]) - len(live))}); err != nil || !cmp.Equal(count, want) {
		r.T.Errorf("count is %+v, %v; want %+v", count, err, want)
	}
	r.compareForecast(collection, now, 7, 31*time.Second)
	for _, d := range []ttlrules.Default{ttlrules.Off, ttlrules.NoDefault, 1, 20} {
		r.compareChange(collection, now, d)
	}
}

// byDeadline are the ids of a list by deadline, of all pages.
func (r *rig) byDeadline(collection string, limit int) (ids []string) {
	r.T.Helper()
	opts := sink.ListOptions{Order: wire.ByDeadline, Limit: limit}
	for {
		page, err := r.Reader.List(ctx, collection, opts)
		if err != nil {
			r.T.Fatalf("list by deadline: %v", err)
		}
		for _, d := range page.Documents {
			ids = append(ids, d.ID)
		}
		if opts.Continuation = page.Continuation; opts.Continuation == "" {
			return ids
		}
	}
}

// list reads all pages, and counts in how many of them each document was.
func (r *rig) list(collection string, opts sink.ListOptions) (times map[string]int, pages int) {
	r.T.Helper()
	times = map[string]int{}
	for {
		page, err := r.Reader.List(ctx, collection, opts)
		if err != nil {
			r.T.Fatalf("list: %v", err)
		}
		pages++
		for _, d := range page.Documents {
			times[d.ID]++
		}
		if len(page.Documents) > opts.Limit {
			r.T.Errorf("a page has %d documents: the limit is %d", len(page.Documents), opts.Limit)
		}
		if page.Continuation == "" {
			return times, pages
		}
		opts.Continuation = page.Continuation
	}
}

// compareForecast compares a forecast with what the rules say of each document.
func (r *rig) compareForecast(collection string, now int64, buckets int, within time.Duration) {
	r.T.Helper()
	f, err := r.Reader.Forecast(ctx, collection, sink.ForecastOptions{Buckets: buckets, Within: within})
	if err != nil || len(f.Buckets) != buckets {
		r.T.Fatalf("forecast: %+v, %v", f, err)
	}
	if from, until := f.Buckets[0].From, f.Buckets[buckets-1].Until; int64(from) != now ||
		int64(until) != now+within.Milliseconds() {
		r.T.Errorf("the forecast is from %v to %v, want %v and %s more", from, until, wire.Time(now), within)
	}
	for i, b := range f.Buckets {
		want := int64(0)
		for _, d := range r.Live(collection, now) {
			x, ok := r.Configs[collection].History.ExpiredAt(d.Header.Clock())
			if ok && x.At > int64(b.From) && x.At <= int64(b.Until) {
				want++
			}
		}
		if b.Count != want {
			r.T.Errorf("%d expire from %v to %v, want %d", b.Count, b.From, b.Until, want)
		}
		if i > 0 && b.From != f.Buckets[i-1].Until {
			r.T.Errorf("bucket %d does not begin where the one before ends", i)
		}
	}
}

// TestG2_NeverAtItsDeadline reads a millisecond before a deadline, at it and a millisecond
// after it: by the watermark and (on the embedded Redis, whose clock can be set) by the clock. The later
// of the two decides.
//
// Goes red if the reader judges by only one of the two, by its own clock, or with < instead of
// <=.
func TestG2_NeverAtItsDeadline(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for off := int64(-1); off <= 1; off++ {
			// By the log time.
			check := func(r *rig, now int64) {
				r.Put("orders", "inherit", store.Header{Ts: far - 60_000, Etag: 1}, `{"a":1}`)
				r.Put("orders", "own", store.Header{Ts: far - 5_000, Etag: 2, TTL: 5}, `{"a":2}`)
				r.Put("orders", "never", store.Header{Ts: 1, Etag: 3, TTL: -1}, `{"a":3}`)
				r.Put("orders", "later", store.Header{Ts: far, Etag: 3}, `{"a":4}`)
				r.WithDefault("orders", 0, 60)
				if live := r.Live("orders", now); (len(live) == 4) != (off < 0) {
					t.Fatalf("the model has %d live documents", len(live))
				}
				r.compare("orders", now)
			}
			check(newRig(t, s, 3, far+off), far+off)
			if s.Mini == nil {
				continue
			}
			s.Mini.SetTime(time.UnixMilli(far + off))
			check(newRig(t, s, 3, 1_000_000), far+off)
			s.Mini.SetTime(time.UnixMilli(far + off - 1000)) // the clock is behind the log
			check(newRig(t, s, 3, far+off), far+off)
			// Less than a millisecond before the deadline is before the deadline.
			s.Mini.SetTime(time.UnixMilli(far + off).Add(999 * time.Microsecond))
			check(newRig(t, s, 3, 1_000_000), far+off)
		}
	})
}

// TestG2_TheServersClock: a document expires by the clock of a real Redis too, without a commit.
//
// Goes red if get.lua does not return the server's time, or if the reader takes the wrong part of
// it.
func TestG2_TheServersClock(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		now := time.Now().UnixMilli()
		if s.Mini != nil {
			s.Mini.SetTime(time.UnixMilli(now))
		}
		r := newRig(t, s, 2, 1_000_000)
		r.WithDefault("orders", 0, 60)
		r.Put("orders", "old", store.Header{Ts: now - 61_000, Etag: 1}, "{}")
		r.Put("orders", "new", store.Header{Ts: now, Etag: 2}, "{}")
		_, err := r.Reader.Get(ctx, "orders", "old")
		wantErr(t, err, sink.ErrNotFound, "get what is a second over its time")
		if _, err := r.Reader.Get(ctx, "orders", "new"); err != nil {
			t.Errorf("get what has a minute: %v", err)
		}
	})
}

// TestG5_ExpiredIsFinal: a document that expired under a former default is not read again under
// a longer one, none, or off, before it is reaped.
//
// Goes red if the reader judges by the current default alone.
func TestG5_ExpiredIsFinal(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for _, next := range []ttlrules.Default{ttlrules.Off, ttlrules.NoDefault, 3600} {
			r := newRig(t, s, 2, far)
			for i := range 20 {
				r.Put("orders", fmt.Sprint("i", i), store.Header{Ts: far - int64(i)*1000, Etag: 1}, "{}")
				r.Put("orders", fmt.Sprint("o", i), store.Header{Ts: far - int64(i)*1000, Etag: 1, TTL: ttlrules.TTL(i + 1)}, "{}")
			}
			r.WithDefault("orders", 0, 10)
			r.WithDefault("orders", far-2000, next)
			if live := len(r.Live("orders", far)); live == 0 || live == 40 {
				t.Fatalf("the model has %d live documents", live)
			}
			r.compare("orders", far)
		}
	})
}

// TestG6_AConfigurationWritesNoDocument: a change of the default costs one script that writes a
// few fields, however many documents there are.
//
// Goes red if a commit of a configuration writes documents or an index.
func TestG6_AConfigurationWritesNoDocument(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		r.WithDefault("orders", 0, 60)
		r.PutMany("orders", 5000, far-30_000)
		before := r.Dump()
		r.WithDefault("orders", far, 10)
		after := r.Dump()
		for _, key := range []string{"docs:orders", "inherit:orders"} {
			if before[r.Key(0, key)] != after[r.Key(0, key)] {
				t.Errorf("%s was changed", key)
			}
		}
		count, err := r.Reader.Count(ctx, "orders")
		if err != nil || !cmp.Equal(count, wire.CountReply{Expired: 5000}) {
			t.Errorf("count is %+v, %v", count, err)
		}
		if s.Mini == nil {
			calls := commandCalls(t, s.Client)
			r.WithDefault("orders", far, 20)
			for name, n := range commandCalls(t, s.Client) {
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

// TestForecast compares forecasts of several defaults, buckets and durations with the model, and
// tests the limits.
func TestForecast(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 4, far)
		for i := range 300 {
			r.Put("orders", strconv.Itoa(i), store.Header{Ts: far - int64(i)*331, Etag: 1, TTL: ttlrules.TTL(i%4) * 13}, "{}")
		}
		for _, d := range []ttlrules.Default{ttlrules.Off, 60, 10, ttlrules.NoDefault, 120, ttlrules.Off} {
			r.WithDefault("orders", far, d)
			for _, buckets := range []int{1, 2, 7} {
				r.compareForecast("orders", far, buckets, time.Minute+7*time.Millisecond)
				r.compareForecast("orders", far, buckets, ttlrules.MaxSeconds*time.Second)
			}
		}
		r.WithDefault("orders", far, 90)
		r.compareForecast("orders", far, wire.MaxBuckets, time.Minute+7*time.Millisecond)
		f, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{})
		if err != nil || len(f.Buckets) != wire.DefaultBuckets ||
			int64(f.Buckets[9].Until) != far+wire.DefaultWithin.Milliseconds() {
			t.Errorf("the default forecast is %+v, %v", f, err)
		}
		for _, bad := range []struct {
			buckets int
			within  time.Duration
		}{{-1, 0}, {wire.MaxBuckets + 1, 0}, {10, 9 * time.Millisecond}, {1, -1}, {1, ttlrules.MaxSeconds*time.Second + 1}} {
			_, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Buckets: bad.buckets, Within: bad.within})
			wantErr(t, err, sink.ErrInvalidRequest, fmt.Sprint("forecast ", bad))
		}
	})
}

func TestReadConfig(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 3, far)
		expect := func(want wire.Config) {
			t.Helper()
			got, err := r.Reader.Config(ctx, "orders")
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("config: %v\n%s", err, diff)
			}
		}
		minus, hour := int32(-1), int32(3600)
		expect(wire.Config{IndexingMode: wire.Consistent})
		r.WithDefault("orders", 0, ttlrules.NoDefault)
		expect(wire.Config{IndexingMode: wire.Consistent, DefaultTTL: &minus})
		r.WithDefault("orders", 9, 3600)
		expect(wire.Config{IndexingMode: wire.Consistent, DefaultTTL: &hour})
		r.Configure("orders", &store.Config{NoIndex: true})
		expect(wire.Config{IndexingMode: wire.NoIndex})
		r.Configure("orders", nil)
		expect(wire.Config{IndexingMode: wire.Consistent})
	})
}

// TestGetManyRepeats: GetMany returns a document twice if its id is asked for twice, in order.
func TestGetManyRepeats(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 4, far)
		for _, id := range []string{"a", "b", "ü/.*", "c"} {
			r.Put("orders", id, store.Header{Ts: far, Etag: 1}, "{}")
		}
		found, err := r.Reader.GetMany(ctx, "orders", []string{"c", "x", "a", "ü/.*", "c", "c", "b", "x", "a"})
		var ids []string
		for _, d := range found {
			ids = append(ids, d.ID)
		}
		if want := []string{"c", "a", "ü/.*", "c", "c", "b", "a"}; err != nil || !slices.Equal(ids, want) {
			t.Errorf("found %q, %v; want %q", ids, err, want)
		}
		if found, err := r.Reader.GetMany(ctx, "orders", nil); err != nil || len(found) > 0 {
			t.Errorf("found %v, %v of nothing", found, err)
		}
	})
}

// late holds back one reply of a script until release is closed.
type late struct {
	nth     int32 // which reply
	replies atomic.Int32
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
		if err == nil && strings.HasPrefix(cmd.Name(), "evalsha") && l.replies.Add(1) == l.nth {
			close(l.arrived)
			<-l.release
		}
		return err
	}
}

// lateReader is another reader, of which one reply is late.
func (r *rig) lateReader(t *testing.T, nth int32) (*sink.Reader, *late) {
	t.Helper()
	l := &late{nth: nth, arrived: make(chan struct{}), release: make(chan struct{})}
	client := redis.NewClient(r.Client.Options())
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(l)
	reader, err := sink.NewReader(client, sink.ReaderOptions{Prefix: r.Prefix, Shards: r.N})
	if err != nil {
		t.Fatal(err)
	}
	return reader, l
}

// TestALateReplyIsNotAnOlderState: of two reads at the same time, the reply that the server sent
// first may arrive last. The reader must not conclude that the shard went back.
func TestALateReplyIsNotAnOlderState(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, "{}")
		if _, err := r.Reader.Get(ctx, "orders", "a"); err != nil { // the script is known to the server
			t.Fatal(err)
		}
		reader, l := r.lateReader(t, 1)
		done := make(chan error)
		go func() { _, err := reader.Get(ctx, "orders", "a"); done <- err }()
		<-l.arrived
		r.Put("orders", "b", store.Header{Ts: far, Etag: 2}, "{}")
		if _, err := reader.Get(ctx, "orders", "b"); err != nil {
			t.Error(err)
		}
		close(l.release)
		if err := <-done; err != nil {
			t.Errorf("the read that was answered first: %v", err)
		}
		// What it has seen is not forgotten over it.
		s.Client.HSet(ctx, r.Key(0, "state"), "offset", 0)
		_, err := reader.Get(ctx, "orders", "a")
		wantErr(t, err, sink.ErrUnavailable, "a state that has gone back")
		s.Client.HSet(ctx, r.Key(0, "state"), "log", "another")
		if _, err := reader.Get(ctx, "orders", "a"); err != nil {
			t.Errorf("a log that was made anew: %v", err)
		}
	})
}

// TestRedisIsGone: every read fails, and within its context's deadline.
func TestRedisIsGone(t *testing.T) {
	calls := func(r *rig, ctx context.Context) map[string]error {
		errs := map[string]error{}
		_, errs["get"] = r.Reader.Get(ctx, "orders", "a")
		_, errs["get many"] = r.Reader.GetMany(ctx, "orders", []string{"a"})
		_, errs["list"] = r.Reader.List(ctx, "orders", sink.ListOptions{})
		_, errs["count"] = r.Reader.Count(ctx, "orders")
		_, errs["forecast"] = r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Buckets: 1, Within: time.Hour})
		_, errs["config"] = r.Reader.Config(ctx, "orders")
		_, errs["collections"] = r.Reader.Collections(ctx, sink.CollectionsOptions{})
		return errs
	}
	t.Run("stopped", func(t *testing.T) {
		server := redistest.Start(t)
		r := newRig(t, server, 2, far)
		server.Client.ShutdownNoSave(ctx)
		for name, err := range calls(r, ctx) {
			if err == nil || errors.Is(err, sink.ErrNotFound) || errors.Is(err, sink.ErrUnavailable) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	})
	t.Run("silent", func(t *testing.T) {
		server := redistest.Start(t)
		r := newRig(t, server, 2, far)
		server.Pause(t)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		began := time.Now()
		for name, err := range calls(r, ctx) {
			if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: error %v", name, err)
			}
		}
		if took := time.Since(began); took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestReadsAreCounted: the store counts the round trips of reads, whatever is read, and not what an
// owner does. Miniredis does not count.
func TestReadsAreCounted(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		r := newRig(t, s, 1, far)
		r.WithDefault("orders", far, 20)
		r.Put("orders", "1", store.Header{Ts: far, Etag: 1}, "{}")
		kept := store.New(s.Client, r.Prefix, 0, 1)
		before, err := kept.Reads(ctx)
		if onMiniredis(t) {
			if err == nil {
				t.Error("it has counted")
			}
			return
		}
		const gets, counts = 7, 5
		for range gets {
			_, err2 := r.Reader.Get(ctx, "orders", "1")
			err = errors.Join(err, err2)
		}
		for range counts { // of two round trips each
			_, err2 := r.Reader.Count(ctx, "orders")
			err = errors.Join(err, err2)
		}
		for range 9 {
			_, err2 := kept.Due(ctx, r.At[0].Version, nil, 1, 1, false)
			err = errors.Join(err, err2, kept.Verify(ctx, r.At[0].Version, nil))
		}
		after, err2 := kept.Reads(ctx)
		if err = errors.Join(err, err2); err != nil || after-before != gets+2*counts {
			t.Errorf("%d reads, and %d are counted (%v)", gets+2*counts, after-before, err)
		}
	})
}
