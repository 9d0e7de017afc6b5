package sink_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/seed18712806/lapse/integration/harness/redistest"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/store"
	"github.com/seed18712806/lapse/sink/wire"
	"github.com/seed18712806/lapse/ttlrules"
)

// TestListOptions: options that are unknown, out of range or contradict each other are refused, also
// those that contradict the continuation; what is left out is as it was on the page before.
func TestListOptions(t *testing.T) {
	r := newRig(t, redistest.StartMini(t), 2, far)
	r.WithDefault("orders", 0, 60)
	r.PutMany("orders", 50, far)
	until, later, past := wire.Time(far+60_000), wire.Time(far+60_001), wire.Time(0)
	list := func(opts sink.ListOptions) (sink.Page, error) {
		opts.Limit = 5
		return r.Reader.List(ctx, "orders", opts)
	}
	for _, opts := range []sink.ListOptions{
		{Order: "size"}, {Until: &until}, {Within: time.Hour}, {Order: wire.ByDeadline, Until: &until, Within: time.Hour},
		{Order: wire.ByDeadline, Within: -1}, {Order: wire.ByDeadline, Within: time.Microsecond},
		{Order: wire.ByDeadline, Within: 700_000 * time.Hour},
		{Order: wire.ByDeadline, Prefix: "d"}, {Prefix: strings.Repeat("x", 256)}, {Prefix: "\xff"},
	} {
		_, err := list(opts)
		wantErr(t, err, sink.ErrInvalidRequest, fmt.Sprintf("%+v", opts))
	}
	if page, err := list(sink.ListOptions{Order: wire.ByDeadline, Until: &past}); err != nil || len(page.Documents) > 0 ||
		page.Continuation != "" {
		t.Errorf("until 1970: %d documents, %v", len(page.Documents), err)
	}
	all := []sink.ListOptions{{}, {Prefix: "doc"}, {Order: wire.ByDeadline}, {Order: wire.ByDeadline, Until: &until},
		{Order: wire.ByDeadline, Within: time.Minute}}
	for i, first := range all {
		page, err := list(first)
		if err != nil || len(page.Documents) != 5 || page.Continuation == "" {
			t.Fatalf("%+v: %d documents, %v", first, len(page.Documents), err)
		}
		for j, next := range append(all, sink.ListOptions{Order: wire.ByDeadline, Until: &later},
			sink.ListOptions{Order: wire.ByDeadline, Within: time.Hour}, sink.ListOptions{Prefix: "do"}) {
			next.Continuation = page.Continuation
			_, err := list(next)
			leftOut := j == 0 || j == 2 && i > 2
			if i == j || leftOut {
				wantErr(t, err, nil, fmt.Sprintf("%+v and then %+v", first, next))
			} else {
				wantErr(t, err, sink.ErrInvalidRequest, fmt.Sprintf("%+v and then %+v", first, next))
			}
		}
	}
}

// TestListWithoutDeadlines: where TTL is off, or on without a default, only own TTLs that count are
// listed by deadline.
func TestListWithoutDeadlines(t *testing.T) {
	redistest.OnEach(t, func(t *testing.T, s redistest.Server) {
		for d, want := range map[ttlrules.Default]string{ttlrules.Off: "[]", ttlrules.NoDefault: "[own]",
			60: "[own inherits]"} {
			r := newRig(t, s, 3, far)
			if d != ttlrules.Off {
				r.WithDefault("orders", 0, d)
			}
			r.Put("orders", "inherits", store.Header{Ts: far, Etag: 1}, "{}")
			r.Put("orders", "own", store.Header{Ts: far, Etag: 1, TTL: 5}, "{}")
			r.Put("orders", "never", store.Header{Ts: far, Etag: 1, TTL: ttlrules.Never}, "{}")
			page, err := r.Reader.List(ctx, "orders", sink.ListOptions{Order: wire.ByDeadline})
			got := []string{}
			for _, doc := range page.Documents {
				got = append(got, doc.ID)
			}
			if err != nil || fmt.Sprint(got) != want || page.Continuation != "" {
				t.Errorf("default %d: %v, want %s, %v", d, got, want, err)
			}
		}
	})
}

// TestListByDeadlineNeedsAll: a list by deadline is an error, and not one with a hole, if one shard
// does not answer.
func TestListByDeadlineNeedsAll(t *testing.T) {
	r := newRig(t, redistest.StartMini(t), 3, far)
	r.WithDefault("orders", 0, 60)
	r.PutMany("orders", 50, far)
	page, err := r.Reader.List(ctx, "orders", sink.ListOptions{Order: wire.ByDeadline, Limit: 5})
	if err != nil {
		t.Fatal(err)
	}
	r.Client.HSet(ctx, r.Key(2, "state"), "rebuild", "5")
	_, err = r.Reader.List(ctx, "orders", sink.ListOptions{Order: wire.ByDeadline, Continuation: page.Continuation})
	wantErr(t, err, sink.ErrUnavailable, "a list with a shard that is being rebuilt")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := r.Reader.List(ended, "orders", sink.ListOptions{Order: wire.ByDeadline}); err == nil {
		t.Error("a list of shards that do not answer has no error")
	}
}
