//go:build held

package sink_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/integration/harness/storetest"
	"github.com/seed18712806/lapse/integration/held"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestHeldReads_Restart: Redis loses everything between two calls of a read, and another log with another number of
// shards is applied there. The read returns what was there before, what is there now, or ErrUnavailable, and soon what
// is there now.
//
// It fails if a document is taken for missing, or a count is of both.
func TestHeldReads_Restart(t *testing.T) {
	ids := []string{"001", "002", "003", "004", "005", "006", "007", "008"}
	within := sink.ForecastOptions{Within: time.Hour, Buckets: 2}
	for operation, read := range map[string]func(r *sink.Reader) (any, error){
		"sink.Reader.Get": func(r *sink.Reader) (any, error) {
			d, err := r.Get(ctx, "orders", "001")
			return string(d.Body), err
		},
		"sink.Reader.GetMany": func(r *sink.Reader) (any, error) {
			all, err := r.GetMany(ctx, "orders", ids)
			text := ""
			for _, d := range all {
				text += d.ID + string(d.Body)
			}
			return text, err
		},
		"sink.Reader.Config":      func(r *sink.Reader) (any, error) { return r.Config(ctx, "orders") },
		"sink.Reader.Count":       func(r *sink.Reader) (any, error) { return r.Count(ctx, "orders") },
		"sink.Reader.Collections": func(r *sink.Reader) (any, error) { return r.Collections(ctx, sink.CollectionsOptions{}) },
		"sink.Reader.Forecast":    func(r *sink.Reader) (any, error) { return r.Forecast(ctx, "orders", within) },
	} {
		t.Run(strings.TrimPrefix(operation, "sink."), func(t *testing.T) {
			held.Each(t, operation, held.Restart, func(t *testing.T, during func(func())) {
				s := redistest.StartMini(t)
				r := newRig(t, s, heldShards, far)
				places := r.fillHeld(false)
				opts := sink.ReaderOptions{Prefix: r.Prefix}
				other, err := sink.NewReader(s.Client, opts)
				if err != nil {
					t.Fatal(err)
				}
				before, err := read(other)
				if err != nil {
					t.Fatal(err)
				}
				reader, err := sink.NewReader(s.Client, opts) // it finds the number of shards within the read
				if err != nil {
					t.Fatal(err)
				}
				during(func() { r.makeAnew(2, places, false) })
				got, err := read(reader)
				if err != nil {
					wantErr(t, err, sink.ErrUnavailable, "a read during which Redis has lost everything")
				}
				failed := err != nil
				var after any
				redistest.WaitFor(t, "the reader finds the new shards", func() bool {
					if after, err = read(reader); err != nil && !errors.Is(err, sink.ErrUnavailable) {
						t.Fatal(err)
					}
					return err == nil
				})
				if !failed && !cmp.Equal(got, before) && !cmp.Equal(got, after) {
					t.Errorf("the read returned\n%+v\nbefore it was\n%+v\nand after it\n%+v", got, before, after)
				}
			})
		})
	}
}

// TestHeldRun: a document is written, and read by another call of the same reader, before the reply to a call is
// examined. The reply is older than the state that the reader has seen by then, and is returned.
//
// It fails if a reply counts as a loss because another one has overtaken it.
func TestHeldRun(t *testing.T) {
	held.Each(t, "sink.shards.run", held.Write, func(t *testing.T, during func(func())) {
		r := newRig(t, redistest.StartMini(t), 1, far)
		r.WithDefault("orders", 0, -1)
		r.Put("orders", "a", store.Header{Ts: far, Etag: 1}, `{"n":1}`)
		during(func() {
			r.Put("orders", "a", store.Header{Ts: far, Etag: 2}, `{"n":2}`)
			if d, err := r.Reader.Get(ctx, "orders", "a"); err != nil || string(d.Body) != `{"n":2}` {
				t.Errorf("the other read: %s, %v", d.Body, err)
			}
		})
		if d, err := r.Reader.Get(ctx, "orders", "a"); err != nil || string(d.Body) != `{"n":1}` {
			t.Errorf("the read that was overtaken: %s, %v", d.Body, err)
		}
	})
}

// TestHeldAsk: a collection is configured after a shard was asked about it. The reader says that it did not exist, and
// names no other one, least of all itself; the next read finds it.
//
// It fails if the reader asks whether the collection was meant that it says does not exist.
func TestHeldAsk(t *testing.T) {
	for _, operation := range []string{"sink.shards.ask", "sink.shards.exists"} {
		t.Run(strings.TrimPrefix(operation, "sink.shards."), func(t *testing.T) {
			held.Each(t, operation, held.Write, func(t *testing.T, during func(func())) {
				r := &rig{storetest.New(t, redistest.StartMini(t), 2, far)} // collections are not open
				configured := false
				during(func() { r.WithDefault("orders", 0, -1); configured = true })
				_, err := r.Reader.Get(ctx, "orders", "a")
				wantErr(t, err, sink.ErrNoCollection, "a read of a collection that did not exist")
				if err != nil && strings.Contains(err.Error(), "Did you mean") {
					t.Errorf("the error is %v", err)
				}
				if _, err = r.Reader.Get(ctx, "orders", "a"); !errors.Is(err, sink.ErrNotFound) ||
					errors.Is(err, sink.ErrNoCollection) == configured {
					t.Errorf("the next read: %v", err)
				}
			})
		})
	}
}

// first calls do within the first pipeline of a client.
type first struct {
	redis.Hook
	done atomic.Bool
	do   func()
}

func (f *first) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (f *first) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (f *first) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, all []redis.Cmder) error {
		err := next(ctx, all)
		if f.done.CompareAndSwap(false, true) { // what it does has a pipeline too
			f.do()
		}
		return err
	}
}

// TestHeldAll: while a read looks for the number of shards, another read finds it, and then lapse is made anew with
// another number. The first read returns what is there now, or ErrUnavailable, and the next one what is there now.
//
// It fails if the reader keeps a number of shards that is no longer so, and takes documents for missing.
func TestHeldAll(t *testing.T) {
	held.Each(t, "sink.Reader.all", held.Restart, func(t *testing.T, during func(func())) {
		s := redistest.StartMini(t)
		r := newRig(t, s, heldShards, far)
		places := r.fillHeld(false)
		client := redis.NewClient(s.Client.Options())
		t.Cleanup(func() { _ = client.Close() })
		reader, err := sink.NewReader(client, sink.ReaderOptions{Prefix: r.Prefix})
		if err != nil {
			t.Fatal(err)
		}
		client.AddHook(&first{do: func() {
			if _, err := reader.Get(ctx, "orders", "001"); err != nil {
				t.Errorf("the other read: %v", err)
			}
		}})
		during(func() { r.makeAnew(2, places, false) })
		if _, err := reader.Get(ctx, "orders", "001"); err != nil {
			wantErr(t, err, sink.ErrUnavailable, "a read during which lapse is made anew")
		}
		for id := range places {
			if _, err := reader.Get(ctx, "orders", id); err != nil {
				t.Errorf("the next read, of %s: %v", id, err)
			}
		}
	})
}

// TestHeldCounts: the default is changed between the two calls of a count, so that other documents are expired. The
// counts are by one configuration: of before or of after.
//
// It fails if the ranges of one configuration are counted, and documents judged by another one.
func TestHeldCounts(t *testing.T) {
	const documents = 100
	count := func(r *rig) (live, expired int64, err error) {
		n, err := r.Reader.Count(ctx, "orders")
		return n.Live, n.Expired, err
	}
	describe := func(r *rig) (live, expired int64, err error) {
		all, err := r.Reader.Collections(ctx, sink.CollectionsOptions{})
		for _, c := range all.Collections {
			if c.Name == "orders" {
				return c.Live, c.Expired, err
			}
		}
		return 0, 0, err
	}
	forecast := func(r *rig) (live, expired int64, err error) {
		f, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Within: 24 * time.Hour, Buckets: 1})
		return f.Buckets[0].Count, documents - f.Buckets[0].Count, err
	}
	for name, c := range map[string]struct {
		operation string
		read      func(r *rig) (live, expired int64, err error)
	}{
		"count": {"sink.shards.counts", count}, "forecast": {"sink.shards.counts", forecast},
		"describe": {"sink.shards.describeIn", describe}, "collections": {"sink.shards.collectionNames", describe},
	} {
		t.Run(name, func(t *testing.T) {
			held.Each(t, c.operation, held.Write, func(t *testing.T, during func(func())) {
				r := newRig(t, redistest.StartMini(t), 1, far)
				r.WithDefault("orders", 0, 3600)
				r.PutMany("orders", documents/2, far-100_000)
				for i := range documents / 2 { // these are expired by both
					r.Put("orders", fmt.Sprint(i), store.Header{Ts: far - 10_000, Etag: 1, TTL: 5}, `{}`)
				}
				during(func() { r.WithDefault("orders", far, 50) }) // the others too
				live, expired, err := c.read(r)
				if err != nil || live+expired != documents || live != 0 && live != documents/2 {
					t.Errorf("%d are live and %d expired (%v), of %d", live, expired, err, documents)
				}
			})
		})
	}
}

// TestHeldOutside: documents are renewed while those are counted that do not keep to limits. Each counts once, also
// one that has another place in the index by then.
//
// It fails if a document counts at its former place and at its present one.
func TestHeldOutside(t *testing.T) {
	const documents = 4500 // more than two scripts examine
	held.Each(t, "sink.shards.outside", held.Write, func(t *testing.T, during func(func())) {
		r := newRig(t, redistest.StartMini(t), 1, far)
		r.WithDefault("orders", 0, -1)
		renewed := func(n, seconds int) {
			var changes []store.Change
			for i := range n {
				changes = append(changes, r.Change("orders", fmt.Sprintf("%05d", i), heldHeader(seconds+i), []byte(`{}`)))
			}
			r.Write("orders", changes...)
		}
		renewed(documents, 100)
		during(func() { renewed(500, 10_000) })
		f, err := r.Reader.Forecast(ctx, "orders", sink.ForecastOptions{Most: 50})
		if err != nil || f.Outside == nil || *f.Outside != documents && !f.OutsideMore {
			t.Errorf("%v are outside (%v), want %d", f.Outside, err, documents)
		} else if *f.Outside > documents {
			t.Errorf("%d of %d are outside", *f.Outside, documents)
		}
	})
}

// TestHeldNames: collections are made and dropped, or Redis is started again, while the collections are listed. Those
// that exist all the time come once, in order.
//
// It fails if the names are searched on by a cursor of another process of Redis, which leaves out some.
func TestHeldNames(t *testing.T) {
	const documents, many = 20, 2500
	for _, c := range []struct {
		operation string
		kind      held.Kind
	}{{"sink.shards.scanNames", held.Write}, {"sink.shards.scanNames", held.Restart}, {"sink.shards.describe", held.Write}} {
		t.Run(c.operation+"/"+c.kind.String(), func(t *testing.T) {
			held.Each(t, c.operation, c.kind, func(t *testing.T, during func(func())) {
				server := harness.StartRedis(t, harness.RedisOptions{Persistent: true})
				r := newRig(t, redistest.Server{Client: server.Client()}, 1, far)
				configure := func(begin string, n int, config *store.Config) {
					var all []store.ConfigChange
					for i := range n {
						all = append(all, store.ConfigChange{Collection: fmt.Sprintf("%s%04d", begin, i), Config: config})
					}
					r.Commit(0, all)
				}
				config := &store.Config{History: ttlrules.History(nil).With(0, 1, 60), Etag: 1}
				configure("kept", many, config)
				configure("gone", documents, config)
				during(func() {
					if c.kind == held.Write {
						configure("more", 2*many, config)
						configure("gone", documents, nil)
						return
					}
					server.Kill()
					server.Start()
					redistest.WaitFor(t, "the client connects anew", func() bool { return r.Client.Ping(ctx).Err() == nil })
				})
				kept, last := 0, ""
				for opts := (sink.CollectionsOptions{Limit: 1000}); ; {
					page, err := r.Reader.Collections(ctx, opts)
					if err != nil {
						t.Fatal(err)
					}
					for _, one := range page.Collections {
						if one.Name <= last {
							t.Errorf("%s comes behind %s", one.Name, last)
						}
						if last = one.Name; strings.HasPrefix(one.Name, "kept") {
							kept++
						}
					}
					if opts.Continuation = page.Continuation; opts.Continuation == "" {
						break
					}
				}
				if kept != many {
					t.Errorf("%d of %d collections are listed", kept, many)
				}
			})
		})
	}
}
