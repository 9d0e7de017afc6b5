package integration

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/seed18712806/lapse/integration/harness"
	"github.com/seed18712806/lapse/sink"
	lapseclient "github.com/seed18712806/lapse/sink/client"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestG3_ReadsSlide: where slideOnRead is set, a document lives as long as somebody gets it, over NATS or
// HTTP, and then expires; one with an absolute deadline does not slide, nor one that only lists return.
// It costs ten touches a TTL at most, and nobody is told of touches that come too late.
//
// It fails if a get does not renew the clock, if each get appends a touch, if an absolute deadline
// slides, if a list does, or if the metrics do not count the touches.
func TestG3_ReadsSlide(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	const ttl, lives = 10 * time.Second, 3
	w.Configure("c", fmt.Sprintf(`{"defaultTtl":%d,"slideOnRead":true}`, int(ttl.Seconds())))
	for _, id := range []string{"read", "listed", "http"} {
		w.Want(201, wire.Create, "c", id, `{}`)
	}
	w.Want(201, wire.Create, "c", "own", `{"ttl":10}`)
	w.Want(201, wire.Create, "c", "absolute", `{}`, wire.HeaderExpiresAt,
		time.Now().Add(ttl).UTC().Format(time.RFC3339Nano))
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := map[string]time.Time{} // when each was there last
	for began := time.Now(); time.Since(began) < lives*ttl; <-tick.C {
		for _, id := range []string{"read", "own", "absolute"} {
			if at := time.Now(); w.Found("c", id) {
				last[id] = at
			}
		}
		if at := time.Now(); w.overHTTP("c", "http") {
			last["http"] = at
		}
		if page, err := w.reader.List(t.Context(), "c", sink.ListOptions{}); err != nil {
			t.Fatal(err)
		} else if len(page.Documents) == 0 {
			t.Fatal("no document is listed")
		}
	}
	end := time.Now()
	for id, slides := range map[string]bool{"read": true, "own": true, "http": true, "absolute": false} {
		if alive := end.Sub(last[id]) < ttl/2; alive != slides {
			t.Errorf("%s was there last %v before the end; slides: %v", id, end.Sub(last[id]), slides)
		}
	}
	if w.Found("c", "listed") {
		t.Error("lists renewed the clock of a document")
	}
	for _, id := range []string{"read", "own", "http"} {
		if n := w.touches("c", id); n < lives-1 || n > 10*(lives+1) {
			t.Errorf("%s: %d touches in %d TTLs", id, n, lives)
		}
	}
	slides := counters(t, w.lapse, "lapse_slides_total")
	for via, n := range map[string]int{"nats": w.touches("c", "read") + w.touches("c", "own"),
		"http": w.touches("c", "http")} {
		var counted int
		_, line, _ := strings.Cut(slides, `{via="`+via+`"} `)
		if _, err := fmt.Sscan(line, &counted); err != nil || counted < n {
			t.Errorf("%s: the log has %d touches for reads over %s", slides, n, via)
		}
	}
	w.verify()
}

// TestSlideKeepsETag: a client reads a document that slides, changes it, and writes it on the condition that it is the
// one
// that was read, again and again. Each read waits for its renewal, so that each write comes behind one. Whatever is
// renewed, the document expires when it has lived as long as maxLife allows; a put does not make that longer.
//
// It fails if a renewal changes the etag, if its reply has the deadline of before, or if a put begins a new life.
func TestSlideKeepsETag(t *testing.T) {
	t.Parallel()
	w := external(t, harness.RedisOptions{})
	w.Configure("sessions", `{"defaultTtl":600,"maxLife":900,"slideOnRead":0.000001,"changes":true}`)
	created := w.Want(201, wire.Create, "sessions", "a", `{"n":0}`)
	c, err := lapseclient.Connect(lapseclient.Options{Server: w.nats.URL(), Timeout: harness.Limit})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := *created.ExpiresAt
	for n := range 5 {
		var doc wire.Document
		// it has to come a millisecond later
		harness.Until(t, harness.Limit, "a read renews the clock", func(context.Context) (err error) {
			if doc, err = c.GetRenewed(t.Context(), "sessions", "a"); err == nil && *doc.ExpiresAt <= before {
				err = fmt.Errorf("it expires at %s", doc.ExpiresAt)
			}
			return err
		})
		before = *w.Want(200, wire.Replace, "sessions", "a", fmt.Sprintf(`{"n":%d}`, n), wire.HeaderIfMatch,
			doc.Etag.String()).ExpiresAt
	}
	w.Configure("sessions", `{"defaultTtl":1200,"maxLife":900,"slideOnRead":true,"changes":true}`)
	if o := w.Want(200, wire.Upsert, "sessions", "a", `{}`); *o.ExpiresAt != created.Ts+900_000 {
		t.Errorf("a document of %s expires at %s, want 900 s later", created.Ts, o.ExpiresAt)
	}
	w.verify()
}

// overHTTP reports whether HTTP has a document.
func (w *world) overHTTP(collection, id string) bool {
	w.t.Helper()
	resp, err := http.Get("http://" + w.lapse.HTTP + "/v1/collections/" + collection + "/documents/" + id)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// touches is how many touches of a document the log has.
func (w *world) touches(collection, id string) int {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), harness.Limit)
	defer cancel()
	stream, err := w.JS.Stream(ctx, w.Prefix.LogStream())
	if err != nil {
		w.t.Fatal(err)
	}
	subject := w.Prefix.Write(wire.Touch, collection, id)
	info, err := stream.Info(ctx, jetstream.WithSubjectFilter(subject))
	if err != nil {
		w.t.Fatal(err)
	}
	return int(info.State.Subjects[subject])
}
