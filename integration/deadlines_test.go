package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/oracle"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/wire"
)

// writeDeadlines writes documents of each kind: that inherit, with a TTL of their own, with one of five
// absolute deadlines, and that never expire. It returns the ids of those that will expire, in the order
// of a list by deadline.
func (w *world) writeDeadlines(n int) (ids []string) {
	w.t.Helper()
	w.Configure("c", `{"defaultTtl":3600}`)
	at := time.Now().Add(30 * time.Minute).Truncate(time.Millisecond)
	for i := range n {
		body, header := `{}`, nats.Header{}
		switch i % 4 {
		case 0:
			body = fmt.Sprintf(`{"ttl":%d}`, 600+i%3)
		case 1:
			header.Set(wire.HeaderExpiresAt, at.Add(time.Duration(i%5)*time.Second).Format(time.RFC3339Nano))
		case 2:
			body = map[bool]string{true: `{"ttl":-1}`, false: `{}`}[i%8 == 2]
		}
		w.Send(w.Prefix.Write(wire.Create, "c", fmt.Sprint("d", i)), body, header)
	}
	live := w.verify().Model.Live(now())
	for name, d := range live {
		if d.ExpiresAt != nil {
			ids = append(ids, name.ID)
		}
	}
	at0 := func(id string) string {
		return live[oracle.Name{Collection: "c", ID: id}].ExpiresAt.String() + " " + id
	}
	slices.SortFunc(ids, func(a, b string) int { return map[bool]int{true: -1, false: 1}[at0(a) < at0(b)] })
	return ids
}

// expiring reads a list by deadline from a continuation on, in pages of a size, up to a number of
// documents.
func (w *world) expiring(ctx context.Context, continuation string, size, most int) (ids []string, next string,
	err error) {
	for len(ids) < most {
		page, err := w.reader.List(ctx, "c", sink.ListOptions{Order: wire.ByDeadline, Limit: size,
			Continuation: continuation})
		if err != nil {
			return ids, continuation, err
		}
		for _, d := range page.Documents {
			ids = append(ids, d.ID)
		}
		if continuation = page.Continuation; continuation == "" {
			break
		}
	}
	return ids, continuation, nil
}

// TestG2_DeadlinesOverShards: a list by deadline goes over all shards, in pages of any
// size, and has each document once, in order.
//
// It fails if the list goes from one shard to the next, or if a page loses the place in one of them.
func TestG2_DeadlinesOverShards(t *testing.T) {
	t.Parallel()
	w := serversOf(t, harness.RedisOptions{}, 3)
	w.start()
	want := w.writeDeadlines(160)
	for _, size := range []int{1, 7, 1000} {
		got, _, err := w.expiring(t.Context(), "", size, len(want)+1)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("pages of %d: %v, %v; want %v", size, got, err, want)
		}
	}
}

// TestG9_AListByDeadlineNeedsEachMaster: while one of three masters of Redis stands still, a list by
// deadline is an error, and not a list with holes, from its beginning and from its middle, by the reader
// and by the service. Then it goes on where it was.
//
// It fails if a shard that does not answer in time counts as one without documents, or if the list waits
// until it does.
func TestG9_AListByDeadlineNeedsEachMaster(t *testing.T) {
	t.Parallel()
	w, cluster := onCluster(t)
	want := w.writeDeadlines(120)
	begin, middle, err := w.expiring(t.Context(), "", 7, 40)
	if err != nil || middle == "" {
		t.Fatal(err)
	}
	service := readers.ByService(w.NC, w.Prefix)
	if _, err := service.Expiring(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	cluster.Nodes[redisMasters-1].Stop() // it does not have the first shard, which a list asks for the time
	for _, continuation := range []string{"", middle} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		got, _, err := w.expiring(ctx, continuation, 7, len(want))
		cancel()
		if err == nil || errors.Is(err, sink.ErrNotFound) || len(got) > 0 {
			t.Errorf("from %q on: %v, %v; want an error and no page", continuation, got, err)
		}
	}
	if got, err := service.Expiring(t.Context(), "c"); err == nil {
		t.Errorf("the service returns %d documents of %d, and no error", len(got), len(want))
	} else {
		t.Log(err)
	}
	cluster.Nodes[redisMasters-1].Continue()
	harness.Until(t, harness.Limit, "the list goes on", func(ctx context.Context) error {
		rest, _, err := w.expiring(ctx, middle, 7, len(want))
		if err == nil && !slices.Equal(append(slices.Clone(begin), rest...), want) {
			t.Errorf("the list is %v, then %v; want %v", begin, rest, want)
		}
		return err
	})
	w.lapse.Ready()
}

// TestG7_ClocksSurvive: kept clocks, absolute deadlines and each property of a configuration are the same
// after a wiped Redis, rebuilt from the log and from a snapshot, and in a restored backup; and what
// expires later has its event at the same instant.
//
// It fails if a snapshot or a backup keeps a part of the header or of the configuration alone.
func TestG7_ClocksSurvive(t *testing.T) {
	t.Parallel()
	first := servers(t, harness.RedisOptions{})
	first.start()
	first.copyLogs()
	first.Configure("c", `{"defaultTtl":3600,"minTtl":1,"maxTtl":7200,"warnBefore":[300,10],"slideOnRead":true}`)
	in := func(d time.Duration) string { return wire.Time(time.Now().Add(d).UnixMilli()).String() }
	began := first.Want(201, wire.Create, "c", "kept", `{"a":1}`)
	own := first.Want(201, wire.Create, "c", "own", `{"ttl":1800}`)
	first.Want(201, wire.Create, "c", "at", `{"a":1}`, wire.HeaderExpiresAt, in(time.Hour))
	first.Want(201, wire.Create, "c", "both", `{"a":1}`, wire.HeaderExpiresAt, in(time.Hour))
	end := first.Want(201, wire.Create, "c", "end", `{"ttl":20}`)
	first.Want(201, wire.Create, "c", "endsAt", `{}`, wire.HeaderExpiresAt, in(20*time.Second))
	after(t, now()+20)
	keep := []string{wire.HeaderClock, wire.ClockKeep}
	kept := first.Want(200, wire.Patch, "c", "kept", `{"a":2}`, keep...)
	first.Want(200, wire.Upsert, "c", "own", `{"ttl":1800}`, keep...)
	first.Want(200, wire.Touch, "c", "at", ``)
	first.Want(200, wire.Patch, "c", "both", `{"a":2}`, keep...)
	first.Want(200, wire.Patch, "c", "end", `{"a":2}`, keep...)
	endsAt := first.Want(200, wire.Touch, "c", "endsAt", ``)
	if *kept.ExpiresAt != *began.ExpiresAt || kept.Ts <= began.Ts {
		t.Fatalf("%+v, then %+v", began, kept)
	}
	ends := *endsAt.ExpiresAt - 1000
	was := first.clocked(ends)
	if want := *own.ExpiresAt; *was["own"].ExpiresAt != want || len(was) != 6 {
		t.Fatalf("own expires at %s of %s, among %d", was["own"].ExpiresAt, want, len(was))
	}
	same := func(w *world, what string) {
		t.Helper()
		for id, d := range w.clocked(ends) {
			if fmt.Sprint(d.Etag, d.Ts, *d.ExpiresAt, string(d.Body)) != fmt.Sprint(was[id].Etag, was[id].Ts,
				*was[id].ExpiresAt, string(was[id].Body)) {
				t.Errorf("%s: %s is %+v, and was %+v", what, id, d, was[id])
			}
		}
	}
	wiped := func(w *world, what string) {
		t.Helper()
		if err := w.redis.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		same(w, what)
	}
	wiped(first, "rebuilt from the log")
	first.truncate(func() {})
	wiped(first, "rebuilt from a snapshot")
	second := restoredBehind(t, first.backup(), first)
	same(second, "restored")
	wiped(second, "restored and rebuilt")
	// The clock is kept by a write after all this, too.
	again := second.Want(200, wire.Patch, "c", "kept", `{"a":3}`, keep...)
	if *again.ExpiresAt != *began.ExpiresAt {
		t.Errorf("the clock that is kept again ends at %s, not at %s", again.ExpiresAt, began.ExpiresAt)
	}
	first.before = first.copied()
	for _, w := range []*world{first, second} {
		w.ExpiryOf("c", "endsAt", endsAt.Etag, time.Minute+harness.Limit)
		for _, e := range w.Events() {
			if e.Header.Get("ce-type") != "lapse.document.expired.v1" {
				continue // it is a warning
			}
			if at := map[string]*wire.Time{"end": end.ExpiresAt,
				"endsAt": endsAt.ExpiresAt}[e.Header.Get("ce-subject")]; at != nil &&
				e.Header.Get("ce-time") != at.String() {
				t.Errorf("%s has expired at %s, and not at %s", e.Header.Get("ce-subject"), e.Header.Get("ce-time"), at)
			}
		}
		w.verify()
	}
}

// clocked reads what TestG7_ClocksSurvive has written, and its configuration, when it can be read.
// Documents whose names begin with end may be gone from ends on.
func (w *world) clocked(ends wire.Time) map[string]sink.Document {
	w.t.Helper()
	all := map[string]sink.Document{}
	harness.Until(w.t, harness.Limit, "all is there", func(ctx context.Context) error {
		config, err := w.reader.Config(ctx, "c")
		if err != nil {
			return err
		}
		if text := fmt.Sprint(*config.DefaultTTL, config.MinTTL, config.MaxTTL, config.WarnBefore,
			config.SlideOnRead); text != "3600 1 7200 [300 10] true" {
			w.t.Errorf("the configuration is %s", text)
		}
		for _, id := range []string{"kept", "own", "at", "both", "end", "endsAt"} {
			d, err := w.reader.Get(ctx, "c", id)
			if errors.Is(err, sink.ErrNotFound) && id[:3] == "end" && now() >= ends {
				continue // the machine is busy
			}
			if err != nil {
				return fmt.Errorf("%s: %w", id, err)
			}
			all[id] = d
		}
		return nil
	})
	return all
}
