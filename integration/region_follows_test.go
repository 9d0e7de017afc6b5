package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/integration/harness/regions"
	"github.com/seed18712806/lapse/integration/oracle/readers"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestRegion_Follows: a region follows another one that has documents, configurations and expired events. Clients write
// in both regions. At rest the states are the same, and so are the streams.
//
// It fails if the follower does not apply what was there before; if it applies a message in another way than the
// first region; if a write does not get from the follower's NATS into the first region's log, or has not one outcome;
// if
// /metrics does not answer in a follower.
func TestRegion_Follows(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.a.Configure("c", `{"defaultTtl":60,"changes":true,"warnBefore":[1]}`)
	gone := r.a.Want(201, wire.Upsert, "c", "gone", `{"ttl":1}`)
	r.a.Want(201, wire.Upsert, "c", "kept", `{"v":1}`)
	r.a.ExpiryOf("c", "gone", gone.Etag, harness.Limit)
	began := time.Now()
	r.follow(r.b, r.a)
	t.Logf("the follower is ready after %v", time.Since(began))
	r.same()

	outcomes := make(chan *nats.Msg, 10)
	sub, err := r.b.NC.ChanSubscribe(r.b.NC.NewInbox(), outcomes)
	if err != nil {
		t.Fatal(err)
	}
	r.b.Send(r.b.Prefix.Write(wire.Upsert, "c", "in b"), `{"v":2}`, harness.Header(wire.HeaderReplyTo, sub.Subject))
	inB := r.b.Want(201, wire.Upsert, "c", "in b too", `{"ttl":2}`)
	for _, w := range []*inRegion{r.a, r.b} {
		w.settled("c", "in b too", uint64(inB.Etag))
	}
	a, b := startLoad(t, r.a.Client, 21), startLoad(t, r.b.Client, 22)
	a.wait(t, 200)
	b.wait(t, 200)
	a.end()
	b.end()
	r.b.verify()
	r.a.verify()
	r.same()
	r.sameStreams()
	a.verifyStored(t)
	b.verifyStored(t)
	if up := metric(t, r.b.lapse, "lapse_follower_link_up"); up != 1 {
		t.Errorf("the metric of the link is %v", up)
	}
	if n := len(outcomes); n != 1 {
		t.Errorf("a write in region b has %d outcomes", n)
	}
	if text := r.command(r.b, 1, "backup", filepath.Join(t.TempDir(), "b")); !strings.Contains(text,
		"back up that region") {
		t.Errorf("a backup of a region with mirrors is refused with %q", text)
	}
}

// TestRegion_FollowsOnceTheLinkIsUp: a process that is started with --follow before the link to the first region is up
// waits for it.
//
// It fails if the process ends, as it does where nothing answers for the domain yet.
func TestRegion_FollowsOnceTheLinkIsUp(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	kept := r.a.Want(201, wire.Upsert, "c", "kept", `{"v":1}`)
	r.Link.Down()
	r.b.lapse = r.lapseIn(r.b, "--follow", r.a.Name)
	r.b.lapse.Launch()
	harness.Until(t, harness.Limit, "the process waits", func(context.Context) error {
		if log := r.b.lapse.Log(); !strings.Contains(log,
			"could not take it over, and tries again: the first region does not answer") {
			return fmt.Errorf("its log is %s", log)
		}
		return nil
	})
	r.Link.Up()
	r.b.lapse.Ready()
	r.b.settled("c", "kept", uint64(kept.Etag))
}

// sameStreams fails the test unless the logs and the events are the same in both regions.
func (r *twoRegions) sameStreams() {
	r.t.Helper()
	for _, name := range append(r.logs(), r.a.Prefix.EventsStream()) {
		harness.Until(r.t, harness.Limit, "both regions have the same "+name, func(context.Context) error {
			inA, inB := r.a.Stream(name), r.b.Stream(name)
			if len(inA) != len(inB) {
				return fmt.Errorf("it has %d messages in a, and %d in b", len(inA), len(inB))
			}
			for i, m := range inA {
				if n := inB[i]; m.Seq != n.Seq || m.At != n.At || m.Subject != n.Subject ||
					string(m.Data) != string(n.Data) {
					return fmt.Errorf("message %d is %s %s in a, and %d %s %s in b", m.Seq, m.Subject, m.Data, n.Seq,
						n.Subject, n.Data)
				}
			}
			return nil
		})
	}
}

// TestAll_RegionFollowsWithoutALink: documents end in both regions at their deadlines, while the link is slow and while
// it is down. Meanwhile reads of other documents go on. Then the link is up again, and the follower has what was
// written meanwhile.
//
// It fails if the follower waits for the event of the first region before it takes a document for expired; if it
// refuses reads when it has no link, or /readyz does not tell; if a mirror does not go on soon; if
// the follower publishes anything.
func TestAll_RegionFollowsWithoutALink(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.follow(r.b, r.a)
	kept := r.a.Want(201, wire.Upsert, "c", "kept", `{"v":1}`)
	r.a.Configure("c", `{"defaultTtl":-1,"warnBefore":[1],"changes":true}`)
	var heard func() []string
	ends := func(id string) {
		t.Helper()
		dying := r.a.Want(201, wire.Upsert, "c", id, `{"ttl":2}`)
		r.b.settled("c", id, uint64(dying.Etag))
		if id == "down" {
			r.Link.Down()
			heard = r.hear(r.b)
		}
		after(t, *dying.ExpiresAt)
		for _, w := range []*inRegion{r.b, r.a} {
			if w.readable("c", id) || w.Found("c", id) {
				t.Errorf("region %s: an expired document is read; the link: %s", w.Name, id)
			}
		}
	}
	ends("up")
	r.Link.Delay(100 * time.Millisecond)
	ends("slow")
	r.Link.Delay(0)
	ends("down")
	harness.Until(t, harness.Limit, "/readyz of the follower tells that the first region does not answer",
		func(context.Context) error {
			if status, text := fetch(t, r.b.lapse, "/readyz"); status != http.StatusOK ||
				!strings.Contains(text, "does not answer") {
				return fmt.Errorf("%d %s", status, text)
			}
			return nil
		})
	late := r.a.Want(201, wire.Upsert, "c", "late", `{"v":2}`)
	short := r.a.Want(201, wire.Upsert, "c", "short", `{"ttl":1}`)
	r.a.ExpiryOf("c", "short", short.Etag, harness.Limit)
	if d := r.b.settled("c", "kept", uint64(kept.Etag)); string(d.Body) != `{"v":1}` {
		t.Errorf("body %s", d.Body)
	}
	if r.b.Found("c", "late") {
		t.Error("region b has what was written while the link was down")
	}
	if all := heard(); len(all) > 0 {
		t.Errorf("the follower has published %d messages while the link was down: %v", len(all), all)
	}
	began := time.Now()
	r.Link.Up()
	r.b.settled("c", "late", uint64(late.Etag))
	t.Logf("the follower has what it missed %v after the link is up", time.Since(began))
	r.same()
	r.b.verify()
}

// hear returns what stops to listen in a region, and returns the subjects of all messages of lapse that came: of the
// log, and of the stream of events.
func (r *twoRegions) hear(w *inRegion) (stop func() []string) {
	r.t.Helper()
	var mu sync.Mutex
	var all []string
	var subs []*nats.Subscription
	for _, subject := range append(w.Prefix.EventSubjects(), w.Prefix.Log(0, 1).Subjects()...) {
		sub, err := w.NC.Subscribe(subject, func(m *nats.Msg) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, m.Subject)
		})
		if err != nil {
			r.t.Fatal(err)
		}
		subs = append(subs, sub)
	}
	if err := w.NC.Flush(); err != nil {
		r.t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	all = nil
	return func() []string {
		for _, sub := range subs {
			_ = sub.Unsubscribe()
		}
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

// fetch gets a path over HTTP.
func fetch(t *testing.T, l *harness.Lapse, path string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+l.HTTP+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestRegion_MaxStaleness: with --max-staleness the follower refuses reads once it knows nothing of the first region
// for so long.
//
// It fails if a read is answered then, over NATS or HTTP; if reads do not go on once the link is up.
func TestRegion_MaxStaleness(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	kept := r.a.Want(201, wire.Upsert, "c", "kept", `{"v":1}`)
	r.follow(r.b, r.a, "--max-staleness", "3s")
	r.b.settled("c", "kept", uint64(kept.Etag))
	service := readers.ByService(r.b.NC, r.b.Prefix)
	const path = "/v1/collections/c/documents/kept"
	reads := func(want int) {
		t.Helper()
		harness.Until(t, harness.Limit, fmt.Sprintf("reads answer %d", want), func(ctx context.Context) error {
			_, err := service.Get(ctx, "c", "kept")
			if want == http.StatusOK && err != nil || want != http.StatusOK &&
				(err == nil || !strings.Contains(err.Error(), fmt.Sprintf("error %d: ", want))) {
				return fmt.Errorf("over NATS: %w", err)
			}
			if status, text := fetch(t, r.b.lapse, path); status != want {
				return fmt.Errorf("over HTTP: %d %s", status, text)
			}
			return nil
		})
	}
	reads(http.StatusOK)
	r.Link.Down()
	down := time.Now()
	reads(http.StatusServiceUnavailable)
	if waited := time.Since(down); waited > 5*time.Second {
		t.Logf("reads were answered %v after the link went down", waited)
	}
	// a second later, at most
	harness.Until(t, harness.Limit, "/readyz names the flag", func(ctx context.Context) error {
		if err := r.b.lapse.ReadyNow(ctx); err == nil || !strings.Contains(err.Error(), "--max-staleness") {
			return fmt.Errorf("/readyz: %w", err)
		}
		return nil
	})
	r.Link.Up()
	up := time.Now()
	reads(http.StatusOK)
	t.Logf("reads are answered %v after the link is up", time.Since(up))
}

// TestRegion_FollowerPublishesNothing: the first region has no lapse, and a document is due. The follower has it no
// longer, and writes nothing for it: neither a tick nor an event. The first region does that when it is back.
//
// It fails if a follower appends to the log or publishes events.
func TestRegion_FollowerPublishesNothing(t *testing.T) {
	t.Parallel()
	r := startRegions(t, regions.Options{})
	r.follow(r.b, r.a)
	r.a.Configure("c", `{"defaultTtl":-1}`)
	dying := r.a.Want(201, wire.Upsert, "c", "a", `{"ttl":2}`)
	r.b.settled("c", "a", uint64(dying.Etag))
	r.a.lapse.Kill()
	before, heard := r.endsOf(r.a), r.hear(r.b)
	after(t, *dying.ExpiresAt)
	if r.b.readable("c", "a") || r.b.Found("c", "a") {
		t.Error("an expired document is read")
	}
	after(t, *dying.ExpiresAt+3000)
	if now, all := r.endsOf(r.a), heard(); now != before || len(all) > 0 {
		t.Errorf("log and events end at %v, and ended at %v: %v", now, before, all)
	}
	r.a.lapse.Start()
	r.a.ExpiryOf("c", "a", dying.Etag, harness.Limit)
	r.same()
	r.b.verify()
}
