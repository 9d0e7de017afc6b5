package client_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/client/clienttest"
)

// counter is the document type of these tests.
type counter struct {
	N int `json:"n"`
}

// watched opens a collection with changes, in a lapse of its own.
func watched(t *testing.T) (*clienttest.Lapse, *client.Collection[counter]) {
	t.Helper()
	l := clienttest.Start(t, clienttest.OpenCollections)
	all, err := client.Open[counter](l.Client(), "all")
	if err != nil {
		t.Fatal(err)
	}
	if err := all.Watch(t.Context(), nil); !errors.Is(err, client.ErrNoChanges) || !strings.Contains(err.Error(),
		"lapse config all --changes") {
		t.Errorf("a collection without changes is watched: %v", err)
	}
	if _, err := all.Configure(t.Context(), client.Config{DefaultTTL: client.Never, Changes: true}); err != nil {
		t.Fatal(err)
	}
	return l, all
}

// TestG3_WatchFromTheState: a watch begins with the documents that there are, says that these are all, and
// goes on with each change, expiry and drop.
//
// It fails if the state is left out, if a change that the state has comes again, or if a kind is missing,
// such as the expiry of a document with a target.
func TestG3_WatchFromTheState(t *testing.T) {
	for name, opts := range map[string][]client.Option{"document": nil, "message": {client.Target("mail.send")}} {
		t.Run(name, func(t *testing.T) { watchFromTheState(t, opts...) })
	}
}

func watchFromTheState(t *testing.T, opts ...client.Option) {
	t.Parallel()
	l, all := watched(t)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	do := func(_ client.Written, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(all.Create(ctx, "a", counter{1}))
	do(all.Upsert(ctx, "a", counter{2}))
	do(all.Create(ctx, "b", counter{1}, append(opts, client.TTL(time.Hour))...))
	do(all.Create(ctx, "gone", counter{1}))
	do(all.Delete(ctx, "gone"))
	var got []string
	err := all.Watch(ctx, func(c client.Change[counter]) error {
		if c.ID == "gone" {
			return nil // the stream may have it behind the state
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %d", c.Kind, c.ID, c.Value.N)))
		switch c.Kind {
		case client.Current:
			do(all.Patch(ctx, "a", map[string]int{"n": 3}))
			do(all.Create(ctx, "c", counter{1}))
			do(all.Delete(ctx, "c"))
			l.Advance(2 * time.Hour)
		case client.Expires:
			do(all.Drop(ctx))
		case client.Dropped:
			stop()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > 1 && got[0] == "stored b 1" { // a list has no order
		got[0], got[1] = got[1], got[0]
	}
	want := []string{"stored a 2", "stored b 1", "current  0", "updated a 3", "created c 1", "deleted c 0", "expired b 1",
		"dropped  0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestG3_WatchesHaveNoGap: while somebody writes all the time, watches begin. Each gets every version of
// each document from the one that it began with, once.
//
// It fails if a watch goes on from the end of the stream: lapse publishes a change before it commits that,
// so the state may be older.
func TestG3_WatchesHaveNoGap(t *testing.T) {
	t.Parallel()
	_, all := watched(t)
	ctx, stop := context.WithCancel(t.Context())
	var writers, watches sync.WaitGroup
	const documents = 8
	for i := range documents {
		writers.Go(func() {
			for n := 1; ctx.Err() == nil; n++ {
				if _, err := all.Upsert(context.WithoutCancel(ctx), fmt.Sprint(i), counter{n}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 40 {
		watches.Go(func() {
			var last map[string]int
			var after int
			enough := errors.New("enough")
			watch := func(c client.Change[counter]) error {
				if was, there := last[c.ID]; there && c.Value.N != was+1 && c.Kind != client.Current {
					return fmt.Errorf("%s %s: version %d follows version %d", c.Kind, c.ID, c.Value.N, was)
				}
				if last[c.ID] = c.Value.N; c.Kind == client.Updated {
					after++
				}
				if after > 20*documents {
					return enough
				}
				return nil
			}
			// A busy Redis may not answer in time while so many watches begin. Then a watch begins anew.
			err := client.ErrUnavailable
			for began := time.Now(); errors.Is(err, client.ErrUnavailable) && time.Since(began) < limit; {
				last, after = map[string]int{}, 0
				err = all.Watch(ctx, watch)
			}
			if !errors.Is(err, enough) {
				t.Error(err)
			}
		})
	}
	watches.Wait()
	stop()
	writers.Wait()
}

// TestWatchOfOneDocument: a watch of a document has its state and its changes, and the drop, and no others.
// It resumes behind a message; where the stream does not have that, it begins anew with the state.
func TestWatchOfOneDocument(t *testing.T) {
	t.Parallel()
	l, all := watched(t)
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	for i, id := range []string{"a", "b", "a"} {
		if _, err := all.Upsert(ctx, id, counter{i}); err != nil {
			t.Fatal(err)
		}
	}
	watch := func(after *uint64, until string) (got []string, last uint64) {
		t.Helper()
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		err := l.Client().Watch(ctx, client.WatchOptions{Collection: "all", ID: "a", Changes: true, After: after},
			func(n client.Notification) error {
				one := "stored"
				switch {
				case n.Current:
					one = "current"
				case n.Changed != nil:
					one, last = n.Changed.Kind(), n.Seq
				}
				if got = append(got, one); one == until {
					stop()
				}
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
		return got, last
	}
	check := func(got []string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
	first, _ := watch(new(uint64), "updated")
	check(first, "created", "updated")
	first, last := watch(nil, "current")
	check(first, "stored", "current")
	_, last = watch(new(uint64), "updated")
	if _, err := all.Drop(ctx); err != nil {
		t.Fatal(err)
	}
	rest, _ := watch(&last, "dropped")
	check(rest, "dropped")
	if _, err := all.Configure(ctx, client.Config{Changes: true}); err != nil {
		t.Fatal(err)
	}
	last += 1000
	rest, _ = watch(&last, "current")
	check(rest, "current")
}
