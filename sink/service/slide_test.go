package service_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	diffs "github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/seed18712806/lapse/integration/harness/natstest"
	"github.com/seed18712806/lapse/integration/harness/natstest/inprocess"
	"github.com/seed18712806/lapse/sink"
	"github.com/seed18712806/lapse/sink/service"
	"github.com/seed18712806/lapse/sink/wire"
)

// TestSlidesHaveIDsThatNobodyKnows: a writer of another collection has used up each id that follows from what can be
// known of a document, and the ids of earlier touches, and the touch of a read comes into the log all the same. Of
// several reads of one version it comes once.
//
// It fails if the id follows from the etag, or if there is none.
func TestSlidesHaveIDsThatNobodyKnows(t *testing.T) {
	srv := inprocess.Start(t, &server.Options{Port: -1, JetStream: true, StoreDir: t.TempDir()})
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc, err := nats.Connect(srv.ClientURL(), natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := natstest.JetStream(t, nc)
	log, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: wire.DefaultPrefix.LogStream(),
		Subjects: []string{"lapse.write.>"}})
	if err != nil {
		t.Fatal(err)
	}
	used := make(map[string]bool)
	use := func(id string) {
		t.Helper()
		if _, err := js.PublishMsg(t.Context(), &nats.Msg{Subject: "lapse.write.upsert.orders.1", Data: []byte("{}"),
			Header: nats.Header{jetstream.MsgIDHeader: {id}}}); err != nil {
			t.Fatal(err)
		}
		used[id] = true
	}
	for etag := wire.Etag(1); etag <= 20; etag++ {
		for _, id := range []string{"slide/%s", "slide/sessions/a/%s", "sessions/a/%s", "%s"} {
			use(fmt.Sprintf(id, etag))
		}
		before := log.CachedInfo().State.LastSeq
		slides := prometheus.NewCounter(prometheus.CounterOpts{Name: "slides"})
		sliding := service.Sliding{NATS: js.Conn(), Prefix: wire.DefaultPrefix, Slides: slides,
			Reader: fake{get: func(context.Context, string, string) (sink.Document, error) {
				return sink.Document{ID: "a", Etag: etag, Slides: true}, nil
			}}}
		for range 3 {
			if _, err := sliding.Get(t.Context(), "sessions", "a"); err != nil {
				t.Fatal(err)
			}
		}
		use(fmt.Sprintf("behind/%s", etag)) // so all touches have come
		last, err := log.GetLastMsgForSubject(t.Context(), "lapse.write.touch.sessions.a")
		if err != nil {
			t.Fatalf("etag %s: %v", etag, err)
		}
		info, err := log.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if id := last.Header.Get(jetstream.MsgIDHeader); last.Header.Get(wire.HeaderIfMatch) != etag.String() || used[id] ||
			info.State.LastSeq != before+6 {
			t.Errorf("etag %s: the last touch is %v, and the log went on from %d to %d", etag, last.Header, before,
				info.State.LastSeq)
		} else {
			used[id] = true
		}
		if n := counted(t, slides); n != 3 {
			t.Errorf("%v touches are counted, want 3", n)
		}
	}
	nc.Close()
	slides := prometheus.NewCounter(prometheus.CounterOpts{Name: "slides"})
	sliding := service.Sliding{NATS: nc, Prefix: wire.DefaultPrefix, Slides: slides,
		Reader: fake{get: func(context.Context, string, string) (sink.Document, error) {
			return sink.Document{ID: "a", Etag: 1, Slides: true}, nil
		}}}
	if doc, err := sliding.Get(t.Context(), "sessions", "a"); err != nil || doc.Etag != 1 || counted(t, slides) != 0 {
		t.Errorf("a touch that cannot be sent: %v, %v, %v are counted", doc, err, counted(t, slides))
	}
}

// counted is the value of a counter.
func counted(t *testing.T, c prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	return families[0].GetMetric()[0].GetCounter().GetValue()
}

// renewing is a fake that can wait for a renewal.
type renewing struct{ fake }

// Renew implements [service.Renewer].
func (renewing) Renew(_ context.Context, collection, id string) (sink.Document, error) {
	return sink.Document{Etag: 1, Body: fmt.Appendf(nil, "renewed %s/%s", collection, id)}, nil
}

// TestGetRenews: a read waits for the renewal of the document if its request says so, and else it does not.
func TestGetRenews(t *testing.T) {
	_, nc := start(t, renewing{fake{get: func(_ context.Context, collection, id string) (sink.Document, error) {
		return sink.Document{Etag: 1, Body: fmt.Appendf(nil, "read %s/%s", collection, id)}, nil
	}}}, service.Options{})
	for body, want := range map[string]string{"": "read sessions/a.b", `{"renew":false}`: "read sessions/a.b",
		`{"renew":true}`: "renewed sessions/a.b"} {
		if got := string(request(t, nc, "lapse.read.get.sessions.a%2Eb", body).Data); got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
	}
	wantFailure(t, request(t, nc, "lapse.read.get.sessions.a", `{"renew":1}`), 400, "renew", "true or false")
}

// TestRenew: a renewal waits until a read shows that it is applied, or that something else has happened to the document.
// A document that does not slide is not renewed. An error says whether the log has the renewal.
//
// It fails if the old deadline is returned, or if a renewal that did not come into the log is waited for or counted.
func TestRenew(t *testing.T) {
	srv := inprocess.Start(t, &server.Options{Port: -1, JetStream: true, StoreDir: t.TempDir()})
	t.Cleanup(func() { srv.Shutdown(); srv.WaitForShutdown() })
	nc, err := nats.Connect(srv.ClientURL(), natstest.Patient)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js := natstest.JetStream(t, nc)
	for prefix, largest := range map[wire.Prefix]int32{"lapse": 0, "small": 10} {
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: prefix.LogStream(), MaxMsgSize: largest,
			Subjects: []string{string(prefix) + ".write.>"}}); err != nil {
			t.Fatal(err)
		}
	}
	doc := func(etag wire.Etag, expires wire.Time, slides bool) sink.Document {
		return sink.Document{ID: "a", Etag: etag, ExpiresAt: &expires, Slides: slides}
	}
	was, failure := doc(1, 1000, true), errors.New("no disk")
	for name, c := range map[string]struct {
		prefix   wire.Prefix
		first    sink.Document
		firstErr error
		later    sink.Document // from the third read on
		laterErr error
		want     sink.Document
		err      error
		says     string
		touches  int
	}{
		"applied":          {first: was, later: doc(1, 2000, true), want: doc(1, 2000, true), touches: 1},
		"written":          {first: was, later: doc(2, 1000, true), want: doc(2, 1000, true), touches: 1},
		"no longer slides": {first: was, later: sink.Document{Etag: 1}, want: sink.Document{Etag: 1}, touches: 1},
		"gone":             {first: was, laterErr: sink.ErrNotFound, err: sink.ErrNotFound, touches: 1},
		"fails":            {first: was, laterErr: failure, err: failure, touches: 1},
		"not applied": {first: was, later: was, want: was, err: sink.ErrUnavailable, says: "is in the log, and is not applied yet",
			touches: 1},
		"does not slide": {first: doc(1, 1000, false), want: doc(1, 1000, false)},
		"never there":    {firstErr: sink.ErrNotFound, err: sink.ErrNotFound},
		"no log":         {prefix: "other", first: was, want: was, err: sink.ErrUnavailable, says: "did not take the renewal"},
		"refused":        {prefix: "small", first: was, want: was, err: sink.ErrUnavailable, says: "message size exceeds maximum"},
	} {
		t.Run(name, func(t *testing.T) {
			prefix := cmp.Or(c.prefix, "lapse")
			sub, err := nc.SubscribeSync("lapse.write.touch.sessions.a")
			if err != nil {
				t.Fatal(err)
			}
			slides, reads := prometheus.NewCounter(prometheus.CounterOpts{Name: "slides"}), 0
			s := service.Sliding{NATS: nc, Prefix: prefix, Slides: slides, Reader: fake{
				get: func(_ context.Context, collection, id string) (sink.Document, error) {
					if collection != "sessions" || id != "a" {
						t.Errorf("it reads %s of %s", id, collection)
					}
					if reads++; reads < 3 {
						return c.first, c.firstErr
					}
					return c.later, c.laterErr
				}}}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if c.says == "is in the log, and is not applied yet" {
				cancel()
				ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
			}
			got, err := s.Renew(ctx, "sessions", "a")
			if !errors.Is(err, c.err) || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v, want %v with %q", err, c.err, c.says)
			}
			if diff := diffs.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if err := nc.Flush(); err != nil {
				t.Fatal(err)
			}
			if touches, _, err := sub.Pending(); err != nil || touches != c.touches {
				t.Errorf("%d touches, want %d; %v", touches, c.touches, err)
			}
			if n := counted(t, slides); int(n) != c.touches {
				t.Errorf("%v renewals are counted, want %d", n, c.touches)
			}
			if err := sub.Unsubscribe(); err != nil {
				t.Fatal(err)
			}
		})
	}
}
